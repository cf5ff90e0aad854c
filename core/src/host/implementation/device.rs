//! Streams, events, graphs and host memory. The host backend cannot load or launch device code.

use crate::backend::abi::*;
use crate::backend::{CallResult, Device, Failure};
use crate::host::backend::HostBackend;
use crate::host::segments::{check_mapped, page_size};
use crate::host::stream::{Event, Operation, Recording, Stream};
use crate::host::{handle, machine};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::MaybeUninit;
use std::sync::{Arc, Weak};

fn no_device_code<T>(call: &str) -> CallResult<T> {
    Err(Failure::new(
        Status::UNSUPPORTED,
        call,
        "the host backend cannot run device code; use transfers, signals and barriers, or a GPU backend",
    ))
}

fn page_layout(bytes: u64, call: &str) -> CallResult<Layout> {
    let invalid = || {
        Failure::new(
            Status::INVALID_ARGUMENT,
            call,
            format!(
                "{bytes} bytes of host memory cannot be allocated; ask for at least 1 byte, and less than the \
                address space"
            ),
        )
    };
    let size = usize::try_from(bytes).map_err(|_| invalid())?;
    let layout = Layout::from_size_align(size, page_size() as usize);
    layout.ok().filter(|_| size > 0).ok_or_else(invalid)
}

/// Returns the transfer table: one row, because the initiator's processor makes every copy.
fn transfer_rows() -> [TransferRow; 8] {
    let mut rows = [TransferRow::default(); 8];
    rows[0] = TransferRow {
        bytes: u64::MAX,
        method: MethodCode::VECTOR,
        blocks: 1,
        threads: 128,
        ..TransferRow::default()
    };
    rows
}

impl Device for HostBackend {
    fn capabilities(&self) -> CallResult<Capabilities> {
        let mut share_kinds = [ShareKindCode::default(); 4];
        share_kinds[0] = ShareKindCode::MEMORY_FILE;
        Ok(Capabilities {
            flags: CAPABILITY_GRAPHS | CAPABILITY_STREAM_WAIT,
            share_kinds,
            share_granularity: page_size(),
            shared_memory_per_block: 0,
            fanout: 1,
            put_rows: transfer_rows(),
            get_rows: transfer_rows(),
            driver_version: 0,
            reduce_inbox_bytes: 0,
        })
    }

    fn description(&self) -> CallResult<DeviceDescription> {
        Ok(machine::describe())
    }

    fn memory_information(&self) -> CallResult<MemoryInformation> {
        machine::memory()
    }

    fn stream_create(&self) -> CallResult<RawStream> {
        Ok(RawStream(handle::give_shared(Stream::new(self.policy))))
    }

