//! Ranks of one process over the backend's table, which release everything at the end.

use std::time::{Duration, Instant};
use symmem_core::backend::abi::*;
use symmem_core::backend::{
    CallResult, Device, Failure, PluginBackend, RemoteAccess, SymmetricMemory, Tables,
    WorldWritable, load,
};

/// Variable with a plugin file to use instead of the linked backend.
pub const PLUGIN: &str = "SYMMEM_TEST_PLUGIN";

type Undo = Box<dyn FnOnce(&[PluginBackend]) -> CallResult<()>>;

/// Returns the backend's tables: linked, or of the plugin file that the environment names.
pub fn tables() -> Tables {
    if let Some(path) = std::env::var_os(PLUGIN) {
        // SAFETY: the parent built this file from the same source.
        let loaded = unsafe { load(path.as_ref(), "cuda", WorldWritable::Allow) };
        return loaded.expect("a plugin");
    }
    // SAFETY: the table is a static of this program.
    unsafe { Tables::read(&raw const symmem_cuda::TABLE) }.expect("a table of this build")
}

/// Options to open a device.
pub fn options(ordinal: u32) -> OpenOptions {
    OpenOptions {
        size: size_of::<OpenOptions>() as u32,
        ordinal,
        rank: ordinal,
        local_world: 2,
        services: std::ptr::null(),
    }
}

/// Open devices, and how to release what was made on them, newest first.
pub struct World {
    pub ranks: Vec<PluginBackend>,
    streams: Vec<(usize, RawStream)>,
    undo: Vec<Undo>,
}

impl World {
    /// Opens devices; ranks count from 0, independent of the devices' ordinals.
    pub fn open(ordinals: std::ops::Range<u32>) -> CallResult<Self> {
        let tables = tables();
        tables.device_count()?;
        let mut ranks = Vec::new();
        for ordinal in ordinals {
            tables.describe_device(ordinal)?;
            ranks.push(tables.open(&options(ordinal))?);
        }
        Ok(Self {
            ranks,
            streams: Vec::new(),
            undo: Vec::new(),
        })
    }

    fn later(&mut self, undo: impl FnOnce(&[PluginBackend]) -> CallResult<()> + 'static) {
        self.undo.push(Box::new(undo));
    }

    pub fn stream(&mut self, rank: usize) -> CallResult<RawStream> {
        let stream = self.ranks[rank].stream_create()?;
        self.streams.push((rank, stream));
        // SAFETY: released once, after its work has ended.
        self.later(move |ranks| unsafe { ranks[rank].stream_destroy(stream) });
        Ok(stream)
    }

    pub fn event(&mut self, rank: usize) -> CallResult<RawEvent> {
        let event = self.ranks[rank].event_create()?;
        // SAFETY: released once, after the streams' work has ended.
        self.later(move |ranks| unsafe { ranks[rank].event_destroy(event) });
        Ok(event)
    }

    pub fn host(&mut self, rank: usize, bytes: u64) -> CallResult<HostMemory> {
        let memory = self.ranks[rank].host_allocate(bytes)?;
        // SAFETY: released once, after the streams' work has ended.
        self.later(move |ranks| unsafe { ranks[rank].host_free(memory) });
        Ok(memory)
    }

    pub fn host_register(
        &mut self,
        rank: usize,
        pointer: u64,
        bytes: u64,
    ) -> CallResult<HostMemory> {
        // SAFETY: callers keep this memory mapped until the process ends.
        let memory = unsafe { self.ranks[rank].host_register(pointer, bytes) }?;
        // SAFETY: released once, after the streams' work has ended.
        self.later(move |ranks| unsafe { ranks[rank].host_unregister(pointer) });
        Ok(memory)
    }

    pub fn allocate(
        &mut self,
        rank: usize,
        kind: ShareKindCode,
        bytes: u64,
    ) -> CallResult<SharedAllocation> {
        let allocation = self.ranks[rank].allocate(kind, bytes)?;
        // SAFETY: released once, after the streams' work, and after the peers' mappings, which are newer.
        self.later(move |ranks| unsafe { ranks[rank].free(allocation.handle) });
        Ok(allocation)
    }

    pub fn register(
        &mut self,
        rank: usize,
        kind: ShareKindCode,
        address: u64,
        bytes: u64,
    ) -> CallResult<SharedAllocation> {
        // SAFETY: callers register older memory, which is freed later.
        let allocation = unsafe { self.ranks[rank].register(kind, DeviceAddress(address), bytes) }?;
        // SAFETY: released once.
        self.later(move |ranks| unsafe { ranks[rank].free(allocation.handle) });
        Ok(allocation)
    }

