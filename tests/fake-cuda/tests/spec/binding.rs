//! The library as the backend uses it: cudarc opens it by the driver's name.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::unix::fs::symlink;

use cudarc::driver::sys;
use symmem_core::backend::abi::SignalTarget;

use crate::support::{alone, ptx};

/// Asserts that a call succeeded.
#[track_caller]
fn ok(code: sys::CUresult) {
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
}

#[test]
fn cudarc_drives_it() {
    let directory = std::env::temp_dir().join(format!("fake-cuda-library-{}", std::process::id()));
    let parent = std::env::var_os(fake_device::testing::CHILD).is_none();
    if parent {
        let mut library = std::env::current_exe().expect("the test binary's path");
        library.pop();
        library.push("libsymmem_fake_cuda.so");
        std::fs::create_dir(&directory).expect("a directory");
        for name in ["libcuda.so", "libcuda.so.1"] {
            symlink(&library, directory.join(name)).expect("a link");
        }
    }
    let path = directory.to_string_lossy().into_owned();
    alone(&[("LD_LIBRARY_PATH", &path)], || {
        // SAFETY: every call has the arguments that the driver documents, with the types of the header, and every
        // address is live.
        unsafe {
            let (stream, from, to) = share_and_copy();
            launch(stream, to);
            ok(sys::cuMemFree_v2(from));
            ok(sys::cuMemFree_v2(to));
            ok(sys::cuStreamDestroy_v2(stream));
            ok(sys::cuDevicePrimaryCtxRelease_v2(0));
        }
    });
    if parent {
        std::fs::remove_dir_all(&directory).expect("the directory can be removed");
    }
}

/// # Safety
/// The driver is the fake.
unsafe fn share_and_copy() -> (sys::CUstream, u64, u64) {
    let (mut context, mut stream, mut uuid) = (
        std::ptr::null_mut(),
        std::ptr::null_mut(),
        MaybeUninit::uninit(),
    );
    let (mut from, mut to, mut handle, mut granularity, mut version) = (0, 0, 0, 0, 0);
    // SAFETY: all arguments are out parameters of the header's types.
    unsafe {
        ok(sys::cuInit(0));
        ok(sys::cuDriverGetVersion(&mut version));
        ok(sys::cuDeviceGetUuid_v2(uuid.as_mut_ptr(), 1));
        assert_eq!(uuid.assume_init().bytes[2], 1);
        ok(sys::cuDevicePrimaryCtxRetain(&mut context, 0));
        ok(sys::cuCtxSetCurrent(context));
        ok(sys::cuStreamCreate(&mut stream, 1));
        ok(sys::cuMemAlloc_v2(&mut from, 64));
        ok(sys::cuMemAlloc_v2(&mut to, 64));
    }
    assert_eq!(version, 12080);
    // SAFETY: all zeros is a valid value of this C struct.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.requestedHandleTypes =
        sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let mut ipc = sys::CUipcMemHandle { reserved: [0; 64] };
    let (sent, mut received) = ([5u8; 64], [0u8; 64]);
    // SAFETY: the arguments have the header's types, and both host buffers have 64 bytes.
    unsafe {
        let option = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        ok(sys::cuMemGetAllocationGranularity(
            &mut granularity,
            &properties,
            option,
        ));
        ok(sys::cuMemCreate(&mut handle, granularity, &properties, 0));
        ok(sys::cuMemRelease(handle));
        ok(sys::cuIpcGetMemHandle(&mut ipc, from));
        let own = sys::cuIpcOpenMemHandle_v2(&mut 0, ipc, 1);
        assert_eq!(
            own,
            sys::CUresult::CUDA_ERROR_INVALID_CONTEXT,
            "the handle is from this process"
        );
        ok(sys::cuMemcpyHtoDAsync_v2(
            from,
            sent.as_ptr().cast(),
            64,
            stream,
        ));
        ok(sys::cuMemcpyDtoDAsync_v2(to, from, 64, stream));
        ok(sys::cuStreamSynchronize(stream));
        ok(sys::cuMemcpyDtoH_v2(received.as_mut_ptr().cast(), to, 64));
    }
    assert_eq!(sent, received);
    (stream, from, to)
}

/// # Safety
/// The driver is the fake, and `word` a live address.
unsafe fn launch(stream: sys::CUstream, word: u64) {
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    let image = ptx(&[("symmem_signal", size_of::<SignalTarget>())]);
    let mut target = SignalTarget {
        value: 77,
        ..Default::default()
    };
    target.word.0 = word;
    let mut parameters = [(&raw mut target).cast::<c_void>()];
    let mut seen = 0u32;
    // SAFETY: the PTX and the name are zero-terminated; there is one parameter, and one word to read into.
    unsafe {
        ok(sys::cuModuleLoadData(&mut module, image.as_ptr().cast()));
        ok(sys::cuModuleGetFunction(
            &mut function,
            module,
            c"symmem_signal".as_ptr(),
        ));
        let parameters = parameters.as_mut_ptr();
        ok(sys::cuLaunchKernel(
            function,
            1,
            1,
            1,
            32,
            1,
            1,
            0,
            stream,
            parameters,
            std::ptr::null_mut(),
        ));
        ok(sys::cuStreamSynchronize(stream));
        ok(sys::cuMemcpyDtoH_v2((&raw mut seen).cast(), word, 4));
        ok(sys::cuModuleUnload(module));
    }
    assert_eq!(seen, 77);
}
