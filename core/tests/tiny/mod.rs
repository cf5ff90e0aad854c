//! A minimal backend for tests of the plugin table: one device in this process's memory, whose streams run their work
//! at once. Miri can run it.
//!
//! Opening device 13 panics, and so does the method that `TINY_PANIC` names.

mod device;
mod work;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::with_exposed_provenance_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use symmem_core::backend::abi::*;
use symmem_core::backend::{
    CallResult, Failure, Implementation, SymmetricMemory, WithoutMulticastObjects,
    WithoutNcclCollectives,
};

/// The device that panics when it is opened.
pub const PANICKING_DEVICE: u32 = 13;
/// Allocations of at least this many bytes are refused.
pub const TOO_MANY_BYTES: u64 = 1 << 40;

/// The open backend.
pub struct Tiny {
    ordinal: u32,
    live: Mutex<Vec<(u64, Layout)>>,
}

fn refuse<T>(call: &str) -> CallResult<T> {
    Err(Failure::new(
        Status::UNSUPPORTED,
        call,
        "the tiny backend does not do this",
    ))
}

fn panic_if_asked(call: &str) {
    if std::env::var("TINY_PANIC").is_ok_and(|name| name == call) {
        panic!("{call} was asked to panic");
    }
}

fn layout(bytes: u64) -> CallResult<Layout> {
    if bytes >= TOO_MANY_BYTES {
        let message = format!("{bytes} bytes are too many");
        return Err(Failure::of_call(
            Status::OUT_OF_MEMORY,
            "tiny_alloc",
            12,
            message,
        ));
    }
    Layout::from_size_align(bytes.max(1) as usize, 4096)
        .map_err(|error| Failure::new(Status::INVALID_ARGUMENT, "tiny_alloc", error.to_string()))
}

/// # Safety
/// `address` is that of a live, aligned word that is accessed atomically only.
unsafe fn word<'a>(address: DeviceAddress) -> &'a AtomicU32 {
    // SAFETY: the word is live, aligned and accessed atomically only, as this function requires.
    unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(address.0 as usize)) }
}

/// # Safety
/// The words of the target are live.
unsafe fn give(target: &SignalTarget) {
    if target.word.0 != 0 {
        // SAFETY: the words are live, as this function requires.
        unsafe {
            let value = match target.epoch.0 {
                0 => target.value,
                _ => word(target.epoch).fetch_add(1, Ordering::Relaxed) + 1,
            };
            word(target.word).store(value, Ordering::Release);
        }
    }
}

impl Tiny {
    fn take(&self, bytes: u64) -> CallResult<u64> {
        let layout = layout(bytes)?;
        // SAFETY: the layout's size is not 0.
        let address = unsafe { alloc_zeroed(layout) }.expose_provenance() as u64;
        self.live
            .lock()
            .expect("no panic under it")
            .push((address, layout));
        Ok(address)
    }

    fn give_back(&self, address: u64) -> CallResult<()> {
        let mut live = self.live.lock().expect("no panic under it");
        let Some(at) = live.iter().position(|(known, _)| *known == address) else {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "tiny_free",
                "not live",
            ));
        };
        let (_, layout) = live.swap_remove(at);
        // SAFETY: `take` allocated it with this layout, and it has left the list, so it is freed once.
        unsafe { dealloc(with_exposed_provenance_mut(address as usize), layout) };
        Ok(())
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let live: Vec<u64> = self
            .live
            .lock()
            .expect("no panic under it")
            .iter()
            .map(|(address, _)| *address)
            .collect();
        for address in live {
            self.give_back(address).expect("it is in the list");
        }
    }
}

impl Implementation for Tiny {
    type Instance = Self;
    const NAME: &'static str = "tiny";

    fn device_count() -> CallResult<u32> {
        panic_if_asked("device_count");
        Ok(PANICKING_DEVICE + 1)
    }

    fn describe_device(ordinal: u32) -> CallResult<DeviceDescription> {
        Ok(DeviceDescription {
            ordinal,
            compute_units: 1,
            architecture: 0,
            partition: 0,
            memory_bytes: 1 << 30,
            uuid: [ordinal as u8; 16],
            name: [b't'; 64],
            bus: [0; 16],
        })
    }

    fn describe_libraries() -> String {
        "tiny=none\n".into()
    }

    fn selector_row(index: u32) -> Option<CollectiveRow> {
        let row = CollectiveRow {
            operation: CollectiveOperationCode::ALL_GATHER,
            world: 2,
            bytes: u64::MAX,
            algorithm: AlgorithmCode::PUSH,
            blocks: 3,
            threads: 64,
            concurrent: 0,
        };
        (index == 0).then_some(row)
    }

    fn open(options: &OpenOptions) -> CallResult<Self> {
        assert_ne!(options.ordinal, PANICKING_DEVICE, "unlucky");
        Ok(Self {
            ordinal: options.ordinal,
            live: Mutex::default(),
        })
    }
}

impl SymmetricMemory for Tiny {
    fn allocate(&self, _kind: ShareKindCode, bytes: u64) -> CallResult<SharedAllocation> {
        let address = self.take(bytes)?;
        Ok(SharedAllocation {
            handle: RawAllocation(address),
            address: DeviceAddress(address),
            bytes,
        })
    }
    unsafe fn register(
        &self,
        _kind: ShareKindCode,
        _address: DeviceAddress,
        _bytes: u64,
    ) -> CallResult<SharedAllocation> {
        refuse("register")
    }
    unsafe fn free(&self, allocation: RawAllocation) -> CallResult<()> {
        self.give_back(allocation.0)
    }
    unsafe fn export(&self, allocation: RawAllocation) -> CallResult<ExportedHandle> {
        Ok(ExportedHandle {
            kind: ShareKindCode::SAME_PROCESS,
            device: self.ordinal,
            offset: 0,
            bytes: 0,
            address: allocation.0,
            opaque: [0; 64],
            descriptor: -1,
            reserved: 0,
        })
    }
    unsafe fn import(&self, handle: &ExportedHandle) -> CallResult<SharedMapping> {
        Ok(SharedMapping {
            handle: RawMapping(handle.address),
            address: DeviceAddress(handle.address),
        })
    }
    unsafe fn unmap(&self, _mapping: RawMapping) -> CallResult<()> {
        Ok(())
    }

    fn allocate_signals(&self, kind: ShareKindCode, bytes: u64) -> CallResult<SharedAllocation> {
        self.allocate(kind, bytes)
    }
}

impl WithoutMulticastObjects for Tiny {
    const REASON: &'static str = "this backend is small";

    fn support(&self) -> MulticastSupportCode {
        MulticastSupportCode::NONE
    }
}

impl WithoutNcclCollectives for Tiny {
    const REASON: &'static str = "this backend is small";
}