    /// Maps a rank's allocation at another rank, and closes the descriptor in between.
    pub fn map(
        &mut self,
        owner: usize,
        allocation: RawAllocation,
        at: usize,
    ) -> CallResult<SharedMapping> {
        // SAFETY: the allocation is live.
        let handle = unsafe { self.ranks[owner].export(allocation) }?;
        // SAFETY: the handle was exported just now, and the allocation outlives the mapping.
        let mapping = unsafe { self.ranks[at].import(&handle) };
        close(&handle);
        let mapping = mapping?;
        // SAFETY: released once, after the streams' work has ended.
        self.later(move |ranks| unsafe { ranks[at].unmap(mapping.handle) });
        Ok(mapping)
    }

    pub fn graph(&mut self, rank: usize, graph: RawGraph) -> CallResult<RawGraphExec> {
        // SAFETY: the graph was captured just now, and is consumed here.
        let executable = unsafe { self.ranks[rank].graph_instantiate(graph) }?;
        // SAFETY: released once, after the streams' work has ended.
        self.later(move |ranks| unsafe { ranks[rank].graph_destroy(executable) });
        Ok(executable)
    }

    pub fn module(&mut self, rank: usize, code: &[u8]) -> CallResult<RawModule> {
        // SAFETY: the code is the tests' own, and safe to run.
        let module = unsafe { self.ranks[rank].module_load(code) }?;
        // SAFETY: released once, after the streams' work has ended.
        self.later(move |ranks| unsafe { ranks[rank].module_unload(module) });
        Ok(module)
    }

    /// Copies bytes by the copy engine.
    pub fn copy(
        &self,
        rank: usize,
        to: u64,
        from: u64,
        bytes: u64,
        on: RawStream,
    ) -> CallResult<()> {
        let transfer = Transfer {
            destination: DeviceAddress(to),
            source: DeviceAddress(from),
            bytes,
            row: TransferRow {
                method: MethodCode::COPY_ENGINE,
                ..TransferRow::default()
            },
            ..Transfer::default()
        };
        // SAFETY: callers pass live memory, and wait before they release it.
        unsafe { self.ranks[rank].transfer(&transfer, on) }
    }

    /// Waits until a stream's work has ended.
    pub fn drain(&self, rank: usize, stream: RawStream) -> CallResult<()> {
        drain(&self.ranks[rank], stream)
    }

    /// Waits for all streams, releases everything but the open devices, and returns the first failure.
    pub fn give_back(&mut self) -> CallResult<()> {
        let mut result = Ok(());
        for (rank, stream) in self.streams.drain(..) {
            // Once more if the query failed: work must have ended before its memory is freed.
            let backend = &self.ranks[rank];
            let drained = drain(backend, stream);
            result =
                result.and(drained.or_else(|failure| drain(backend, stream).and(Err(failure))));
        }
        while let Some(undo) = self.undo.pop() {
            result = result.and(undo(&self.ranks));
        }
        result
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.give_back();
    }
}

/// Closes the descriptor of a handle, if it has one.
pub fn close(handle: &ExportedHandle) {
    use std::os::fd::FromRawFd;
    if handle.descriptor >= 0 {
        // SAFETY: the handle's owner owns the descriptor, which is closed once.
        drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(handle.descriptor) });
    }
}

/// Waits until a stream's work has ended.
pub fn drain(backend: &PluginBackend, stream: RawStream) -> CallResult<()> {
    let start = Instant::now();
    // SAFETY: the stream is live.
    while !unsafe { backend.stream_idle(stream) }? {
        if start.elapsed() > Duration::from_secs(20) {
            return Err(Failure::new(
                Status::CALL_FAILED,
                "drain",
                "the stream does not end",
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Returns the contents of host memory.
pub fn read(memory: &HostMemory) -> Vec<u8> {
    let mut bytes = vec![0; memory.bytes as usize];
    // SAFETY: the backend maps host memory for its whole length, and tests read it while no stream uses it.
    unsafe { (memory.host as *const u8).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

/// Fills host memory; `byte` gets each byte's index.
pub fn write(memory: &HostMemory, byte: impl Fn(usize) -> u8) {
    let bytes: Vec<u8> = (0..memory.bytes as usize).map(byte).collect();
    // SAFETY: as in `read`.
    unsafe { (memory.host as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}
