//! Names of errors, and look-ups of the driver's functions.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::LazyLock;

use fake_device::api;
use fake_device::call::{looked_up, put, put_optional};
use fake_device::error::{Code, Result};

macro_rules! symbols {
    ($($module:ident: $($name:ident)+;)+) => {
        /// Every exported function of the driver, by its exported name.
        pub const NAMES: &[&str] = &[$($(stringify!($name),)+)+];

        fn address(name: &str) -> Option<usize> {
            match name {
                $($(stringify!($name) => Some(crate::$module::$name as *const () as usize),)+)+
                _ => None,
            }
        }
    };
}
symbols! {
    devices: cuInit cuDriverGetVersion cuDeviceGet cuDeviceGetCount cuDeviceGetUuid cuDeviceGetUuid_v2
        cuDeviceGetAttribute cuDeviceTotalMem_v2 cuDeviceCanAccessPeer cuDeviceGetP2PAttribute
        cuDeviceGetName cuDeviceGetPCIBusId;
    contexts: cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
        cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxGetState cuCtxSetCurrent cuCtxGetCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent_v2
        cuCtxGetDevice cuCtxGetStreamPriorityRange cuCtxSynchronize cuCtxEnablePeerAccess
        cuCtxDisablePeerAccess;
    allocations: cuMemGetInfo_v2 cuMemAlloc_v2 cuMemFree_v2 cuMemHostAlloc cuMemFreeHost
        cuMemHostGetDevicePointer_v2 cuMemHostGetFlags cuMemHostRegister_v2 cuMemHostUnregister
        cuMemGetAddressRange_v2 cuPointerGetAttribute cuPointerGetAttributes;
    vmm: cuMemGetAllocationGranularity cuMemCreate cuMemRelease cuMemRetainAllocationHandle
        cuMemGetAllocationPropertiesFromHandle cuMemExportToShareableHandle cuMemImportFromShareableHandle
        cuMemAddressReserve cuMemAddressFree cuMemMap cuMemUnmap cuMemSetAccess cuMemGetAccess;
    multicast: cuMulticastCreate cuMulticastAddDevice cuMulticastBindMem cuMulticastBindAddr
        cuMulticastUnbind cuMulticastGetGranularity;
    ipc: cuIpcGetMemHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle;
    streams: cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamGetCtx cuStreamQuery
        cuStreamSynchronize cuStreamWriteValue32 cuStreamWriteValue32_v2 cuStreamWaitValue32
        cuStreamWaitValue32_v2;
    events: cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventQuery cuEventSynchronize
        cuEventElapsedTime cuEventElapsedTime_v2 cuStreamWaitEvent;
    capture: cuStreamBeginCapture_v2 cuStreamEndCapture cuStreamIsCapturing cuStreamGetCaptureInfo;
    graphs: cuGraphInstantiateWithFlags cuGraphUpload cuGraphLaunch cuGraphExecDestroy cuGraphDestroy
        cuGraphGetNodes;
    modules: cuModuleLoadData cuModuleLoadDataEx cuModuleGetFunction cuModuleUnload cuFuncSetAttribute
        cuFuncGetAttribute cuFuncGetParamInfo cuFuncLoad cuFuncIsLoaded cuOccupancyMaxActiveBlocksPerMultiprocessor
        cuOccupancyMaxActiveClusters;
    launch: cuLaunchKernel cuLaunchKernelEx;
    tensor_maps: cuTensorMapEncodeTiled;
    copies: cuMemcpy cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpyHtoDAsync_v2
        cuMemcpyDtoHAsync_v2 cuMemcpyAsync cuMemcpyDtoDAsync_v2 cuMemcpyPeerAsync cuMemcpy2DAsync_v2 cuMemsetD8_v2
        cuMemsetD32_v2 cuMemsetD8Async cuMemsetD32Async;
    symbols: cuGetErrorName cuGetErrorString cuGetProcAddress_v2;
}

/// The driver's error names, by number.
static ERRORS: LazyLock<BTreeMap<i32, CString>> = LazyLock::new(|| {
    let named = |&(code, name): &(Code, &str)| {
        let name = CString::new(format!("CUDA_ERROR_{name}")).ok()?;
        Some((code.0, name))
    };
    let mut names: BTreeMap<i32, CString> = Code::ALL.iter().filter_map(named).collect();
    names.insert(0, c"CUDA_SUCCESS".into());
    names
});

fn describe(out: Option<&mut *const c_char>, error: c_int) -> Result {
    put(out, ERRORS.get(&error).ok_or(Code::INVALID_VALUE)?.as_ptr())
}

api! {
    fn [cuGetErrorName](error: c_int, out: Option<&mut *const c_char>) { describe(out, error) }
    fn [cuGetErrorString](error: c_int, out: Option<&mut *const c_char>) { describe(out, error) }
}
api! { unsafe;
    fn [cuGetProcAddress_v2](
        symbol: *const c_char, out: Option<&mut usize>, _version: c_int, _flags: u64, status: Option<&mut u32>,
    ) {
        if symbol.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller promises a zero-terminated name.
        let name = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
        looked_up(&name);
        // A name without suffix means the newest version.
        let found = address(&format!("{name}_v2")).or_else(|| address(&name));
        // 0 is found, 1 is no such symbol.
        put_optional(status, u32::from(found.is_none()));
        put(out, found.unwrap_or(0))?;
        if found.is_some() { Ok(()) } else { Err(Code::NOT_FOUND) }
    }
}
