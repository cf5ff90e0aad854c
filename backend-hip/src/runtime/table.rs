//! The functions of `libamdhip64.so` that this backend calls, as a table that is filled once.
//!
//! Required are functions that version 5.2 has and that everything needs. A comment on each group of optional ones
//! says what they are for. Memory addresses are numbers, as everywhere in this crate; C declares them as pointers.

use super::structs::{
    AccessDescription, AllocationProperties, ExternalBuffer, ExternalHandle, IpcHandle,
    MemoryLocation, Uuid,
};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// `hipError_t` as a plain number, since a newer runtime may return unknown values.
pub type Code = u32;
/// `hipStream_t`.
pub type Stream = *mut c_void;
/// `hipEvent_t`.
pub type Event = *mut c_void;
/// `hipGraph_t`.
pub type Graph = *mut c_void;
/// `hipGraphExec_t`.
pub type GraphExec = *mut c_void;
/// `hipModule_t`.
pub type Module = *mut c_void;
/// `hipFunction_t`.
pub type Function = *mut c_void;
/// `hipMemGenericAllocationHandle_t`: physical memory.
pub type Physical = *mut c_void;
/// `hipExternalMemory_t`.
pub type External = *mut c_void;

symmem_gpu::symbol_table! {
    /// Functions of the runtime.
    pub struct Table {
        required {
            hipInit(flags: c_uint) -> Code;
            hipDriverGetVersion(version: *mut c_int) -> Code;
            hipRuntimeGetVersion(version: *mut c_int) -> Code;
            hipGetErrorName(code: Code) -> *const c_char;
            hipGetErrorString(code: Code) -> *const c_char;
            hipGetLastError() -> Code;

            hipGetDeviceCount(count: *mut c_int) -> Code;
            hipGetDevice(device: *mut c_int) -> Code;
            hipSetDevice(device: c_int) -> Code;
            hipDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> Code;
            hipDeviceGetUuid(uuid: *mut Uuid, device: c_int) -> Code;
            hipDeviceTotalMem(bytes: *mut usize, device: c_int) -> Code;
            hipDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) -> Code;
            hipDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: c_int) -> Code;
            hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> Code;
            hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> Code;
            // Every version writes version 5's layout; see `structs`.
            hipGetDeviceProperties(properties: *mut c_void, device: c_int) -> Code;

            hipStreamCreateWithFlags(stream: *mut Stream, flags: c_uint) -> Code;
            hipStreamCreateWithPriority(stream: *mut Stream, flags: c_uint, priority: c_int) -> Code;
            hipStreamDestroy(stream: Stream) -> Code;
            hipStreamQuery(stream: Stream) -> Code;
            hipStreamSynchronize(stream: Stream) -> Code;
            hipStreamWaitEvent(stream: Stream, event: Event, flags: c_uint) -> Code;
            hipStreamIsCapturing(stream: Stream, status: *mut c_uint) -> Code;
            hipStreamBeginCapture(stream: Stream, mode: c_uint) -> Code;
            hipStreamEndCapture(stream: Stream, graph: *mut Graph) -> Code;
            hipGraphInstantiateWithFlags(executable: *mut GraphExec, graph: Graph, flags: u64) -> Code;
            hipGraphLaunch(executable: GraphExec, stream: Stream) -> Code;
            hipGraphExecDestroy(executable: GraphExec) -> Code;
            hipGraphDestroy(graph: Graph) -> Code;

            hipEventCreateWithFlags(event: *mut Event, flags: c_uint) -> Code;
            hipEventDestroy(event: Event) -> Code;
            hipEventRecord(event: Event, stream: Stream) -> Code;
            hipEventQuery(event: Event) -> Code;
            hipEventElapsedTime(milliseconds: *mut f32, start: Event, end: Event) -> Code;

            hipMemGetInfo(free: *mut usize, total: *mut usize) -> Code;
            hipMalloc(address: *mut u64, bytes: usize) -> Code;
            hipExtMallocWithFlags(address: *mut u64, bytes: usize, flags: c_uint) -> Code;
            hipFree(address: u64) -> Code;
            hipHostMalloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> Code;
            hipHostFree(pointer: *mut c_void) -> Code;
            hipHostGetDevicePointer(address: *mut u64, pointer: *mut c_void, flags: c_uint) -> Code;
            hipHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint) -> Code;
            hipHostUnregister(pointer: *mut c_void) -> Code;
            hipMemcpyAsync(destination: u64, source: u64, bytes: usize, kind: c_uint, stream: Stream) -> Code;
            hipMemcpy2DAsync(
                destination: u64, destination_stride: usize, source: u64, source_stride: usize,
                bytes: usize, rows: usize, kind: c_uint, stream: Stream,
            ) -> Code;
            hipMemsetD8Async(address: u64, value: u8, bytes: usize, stream: Stream) -> Code;
            hipPointerGetAttribute(value: *mut c_void, attribute: c_uint, address: u64) -> Code;
            hipMemGetAddressRange(base: *mut u64, bytes: *mut usize, address: u64) -> Code;

            hipIpcGetMemHandle(handle: *mut IpcHandle, address: u64) -> Code;
            hipIpcOpenMemHandle(address: *mut u64, handle: IpcHandle, flags: c_uint) -> Code;
            hipIpcCloseMemHandle(address: u64) -> Code;

            hipModuleLoadData(module: *mut Module, image: *const c_void) -> Code;
            hipModuleUnload(module: Module) -> Code;
            hipModuleGetFunction(function: *mut Function, module: Module, name: *const c_char) -> Code;
            hipFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: Function) -> Code;
            hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
                blocks: *mut c_int, function: Function, threads: c_int, shared_bytes: usize
            ) -> Code;
            hipModuleLaunchKernel(
                function: Function,
                grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
                block_x: c_uint, block_y: c_uint, block_z: c_uint,
                shared_bytes: c_uint, stream: Stream,
                parameters: *mut *mut c_void, extra: *mut *mut c_void,
            ) -> Code;
        }
        optional {
            // For the links in `symmem info`.
            hipExtGetLinkTypeAndHopCount(from: c_int, to: c_int, kind: *mut u32, hops: *mut u32) -> Code;
            // Virtual memory management, a second share kind for devices that support it.
            hipMemGetAllocationGranularity(
                bytes: *mut usize, properties: *const AllocationProperties, option: c_uint
            ) -> Code;
            hipMemCreate(
                physical: *mut Physical, bytes: usize, properties: *const AllocationProperties, flags: u64
            ) -> Code;
            hipMemRelease(physical: Physical) -> Code;
            hipMemRetainAllocationHandle(physical: *mut Physical, address: u64) -> Code;
            hipMemExportToShareableHandle(
                shareable: *mut c_void, physical: Physical, kind: c_uint, flags: u64
            ) -> Code;
            // Version 7.1 changed the meaning of `shareable`; see `memory/vmm.rs`.
            hipMemImportFromShareableHandle(
                physical: *mut Physical, shareable: *mut c_void, kind: c_uint
            ) -> Code;
            hipMemAddressReserve(
                address: *mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64
            ) -> Code;
            hipMemAddressFree(address: u64, bytes: usize) -> Code;
            hipMemMap(address: u64, bytes: usize, offset: usize, physical: Physical, flags: u64) -> Code;
            hipMemUnmap(address: u64, bytes: usize) -> Code;
            hipMemSetAccess(
                address: u64, bytes: usize, access: *const AccessDescription, count: usize
            ) -> Code;
            hipMemGetAccess(flags: *mut u64, location: *const MemoryLocation, address: u64) -> Code;
            // Address ranges as dma-bufs, the last share kind; the export is in 7.0 and newer.
            hipMemGetHandleForAddressRange(
                handle: *mut c_void, address: u64, bytes: usize, kind: c_uint, flags: u64
            ) -> Code;
            hipImportExternalMemory(external: *mut External, handle: *const ExternalHandle) -> Code;
            hipExternalMemoryGetMappedBuffer(
                address: *mut u64, external: External, buffer: *const ExternalBuffer
            ) -> Code;
            hipDestroyExternalMemory(external: External) -> Code;
        }
    }
}
