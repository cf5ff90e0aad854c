//! The type that implements the whole contract for an open GPU.

use crate::gpu::Gpu;
use std::mem::MaybeUninit;
use std::ops::Deref;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Device, Multicast};

/// An open GPU with all traits of the contract: [`Device`] and [`Multicast`] forward to the vendor's type, and
/// this crate implements the others. A wrapper, because the orphan rule forbids implementing core's traits for
/// every `G: Gpu`.
pub struct OpenGpu<G>(pub G);

impl<G> Deref for OpenGpu<G> {
    type Target = G;

    #[inline]
    fn deref(&self) -> &G {
        &self.0
    }
}

/// Implements a trait by forwarding every method to the wrapped type.
macro_rules! forward {
    ($trait:ident { $( [$($safety:tt)*] fn $name:ident($($argument:ident: $type:ty),*) -> $return:ty; )* }) => {
        impl<G: Gpu> $trait for OpenGpu<G> {
            $(
                #[inline]
                $($safety)* fn $name(&self, $($argument: $type),*) -> CallResult<$return> {
                    // SAFETY: the caller upholds this method's contract, which is that of the wrapped type's method.
                    #[allow(unused_unsafe, reason = "some methods are safe")]
                    unsafe { self.0.$name($($argument),*) }
                }
            )*
        }
    };
}

/// Priority of urgent streams. Lower numbers are more urgent; both vendors take their most urgent for those beyond their
/// range.
pub const MOST_URGENT: i32 = -16;

forward! {
    Device {
        [] fn capabilities() -> Capabilities;
        [] fn description() -> DeviceDescription;
        [] fn memory_information() -> MemoryInformation;
        [] fn stream_create() -> RawStream;
        [] fn stream_create_urgent() -> RawStream;
        [unsafe] fn stream_destroy(stream: RawStream) -> ();
        [unsafe] fn stream_idle(stream: RawStream) -> bool;
        [unsafe] fn stream_wait_event(stream: RawStream, event: RawEvent) -> ();
        [unsafe] fn stream_capturing(stream: RawStream) -> bool;
        [] fn event_create() -> RawEvent;
        [unsafe] fn event_destroy(event: RawEvent) -> ();
        [unsafe] fn event_record(event: RawEvent, stream: RawStream) -> ();
        [unsafe] fn event_done(event: RawEvent) -> bool;
        [unsafe] fn event_elapsed(start: RawEvent, end: RawEvent) -> u64;
        [unsafe] fn capture_begin(stream: RawStream) -> ();
        [unsafe] fn capture_end(stream: RawStream) -> RawGraph;
        [unsafe] fn graph_instantiate(graph: RawGraph) -> RawGraphExec;
        [unsafe] fn graph_launch(graph: RawGraphExec, stream: RawStream) -> ();
        [unsafe] fn graph_destroy(graph: RawGraphExec) -> ();
        [] fn host_allocate(bytes: u64) -> HostMemory;
        [unsafe] fn host_free(memory: HostMemory) -> ();
        [unsafe] fn host_register(pointer: u64, bytes: u64) -> HostMemory;
        [unsafe] fn host_unregister(pointer: u64) -> ();
        [unsafe] fn memory_set(destination: DeviceAddress, value: u8, bytes: u64, stream: RawStream) -> ();
        [unsafe] fn module_load(image: &[u8]) -> RawModule;
        [unsafe] fn module_unload(module: RawModule) -> ();
        [unsafe] fn module_function(module: RawModule, name: &str) -> RawFunction;
        [unsafe] fn function_parameter_bytes(function: RawFunction) -> Option<u64>;
        [] fn builtin_function(name: &str) -> RawFunction;
        [unsafe] fn launch(function: RawFunction, geometry: &Geometry, arguments: &[MaybeUninit<u8>], stream: RawStream) -> ();
        [] fn check_memory(address: DeviceAddress, bytes: u64) -> ();
    }
}

forward! {
    Multicast {
        [] fn multicast_support() -> MulticastSupportCode;
        [] fn multicast_granularity(devices: u32, bytes: u64) -> u64;
        [] fn multicast_create(devices: u32, bytes: u64) -> RawMulticast;
        [unsafe] fn multicast_export(multicast: RawMulticast) -> ExportedHandle;
        [unsafe] fn multicast_import(handle: &ExportedHandle) -> RawMulticast;
        [unsafe] fn multicast_join(multicast: RawMulticast) -> ();
        [unsafe] fn multicast_bind(multicast: RawMulticast, offset: u64, allocation: RawAllocation, bytes: u64) -> ();
        [unsafe] fn multicast_map(multicast: RawMulticast) -> DeviceAddress;
        [unsafe] fn multicast_unmap(multicast: RawMulticast) -> ();
        [unsafe] fn multicast_unbind(multicast: RawMulticast, offset: u64, bytes: u64) -> ();
        [unsafe] fn multicast_release(multicast: RawMulticast) -> ();
    }
}
