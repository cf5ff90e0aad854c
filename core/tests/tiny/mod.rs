//! The smallest backend there can be: one device in this process's memory, whose streams do their
//! work at once. For tests of the plugin table; Miri can run it.
//!
//! Device 13 panics when it is opened, and so does the method that `TINY_PANIC` names.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::MaybeUninit;
use std::ptr::{copy_nonoverlapping, null, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use symmem_core::backend::abi::*;
use symmem_core::backend::{
    CallResult, Collectives, Device, Failure, Gemm, Implementation, RemoteAccess, Signals,
    SymmetricMemory, WithoutMulticastObjects,
};

/// The ordinal that panics.
pub const PANICKING_DEVICE: u32 = 13;
/// Bytes that are refused.
pub const TOO_MANY_BYTES: u64 = 1 << 40;

/// The backend, opened.
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
/// `address` is that of a live, aligned word which is accessed atomically only.
unsafe fn word<'a>(address: DeviceAddress) -> &'a AtomicU32 {
    // SAFETY: the caller's word.
    unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(address.0 as usize)) }
}

/// # Safety
/// The words of the target are live.
unsafe fn give(target: &SignalTarget) {
    if target.word.0 != 0 {
        // SAFETY: the caller's word.
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
        // SAFETY: the layout is not empty.
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
        // SAFETY: made by `take` with this layout, and removed from the list, so freed once.
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

    fn open(options: &OpenOptions) -> CallResult<Self> {
        assert_ne!(options.ordinal, PANICKING_DEVICE, "unlucky");
        Ok(Self {
            ordinal: options.ordinal,
            live: Mutex::default(),
        })
    }
}

impl Device for Tiny {
    fn capabilities(&self) -> CallResult<Capabilities> {
        panic_if_asked("capabilities");
        let mut row = [TransferRow::default(); 8];
        row[0] = TransferRow {
            bytes: u64::MAX,
            method: Method::COPY_ENGINE,
            blocks: 1,
            threads: 1,
            ..TransferRow::default()
        };
        let mut share_kinds = [ShareKind::default(); 4];
        share_kinds[0] = ShareKind::SAME_PROCESS;
        Ok(Capabilities {
            flags: 0,
            share_kinds,
            share_granularity: 4096,
            shared_memory_per_block: 0,
            fanout: 1,
            put_rows: row,
            get_rows: row,
            driver_version: 1,
            reduce_inbox_bytes: 0,
        })
    }
    fn description(&self) -> CallResult<DeviceDescription> {
        Self::describe_device(self.ordinal)
    }
    fn memory_information(&self) -> CallResult<MemoryInformation> {
        panic_if_asked("memory_information");
        Ok(MemoryInformation {
            free: 1 << 20,
            total: 1 << 30,
        })
    }
    fn stream_create(&self) -> CallResult<RawStream> {
        Ok(RawStream(1))
    }
    unsafe fn stream_destroy(&self, _stream: RawStream) -> CallResult<()> {
        Ok(())
    }
    unsafe fn stream_idle(&self, _stream: RawStream) -> CallResult<bool> {
        Ok(true)
    }
    unsafe fn stream_wait_event(&self, _stream: RawStream, _event: RawEvent) -> CallResult<()> {
        Ok(())
    }
    unsafe fn stream_capturing(&self, _stream: RawStream) -> CallResult<bool> {
        Ok(false)
    }
    fn event_create(&self) -> CallResult<RawEvent> {
        Ok(RawEvent(1))
    }
    unsafe fn event_destroy(&self, _event: RawEvent) -> CallResult<()> {
        Ok(())
    }
    unsafe fn event_record(&self, _event: RawEvent, _stream: RawStream) -> CallResult<()> {
        Ok(())
    }
    unsafe fn event_done(&self, _event: RawEvent) -> CallResult<bool> {
        Ok(true)
    }
    unsafe fn event_elapsed(&self, _start: RawEvent, _end: RawEvent) -> CallResult<u64> {
        Ok(0)
    }
    unsafe fn capture_begin(&self, _stream: RawStream) -> CallResult<()> {
        refuse("capture_begin")
    }
    unsafe fn capture_end(&self, _stream: RawStream) -> CallResult<RawGraph> {
        refuse("capture_end")
    }
    unsafe fn graph_instantiate(&self, _graph: RawGraph) -> CallResult<RawGraphExec> {
        refuse("graph_instantiate")
    }
    unsafe fn graph_launch(&self, _graph: RawGraphExec, _stream: RawStream) -> CallResult<()> {
        refuse("graph_launch")
    }
    unsafe fn graph_destroy(&self, _graph: RawGraphExec) -> CallResult<()> {
        refuse("graph_destroy")
    }
    fn host_allocate(&self, bytes: u64) -> CallResult<HostMemory> {
        let host = self.take(bytes)?;
        Ok(HostMemory {
            host,
            device: DeviceAddress(host),
            bytes,
        })
    }
    unsafe fn host_free(&self, memory: HostMemory) -> CallResult<()> {
        self.give_back(memory.host)
    }
    unsafe fn host_register(&self, pointer: u64, bytes: u64) -> CallResult<HostMemory> {
        Ok(HostMemory {
            host: pointer,
            device: DeviceAddress(pointer),
            bytes,
        })
    }
    unsafe fn host_unregister(&self, _pointer: u64) -> CallResult<()> {
        Ok(())
    }
    unsafe fn memory_set(
        &self,
        destination: DeviceAddress,
        value: u8,
        bytes: u64,
        _stream: RawStream,
    ) -> CallResult<()> {
        let pointer = with_exposed_provenance_mut::<u8>(destination.0 as usize);
        // SAFETY: the caller names live memory.
        unsafe { pointer.write_bytes(value, bytes as usize) };
        Ok(())
    }
    unsafe fn module_load(&self, _image: &[u8]) -> CallResult<RawModule> {
        refuse("module_load")
    }
    unsafe fn module_unload(&self, _module: RawModule) -> CallResult<()> {
        refuse("module_unload")
    }
    unsafe fn module_function(&self, _module: RawModule, _name: &str) -> CallResult<RawFunction> {
        refuse("module_function")
    }
    fn builtin_function(&self, _name: &str) -> CallResult<RawFunction> {
        refuse("builtin_function")
    }
    unsafe fn launch(
        &self,
        _function: RawFunction,
        _geometry: &Geometry,
        _arguments: &[MaybeUninit<u8>],
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("launch")
    }
}

impl SymmetricMemory for Tiny {
    fn allocate(&self, _kind: ShareKind, bytes: u64) -> CallResult<SharedAllocation> {
        let address = self.take(bytes)?;
        Ok(SharedAllocation {
            handle: RawAllocation(address),
            address: DeviceAddress(address),
            bytes,
        })
    }
    unsafe fn register(
        &self,
        _kind: ShareKind,
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
            kind: ShareKind::SAME_PROCESS,
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

    fn allocate_signals(&self, kind: ShareKind, bytes: u64) -> CallResult<SharedAllocation> {
        self.allocate(kind, bytes)
    }
}

impl RemoteAccess for Tiny {
    unsafe fn transfer_rows(&self, _copy: &RowsCopy, _stream: RawStream) -> CallResult<()> {
        refuse("transfer_rows")
    }

    unsafe fn transfer(&self, transfer: &Transfer, _stream: RawStream) -> CallResult<()> {
        let source = match transfer.bytes {
            0 => null(),
            _ => with_exposed_provenance::<u8>(transfer.source.0 as usize),
        };
        if !source.is_null() {
            let destination = with_exposed_provenance_mut(transfer.destination.0 as usize);
            // SAFETY: the caller names live ranges that do not overlap.
            unsafe { copy_nonoverlapping(source, destination, transfer.bytes as usize) };
        }
        // SAFETY: the caller names live words.
        unsafe { give(&transfer.signal) };
        Ok(())
    }
}

impl Gemm for Tiny {
    fn gemm_library(&self) -> CallResult<VendorDescription> {
        refuse("gemm_library")
    }

    fn gemm_prepare(&self, _shape: &GemmShape) -> CallResult<RawGemm> {
        refuse("gemm_prepare")
    }

    unsafe fn gemm_candidates(&self, _gemm: RawGemm) -> CallResult<u32> {
        refuse("gemm_candidates")
    }

    unsafe fn gemm(
        &self,
        _gemm: RawGemm,
        _candidate: u32,
        _operands: &GemmOperands,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("gemm")
    }

    unsafe fn gemm_release(&self, _gemm: RawGemm) -> CallResult<()> {
        refuse("gemm_release")
    }

    fn gathered_gemm_limits(
        &self,
        _shape: &GemmShape,
        _sharding: Sharding,
        _shard: u64,
    ) -> CallResult<Option<GatheredLimits>> {
        Ok(None)
    }

    unsafe fn gathered_gemm(
        &self,
        _arguments: &GatheredGemmArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("gathered_gemm")
    }

    unsafe fn gathered_arrive(
        &self,
        _word: DeviceAddress,
        _epoch: DeviceAddress,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("gathered_arrive")
    }
}

impl WithoutMulticastObjects for Tiny {
    const REASON: &'static str = "this backend is small";

    fn support(&self) -> MulticastSupport {
        MulticastSupport::NONE
    }
}

impl Signals for Tiny {
    unsafe fn signal_give(
        &self,
        target: &SignalTarget,
        _placement: SignalPlacement,
        _stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller names live words.
        unsafe { give(target) };
        Ok(())
    }
    unsafe fn signal_wait(
        &self,
        wait: &SignalWait,
        _placement: SignalPlacement,
        _stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller names a live word.
        match unsafe { word(wait.word) }.load(Ordering::Acquire) {
            seen if seen >= wait.value => Ok(()),
            seen => Err(Failure::new(
                Status::CALL_FAILED,
                "tiny_wait",
                format!("saw {seen}"),
            )),
        }
    }
    unsafe fn signal_step(
        &self,
        _target: &SignalTarget,
        _wait: &SignalWait,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("signal_step")
    }

    unsafe fn word_update(&self, _operation: &WordOperation, _stream: RawStream) -> CallResult<()> {
        refuse("word_update")
    }

    unsafe fn word_wait(&self, _wait: &WordWait, _stream: RawStream) -> CallResult<()> {
        refuse("word_wait")
    }
}

impl Collectives for Tiny {
    unsafe fn barrier(&self, barrier: &Barrier, _stream: RawStream) -> CallResult<()> {
        match barrier.world {
            1 => Ok(()),
            _ => refuse("barrier"),
        }
    }
    fn collective_row(&self, _index: u32) -> CallResult<Option<CollectiveRow>> {
        Ok(None)
    }

    fn resident_blocks(
        &self,
        _kernel: CollectiveKernel,
        _element: ElementType,
        _threads: u32,
    ) -> CallResult<u32> {
        Ok(0)
    }

    unsafe fn collective_move(
        &self,
        _arguments: &MoveArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_move")
    }

    unsafe fn collective_swap(
        &self,
        _arguments: &MoveArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_swap")
    }

    unsafe fn collective_packets(
        &self,
        _arguments: &PacketArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_packets")
    }

    unsafe fn collective_reduce(
        &self,
        _arguments: &ReduceArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce")
    }

    unsafe fn collective_reduce_push(
        &self,
        _arguments: &ReducePushArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce_push")
    }

    unsafe fn collective_multicast(
        &self,
        _arguments: &MulticastArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_multicast")
    }

    unsafe fn collective_reduce_packets(
        &self,
        _arguments: &ReducePacketArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce_packets")
    }

    unsafe fn collective_exchange(
        &self,
        _arguments: &ExchangeArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_exchange")
    }

    fn vendor_description(&self) -> CallResult<VendorDescription> {
        refuse("vendor_description")
    }

    fn vendor_identifier(&self) -> CallResult<VendorIdentifier> {
        refuse("vendor_identifier")
    }

    fn vendor_create(
        &self,
        _identifier: &VendorIdentifier,
        _rank: u32,
        _world: u32,
    ) -> CallResult<RawVendor> {
        refuse("vendor_create")
    }

    unsafe fn vendor_ready(&self, _vendor: RawVendor) -> CallResult<bool> {
        refuse("vendor_ready")
    }

    unsafe fn vendor_call(
        &self,
        _vendor: RawVendor,
        _call: &VendorCall,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("vendor_call")
    }

    fn vendor_group(&self, _open: bool) -> CallResult<()> {
        refuse("vendor_group")
    }

    unsafe fn vendor_register(
        &self,
        _vendor: RawVendor,
        _address: DeviceAddress,
        _bytes: u64,
    ) -> CallResult<u64> {
        refuse("vendor_register")
    }

    unsafe fn vendor_deregister(&self, _vendor: RawVendor, _window: u64) -> CallResult<()> {
        refuse("vendor_deregister")
    }

    unsafe fn vendor_abort(&self, _vendor: RawVendor) -> CallResult<()> {
        refuse("vendor_abort")
    }

    unsafe fn vendor_destroy(&self, _vendor: RawVendor) -> CallResult<()> {
        refuse("vendor_destroy")
    }
}
