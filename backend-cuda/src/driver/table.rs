//! The entry points of `libcuda.so.1` that this backend calls, as a table filled once.
//!
//! Names are the exported, versioned ones: what a name without its suffix means depends on the
//! header that a caller was compiled with.

use super::structs::{AccessDescription, AllocationProperties, LaunchConfiguration};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUipcMemHandle,
    CUmemGenericAllocationHandle, CUmodule, CUstream, CUuuid,
};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use symmem_core::backend::library::Library;

/// `CUresult` as the plain number it is: a driver newer than the binding returns numbers that the
/// binding's enumeration lacks, and an enumeration holding one would be undefined behaviour.
pub type Code = u32;

macro_rules! table {
    (
        required { $( $required:ident($($argument:ident: $type:ty),*); )* }
        optional { $( $optional:ident($($other:ident: $other_type:ty),*); )* }
    ) => {
        /// The driver's functions.
        #[allow(non_snake_case, missing_docs, reason = "named as the driver names them")]
        pub struct Table {
            $( pub $required: unsafe extern "C" fn($($argument: $type),*) -> Code, )*
            $( pub $optional: Option<unsafe extern "C" fn($($other: $other_type),*) -> Code>, )*
        }

        impl Table {
            /// Names that an older driver may lack.
            pub const OPTIONAL: &[&str] = &[$( stringify!($optional) ),*];

            /// Looks every symbol up.
            ///
            /// # Errors
            /// The required symbol that is missing.
            ///
            /// # Safety
            /// The library is NVIDIA's driver, or behaves as it does.
            pub unsafe fn load(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $( $required: {
                        let address = find(library, concat!(stringify!($required), "\0"))
                            .ok_or(stringify!($required))?;
                        // SAFETY: by the caller's word the symbol is the driver's function of this
                        // name, whose signature cuda.h fixes for all versions.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) -> Code,
                            >(address)
                        }
                    }, )*
                    $( $optional: find(library, concat!(stringify!($optional), "\0")).map(
                        // SAFETY: as above.
                        |address| unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($other_type),*) -> Code,
                            >(address)
                        },
                    ), )*
                })
            }

            /// Optional symbols that this driver lacks.
            pub fn missing(&self) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $( if self.$optional.is_none() { missing.push(stringify!($optional)); } )*
                missing
            }
        }
    };
}

fn find(library: &Library, name: &'static str) -> Option<*mut c_void> {
    library.symbol(CStr::from_bytes_with_nul(name.as_bytes()).ok()?)
}

table! {
    required {
        cuInit(flags: c_uint);
        cuDriverGetVersion(version: *mut c_int);
        cuGetErrorName(code: Code, text: *mut *const c_char);
        cuGetErrorString(code: Code, text: *mut *const c_char);

        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
        cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
        cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
        cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
        cuDeviceGetAttribute(value: *mut c_int, attribute: u32, device: CUdevice);
        cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: CUdevice);
        cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);

        cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
        cuDevicePrimaryCtxRelease_v2(device: CUdevice);
        cuCtxGetCurrent(context: *mut CUcontext);
        cuCtxSetCurrent(context: CUcontext);
        cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);

        cuStreamCreate(stream: *mut CUstream, flags: c_uint);
        cuStreamDestroy_v2(stream: CUstream);
        cuStreamQuery(stream: CUstream);
        cuStreamSynchronize(stream: CUstream);
        cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        cuStreamIsCapturing(stream: CUstream, status: *mut u32);
        cuStreamBeginCapture_v2(stream: CUstream, mode: u32);
        cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
        cuGraphInstantiateWithFlags(executable: *mut CUgraphExec, graph: CUgraph, flags: u64);
        cuGraphLaunch(executable: CUgraphExec, stream: CUstream);
        cuGraphExecDestroy(executable: CUgraphExec);
        cuGraphDestroy(graph: CUgraph);

        cuEventCreate(event: *mut CUevent, flags: c_uint);
        cuEventDestroy_v2(event: CUevent);
        cuEventRecord(event: CUevent, stream: CUstream);
        cuEventQuery(event: CUevent);
        cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);

        cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
        cuMemFree_v2(address: CUdeviceptr);
        cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        cuMemFreeHost(pointer: *mut c_void);
        cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint);
        cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint);
        cuMemHostUnregister(pointer: *mut c_void);
        cuMemcpyAsync(destination: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream);
        cuMemsetD8Async(address: CUdeviceptr, value: u8, bytes: usize, stream: CUstream);

        cuPointerGetAttribute(value: *mut c_void, attribute: u32, address: CUdeviceptr);
        cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr);

        cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const AllocationProperties, option: u32);
        cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const AllocationProperties, flags: u64);
        cuMemRelease(handle: CUmemGenericAllocationHandle);
        cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void);
        cuMemExportToShareableHandle(shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: u32, flags: u64);
        cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, shareable: *mut c_void, kind: u32);
        cuMemAddressReserve(address: *mut CUdeviceptr, bytes: usize, alignment: usize, hint: CUdeviceptr, flags: u64);
        cuMemAddressFree(address: CUdeviceptr, bytes: usize);
        cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64);
        cuMemUnmap(address: CUdeviceptr, bytes: usize);
        cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: *const AccessDescription, count: usize);

        cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr);
        cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint);
        cuIpcCloseMemHandle(address: CUdeviceptr);

        cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut u32, values: *mut *mut c_void);
        cuModuleUnload(module: CUmodule);
        cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        cuFuncGetAttribute(value: *mut c_int, attribute: u32, function: CUfunction);
        cuFuncSetAttribute(function: CUfunction, attribute: u32, value: c_int);
        cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: CUfunction, threads: c_int, shared_bytes: usize);
        cuLaunchKernel(
            function: CUfunction,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: CUstream,
            parameters: *mut *mut c_void, extra: *mut *mut c_void
        );
    }
    optional {
        // From CUDA 11.7 on, and only of use where the device allows stream memory operations.
        cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint);
        cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint);
        // From CUDA 11.8 on.
        cuLaunchKernelEx(
            configuration: *const LaunchConfiguration,
            function: CUfunction,
            parameters: *mut *mut c_void,
            extra: *mut *mut c_void
        );
        // From CUDA 12.4 on; older drivers load a function when it is looked up.
        cuFuncLoad(function: CUfunction);
        cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule);
        cuModuleEnumerateFunctions(functions: *mut CUfunction, count: c_uint, module: CUmodule);
    }
}