    /// Streams of the host share nothing.
    fn stream_create_urgent(&self) -> CallResult<RawStream> {
        self.stream_create()
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> CallResult<()> {
        // SAFETY: the caller gives up a stream that `stream_create` returned. Its thread, if there is one, holds a
        // count.
        let stream = unsafe { handle::take_shared::<Stream>(stream.0, "stream_destroy")? };
        stream.close();
        Ok(())
    }

    unsafe fn stream_idle(&self, stream: RawStream) -> CallResult<bool> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "stream_idle")? };
        stream.refuse_capture("stream_idle", "its work is not run; end the capture first")?;
        Ok(stream.poll())
    }

    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> CallResult<()> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "stream_wait_event")? };
        // SAFETY: the caller passes a live event.
        let event = unsafe { handle::borrow_shared::<Event>(event.0, "stream_wait_event")? };
        let number = event.last();
        // SAFETY: the operation owns a count of its event and uses no other memory.
        unsafe { stream.submit(Operation::WaitEvent(Arc::clone(&event), number)) }
    }

    unsafe fn stream_capturing(&self, stream: RawStream) -> CallResult<bool> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "stream_capturing")? };
        Ok(stream.is_capturing())
    }

    fn event_create(&self) -> CallResult<RawEvent> {
        let event = Arc::new(Event::new(self.origin));
        Ok(RawEvent(handle::give_shared(event)))
    }

    unsafe fn event_destroy(&self, event: RawEvent) -> CallResult<()> {
        // SAFETY: the caller gives up an event that `event_create` returned. Queued work holds its own counts.
        drop(unsafe { handle::take_shared::<Event>(event.0, "event_destroy")? });
        Ok(())
    }

    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> CallResult<()> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "event_record")? };
        // SAFETY: the caller passes a live event.
        let event = unsafe { handle::borrow_shared::<Event>(event.0, "event_record")? };
        let number = (!stream.is_capturing()).then(|| event.number());
        let operation = Operation::Record(Arc::clone(&event), number);
        // SAFETY: the operation owns a count of its event and uses no other memory.
        unsafe { stream.submit(operation)? };
        if !event.is_reached() {
            let queue: Weak<Stream> = Arc::downgrade(&stream);
            event.set_recorder(queue);
        }
        Ok(())
    }

    unsafe fn event_done(&self, event: RawEvent) -> CallResult<bool> {
        // SAFETY: the caller passes a live event.
        let event = unsafe { handle::borrow_shared::<Event>(event.0, "event_done")? };
        Ok(event.done())
    }

    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> CallResult<u64> {
        // SAFETY: the caller passes two live events.
        let (start, end) = unsafe {
            (
                handle::borrow_shared::<Event>(start.0, "event_elapsed")?,
                handle::borrow_shared::<Event>(end.0, "event_elapsed")?,
            )
        };
        end.since(&start)
    }

    unsafe fn capture_begin(&self, stream: RawStream) -> CallResult<()> {
        if stream == RawStream::NULL {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "capture_begin",
                "the null stream cannot be captured; create a stream",
            ));
        }
        // SAFETY: the caller passes a live stream.
        unsafe { self.stream(stream, "capture_begin")? }.begin_capture()
    }

    unsafe fn capture_end(&self, stream: RawStream) -> CallResult<RawGraph> {
        // SAFETY: the caller passes a live stream.
        let recording = unsafe { self.stream(stream, "capture_end")? }.end_capture()?;
        Ok(RawGraph(handle::give_shared(Arc::new(recording))))
    }

    unsafe fn graph_instantiate(&self, graph: RawGraph) -> CallResult<RawGraphExec> {
        // SAFETY: the caller gives up a graph that `capture_end` returned. A recording needs no instantiation.
        let recording = unsafe { handle::take_shared::<Recording>(graph.0, "graph_instantiate")? };
        Ok(RawGraphExec(handle::give_shared(recording)))
    }

    unsafe fn graph_launch(&self, graph: RawGraphExec, stream: RawStream) -> CallResult<()> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "graph_launch")? };
        // SAFETY: the caller passes a live graph.
        let recording = unsafe { handle::borrow_shared::<Recording>(graph.0, "graph_launch")? };
        // SAFETY: the caller keeps all memory in the recording live until the stream has passed this point.
        unsafe { stream.submit(Operation::Replay(Arc::clone(&recording))) }
    }

    unsafe fn graph_destroy(&self, graph: RawGraphExec) -> CallResult<()> {
        // SAFETY: the caller gives up a graph that `graph_instantiate` returned.
        drop(unsafe { handle::take_shared::<Recording>(graph.0, "graph_destroy")? });
        Ok(())
    }

    fn host_allocate(&self, bytes: u64) -> CallResult<HostMemory> {
        let layout = page_layout(bytes, "host_allocate")?;
        // SAFETY: the layout's size is not 0.
        let pointer = unsafe { alloc_zeroed(layout) };
        if pointer.is_null() {
            return Err(Failure::new(
                Status::OUT_OF_MEMORY,
                "host_allocate",
                format!("{bytes} bytes of host memory are not available; allocate less"),
            ));
        }
        let host = pointer.expose_provenance() as u64;
        Ok(HostMemory {
            host,
            device: DeviceAddress(host),
            bytes,
        })
    }

    unsafe fn host_free(&self, memory: HostMemory) -> CallResult<()> {
        let layout = page_layout(memory.bytes, "host_free")?;
        let pointer = std::ptr::with_exposed_provenance_mut(memory.host as usize);
        // SAFETY: the caller gives back memory that `host_allocate` returned, with this layout.
        unsafe { dealloc(pointer, layout) };
        Ok(())
    }

    unsafe fn host_register(&self, pointer: u64, bytes: u64) -> CallResult<HostMemory> {
        if !pointer.is_multiple_of(page_size()) || pointer == 0 || bytes == 0 {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "host_register",
                format!(
                    "{bytes} bytes at {pointer:#x} cannot be registered; pass at least 1 byte at a multiple of the \
                     page size, {} bytes",
                    page_size()
                ),
            ));
        }
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
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "memory_set")? };
        let operation = Operation::Fill {
            destination,
            value,
            bytes,
        };
        // SAFETY: the caller keeps the range live until the stream has passed this point.
        unsafe { stream.submit(operation) }
    }

    unsafe fn module_load(&self, _image: &[u8]) -> CallResult<RawModule> {
        no_device_code("module_load")
    }

    fn check_memory(&self, address: DeviceAddress, bytes: u64) -> CallResult<()> {
        check_mapped(address, bytes)
    }

    unsafe fn module_unload(&self, _module: RawModule) -> CallResult<()> {
        no_device_code("module_unload")
    }

    unsafe fn module_function(&self, _module: RawModule, _name: &str) -> CallResult<RawFunction> {
        no_device_code("module_function")
    }

    unsafe fn function_parameter_bytes(&self, _function: RawFunction) -> CallResult<Option<u64>> {
        no_device_code("function_parameter_bytes")
    }

    fn builtin_function(&self, _name: &str) -> CallResult<RawFunction> {
        no_device_code("builtin_function")
    }

    unsafe fn launch(
        &self,
        _function: RawFunction,
        _geometry: &Geometry,
        _arguments: &[MaybeUninit<u8>],
        _stream: RawStream,
    ) -> CallResult<()> {
        no_device_code("launch")
    }
}
