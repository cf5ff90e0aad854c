//! The functions of `libcuda.so.1` that this backend calls, as a table that is filled once.
//!
//! Names are the exported, versioned ones: a name without its suffix means what the caller's header defines.

use super::structs::{AccessDescription, AllocationProperties, LaunchConfiguration};
use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec,
    CUipcMemHandle, CUmemGenericAllocationHandle, CUmodule, CUstream, CUuuid,
};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// `CUresult` as a plain number. A driver newer than the binding returns values that the binding's enumeration
/// lacks, and holding such a value in the enumeration would be undefined behavior.
pub type Code = u32;

symmem_gpu::symbol_table! {
    /// Functions of the driver.
    pub struct Table {
        required {
            cuInit(flags: c_uint) -> Code;
            cuDriverGetVersion(version: *mut c_int) -> Code;
            cuGetErrorName(code: Code, text: *mut *const c_char) -> Code;
            cuGetErrorString(code: Code, text: *mut *const c_char) -> Code;

            cuDeviceGetCount(count: *mut c_int) -> Code;
            cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> Code;
            cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice) -> Code;
            cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> Code;
            cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> Code;
            cuDeviceGetAttribute(value: *mut c_int, attribute: u32, device: CUdevice) -> Code;
            cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: CUdevice) -> Code;
            cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) -> Code;

            cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> Code;
            cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> Code;
            cuCtxGetCurrent(context: *mut CUcontext) -> Code;
            cuCtxSetCurrent(context: CUcontext) -> Code;
            cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> Code;

            cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> Code;
            cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) -> Code;
            cuStreamDestroy_v2(stream: CUstream) -> Code;
            cuStreamQuery(stream: CUstream) -> Code;
            cuStreamSynchronize(stream: CUstream) -> Code;
            cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> Code;
            cuStreamIsCapturing(stream: CUstream, status: *mut u32) -> Code;
            cuStreamBeginCapture_v2(stream: CUstream, mode: u32) -> Code;
            cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> Code;
            cuGraphInstantiateWithFlags(executable: *mut CUgraphExec, graph: CUgraph, flags: u64) -> Code;
            cuGraphLaunch(executable: CUgraphExec, stream: CUstream) -> Code;
            cuGraphExecDestroy(executable: CUgraphExec) -> Code;
            cuGraphDestroy(graph: CUgraph) -> Code;

            cuEventCreate(event: *mut CUevent, flags: c_uint) -> Code;
            cuEventDestroy_v2(event: CUevent) -> Code;
            cuEventRecord(event: CUevent, stream: CUstream) -> Code;
            cuEventQuery(event: CUevent) -> Code;
            cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> Code;

            cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code;
            cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> Code;
            cuMemFree_v2(address: CUdeviceptr) -> Code;
            cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> Code;
            cuMemFreeHost(pointer: *mut c_void) -> Code;
            cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint) -> Code;
            cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) -> Code;
            cuMemHostUnregister(pointer: *mut c_void) -> Code;
            cuMemcpyAsync(destination: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream) -> Code;
            cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Code;
            cuMemsetD8Async(address: CUdeviceptr, value: u8, bytes: usize, stream: CUstream) -> Code;

            cuPointerGetAttribute(value: *mut c_void, attribute: u32, address: CUdeviceptr) -> Code;
            cuPointerGetAttributes(count: c_uint, attributes: *const u32, values: *const *mut c_void, address: CUdeviceptr) -> Code;
            cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr) -> Code;

            cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const AllocationProperties, option: u32) -> Code;
            cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const AllocationProperties, flags: u64) -> Code;
            cuMemRelease(handle: CUmemGenericAllocationHandle) -> Code;
            cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void) -> Code;
            cuMemExportToShareableHandle(shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: u32, flags: u64) -> Code;
            cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, shareable: *mut c_void, kind: u32) -> Code;
            cuMemAddressReserve(address: *mut CUdeviceptr, bytes: usize, alignment: usize, hint: CUdeviceptr, flags: u64) -> Code;
            cuMemAddressFree(address: CUdeviceptr, bytes: usize) -> Code;
            cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64) -> Code;
            cuMemUnmap(address: CUdeviceptr, bytes: usize) -> Code;
            cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: *const AccessDescription, count: usize) -> Code;

            cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr) -> Code;
            cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> Code;
            cuIpcCloseMemHandle(address: CUdeviceptr) -> Code;

            cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut u32, values: *mut *mut c_void) -> Code;
            cuModuleUnload(module: CUmodule) -> Code;
            cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> Code;
            cuFuncGetAttribute(value: *mut c_int, attribute: u32, function: CUfunction) -> Code;
            cuFuncSetAttribute(function: CUfunction, attribute: u32, value: c_int) -> Code;
            cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: CUfunction, threads: c_int, shared_bytes: usize) -> Code;
            cuLaunchKernel(
                function: CUfunction,
                grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
                block_x: c_uint, block_y: c_uint, block_z: c_uint,
                shared_bytes: c_uint, stream: CUstream,
                parameters: *mut *mut c_void, extra: *mut *mut c_void
            ) -> Code;
        }
        optional {
            // From CUDA 11.7 on; usable only if the device supports stream memory operations.
            cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) -> Code;
            cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) -> Code;
            // From CUDA 11.8 on.
            cuLaunchKernelEx(
                configuration: *const LaunchConfiguration,
                function: CUfunction,
                parameters: *mut *mut c_void,
                extra: *mut *mut c_void
            ) -> Code;
            cuOccupancyMaxActiveClusters(
                clusters: *mut c_int,
                function: CUfunction,
                configuration: *const LaunchConfiguration
            ) -> Code;
            // From CUDA 12.0 on.
            cuTensorMapEncodeTiled(
                map: *mut c_void,
                data_type: u32,
                rank: u32,
                address: *mut c_void,
                sizes: *const u64,
                strides: *const u64,
                boxes: *const u32,
                steps: *const u32,
                interleave: u32,
                swizzle: u32,
                promotion: u32,
                fill: u32
            ) -> Code;
            // From CUDA 12.4 on; older drivers load a function when it is looked up.
            cuFuncLoad(function: CUfunction) -> Code;
            cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule) -> Code;
            cuModuleEnumerateFunctions(functions: *mut CUfunction, count: c_uint, module: CUmodule) -> Code;
            // From CUDA 12.4 on.
            cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) -> Code;
        }
    }
}
