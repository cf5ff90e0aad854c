//! An open device of the role's vendor, with helpers for the tests.

use crate::support::vendors::Vendor;
use std::cell::RefCell;
use std::time::{Duration, Instant};
use symmem::backend::abi::*;
use symmem::backend::{Device, PluginBackend, RemoteAccess, SymmetricMemory, Tables};

/// Bytes of an element.
pub const ELEMENT: u64 = 2;
/// The value of elements that nothing writes.
pub const GUARD: u16 = 0x5bad;

/// An open device with a stream and staging memory. `close` frees what it allocates.
pub struct Rank {
    pub backend: PluginBackend,
    pub stream: RawStream,
    staging: HostMemory,
    allocations: RefCell<Vec<RawAllocation>>,
}

/// Returns the backend's table.
pub fn tables() -> Tables {
    let table = match Vendor::of_role() {
        Vendor::Cuda => &raw const symmem_cuda::TABLE,
        Vendor::Hip => &raw const symmem_hip::TABLE,
    };
    // SAFETY: both tables are statics of this program.
    unsafe { Tables::read(table) }.unwrap()
}

impl Rank {
    pub fn open() -> Self {
        Self::open_at(0)
    }

    pub fn open_at(ordinal: u32) -> Self {
        let options = OpenOptions {
            size: size_of::<OpenOptions>() as u32,
            ordinal,
            rank: 0,
            local_world: 1,
            services: std::ptr::null(),
        };
        let backend = tables().open(&options).unwrap();
        let stream = backend.stream_create().unwrap();
        let staging = backend.host_allocate(1 << 20).unwrap();
        Self {
            backend,
            stream,
            staging,
            allocations: RefCell::default(),
        }
    }

    pub fn kind(&self) -> ShareKindCode {
        self.backend.capabilities().unwrap().share_kinds[0]
    }

    pub fn allocate(&self, bytes: u64) -> DeviceAddress {
        let memory = self.backend.allocate(self.kind(), bytes).unwrap();
        self.allocations.borrow_mut().push(memory.handle);
        memory.address
    }

    /// Returns memory with these numbers, `offset` bytes into an allocation.
    pub fn place(&self, numbers: &[u16], offset: u64) -> DeviceAddress {
        let address = self.allocate(numbers.len() as u64 * ELEMENT + offset);
        let address = DeviceAddress(address.0 + offset);
        self.write(address, numbers);
        address
    }

    pub fn write(&self, address: DeviceAddress, numbers: &[u16]) {
        let host = self.staging.host as *mut u16;
        assert!(numbers.len() as u64 * ELEMENT <= self.staging.bytes);
        // SAFETY: the backend's host memory is mapped for its length, and no stream uses it.
        unsafe { host.copy_from_nonoverlapping(numbers.as_ptr(), numbers.len()) };
        self.copy(address, self.staging.device, numbers.len());
    }

    pub fn read(&self, address: DeviceAddress, count: usize) -> Vec<u16> {
        self.copy(self.staging.device, address, count);
        let mut numbers = vec![0; count];
        let host = self.staging.host as *const u16;
        // SAFETY: the backend's host memory is mapped for its length, and no stream uses it.
        unsafe { host.copy_to_nonoverlapping(numbers.as_mut_ptr(), count) };
        numbers
    }

    pub fn copy(&self, to: DeviceAddress, from: DeviceAddress, count: usize) {
        let transfer = Transfer::by_engine(to, from, count as u64 * ELEMENT);
        // SAFETY: both ranges are live until the stream is drained below.
        unsafe { self.backend.transfer(&transfer, self.stream) }.unwrap();
        self.drain();
    }

    pub fn drain(&self) {
        let start = Instant::now();
        // SAFETY: the stream is live.
        while !unsafe { self.backend.stream_idle(self.stream) }.unwrap() {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "the stream does not end"
            );
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Captures `work` on the stream, launches the graph `times` times, and destroys it.
    pub fn replay(&self, times: usize, work: impl FnOnce(), mut between: impl FnMut(usize)) {
        let backend = &self.backend;
        // SAFETY: stream and graph are live until their last use.
        unsafe {
            backend.capture_begin(self.stream).unwrap();
            work();
            let graph = backend.capture_end(self.stream).unwrap();
            let graph = backend.graph_instantiate(graph).unwrap();
            for time in 0..times {
                between(time);
                backend.graph_launch(graph, self.stream).unwrap();
                self.drain();
            }
            backend.graph_destroy(graph).unwrap();
        }
    }

    /// Frees everything, the device last.
    pub fn close(self) {
        self.drain();
        // SAFETY: nothing is used any more.
        unsafe {
            for allocation in self.allocations.take() {
                self.backend.free(allocation).unwrap();
            }
            self.backend.host_free(self.staging).unwrap();
            self.backend.stream_destroy(self.stream).unwrap();
        }
    }
}
