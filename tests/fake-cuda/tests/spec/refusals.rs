//! Injected failures, machines without a driver, and the exported names.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use symmem_fake_cuda::allocations::*;
use symmem_fake_cuda::contexts::*;
use symmem_fake_cuda::devices::*;
use symmem_fake_cuda::driver::Kind;
use symmem_fake_cuda::inject::*;
use symmem_fake_cuda::multicast::*;
use symmem_fake_cuda::report::{fake_device_calls, fake_device_report};
use symmem_fake_cuda::symbols::*;

use crate::multicast_sharing::{exported, heard_descriptor, import};
use crate::multicast_support::{HARDWARE, UNIT, mapped, memory, object, object_properties};
use crate::support::*;

#[test]
fn a_symbol_fails_at_its_nth_call() {
    alone(
        &[(
            "FAKE_DEVICE_FAIL",
            "cuMemAlloc:2:OUT_OF_MEMORY,cuMemHostAlloc",
        )],
        || {
            context(0);
            let mut address = 0;
            ok(cuMemAlloc_v2(Some(&mut address), 4));
            assert_eq!(cuMemAlloc_v2(Some(&mut address), 4), 2);
            ok(cuMemAlloc_v2(Some(&mut address), 4));
            assert_eq!(cuMemHostAlloc(Some(&mut address), 4, 0), 999);
            // SAFETY: the name is zero-terminated.
            unsafe { fake_device_fail_symbol(c"cuMemAlloc_v2".as_ptr(), 1, 304) };
            assert_eq!(cuMemAlloc_v2(Some(&mut address), 4), 304);
        },
    );
}

#[test]
fn the_nth_call_of_all_fails() {
    alone(&[("FAKE_DEVICE_FAIL", "#2:100")], || {
        ok(cuInit(0));
        let mut context = 0;
        assert_eq!(cuDevicePrimaryCtxRetain(Some(&mut context), 0), 100);
        ok(cuDevicePrimaryCtxRetain(Some(&mut context), 0));
        assert_eq!(fake_device_calls(), 3);
        fake_device_fail_call(1, 700);
        ok(cuGetErrorName(1, Some(&mut std::ptr::null())));
        ok(cuCtxSetCurrent(context) - 700);
        ok(cuCtxSetCurrent(context));
    });
}

#[test]
fn a_call_that_gives_back_does_so_even_when_it_fails() {
    alone(&[("FAKE_DEVICE_FAIL", "cuMemFree:1:700")], || {
        context(0);
        let memory = device_memory(4);
        assert_eq!(cuMemFree_v2(memory), 700);
        assert_eq!(live(Kind::Allocation), 0);
        assert_eq!(cuMemFree_v2(memory), 700, "a lost context stays lost");
        clean();
    });
}

#[test]
fn a_rank_fails_alone() {
    let rank_one = [
        ("FAKE_DEVICE_FAIL", "cuInit"),
        ("FAKE_DEVICE_FAIL_RANK", "1"),
        ("RANK", "0"),
    ];
    alone(&rank_one, || ok(cuInit(0)));
}

#[test]
fn a_call_is_slow_on_order() {
    alone(&[("FAKE_DEVICE_STALL", "cuInit:1:60")], || {
        let started = Instant::now();
        ok(cuInit(0));
        assert!(started.elapsed() >= Duration::from_millis(60));
    });
}

#[test]
fn a_call_never_returns_on_order_and_others_go_on() {
    let environment = [
        ("FAKE_DEVICE_STALL", "cuMulticastBindMem:2:forever"),
        ("FAKE_DEVICE_STALL_RANK", "3"),
        ("RANK", "3"),
        HARDWARE,
    ];
    alone(&environment, || {
        context(0);
        let (object, part) = (object(1), memory(0, 2));
        ok(cuMulticastAddDevice(object, 0));
        ok(cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
        let bind = move || cuMulticastBindMem(object, UNIT, part, UNIT, UNIT, 0);
        let call = std::thread::spawn(bind);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!call.is_finished());
        assert_eq!(live(Kind::MulticastBinding), 1, "the call has not begun");
        ok(bind());
        clean();
    });
}

#[test]
fn a_process_is_killed_at_a_call() {
    let environment = [
        ("FAKE_DEVICE_KILL", "cuMulticastAddDevice:1:after"),
        ("FAKE_DEVICE_KILL_RANK", "1"),
        HARDWARE,
    ];
    alone(&environment, || {
        if is_peer() {
            ok(cuInit(0));
            let object = object(2);
            say_and_wait(&exported(object).as_raw_fd().to_string());
            cuMulticastAddDevice(object, 1);
            unreachable!("killed before it returned");
        }
        ok(cuInit(0));
        let mut peer = Peer::start(&[("RANK", "1")]);
        let object = import(&heard_descriptor(&mut peer)).expect("an object");
        let id = peer.id();
        assert_eq!(peer.release_to_its_death(), 9);
        assert_eq!(cuMulticastAddDevice(object, 1), 1);
        violated(&format!("device 1 was added before, by process {id}"));
    });
}

#[test]
fn each_multicast_call_fails_on_order() {
    alone(&[HARDWARE], || {
        context(0);
        for (symbol, gives_back) in [
            ("cuMulticastCreate", false),
            ("cuMulticastAddDevice", false),
            ("cuMulticastBindMem", false),
            ("cuMulticastBindAddr", false),
            ("cuMulticastUnbind", true),
            ("cuMulticastGetGranularity", false),
        ] {
            let name = CString::new(symbol).expect("a name");
            // SAFETY: the name is zero-terminated.
            unsafe { fake_device_fail_symbol(name.as_ptr(), 1, 802) };
            let properties = object_properties(1, UNIT);
            let mut failed = Vec::new();
            let mut twice = |name: &str, call: &dyn Fn() -> i32| {
                let code = call();
                if code != 0 {
                    failed.push((name.to_owned(), code));
                    assert_eq!(call(), i32::from(gives_back), "{name}, again");
                }
            };
            let handle = Cell::new(0);
            twice("cuMulticastGetGranularity", &|| {
                cuMulticastGetGranularity(Some(&mut 0), Some(&properties), 0)
            });
            twice("cuMulticastCreate", &|| {
                let mut made = 0;
                let code = cuMulticastCreate(Some(&mut made), Some(&properties));
                handle.set(made);
                code
            });
            let object = handle.get();
            twice("cuMulticastAddDevice", &|| cuMulticastAddDevice(object, 0));
            let part = memory(0, 1);
            twice("cuMulticastBindMem", &|| {
                cuMulticastBindMem(object, 0, part, 0, UNIT, 0)
            });
            twice("cuMulticastUnbind", &|| {
                cuMulticastUnbind(object, 0, 0, UNIT)
            });
            let address = mapped(part, 1, 0);
            twice("cuMulticastBindAddr", &|| {
                cuMulticastBindAddr(object, 0, address, UNIT, 0)
            });
            assert_eq!(failed, [(symbol.to_owned(), 802)]);
        }
    });
}

#[test]
fn a_stub_library_says_what_it_is() {
    alone(&[("FAKE_CUDA_STUB", "1")], || {
        assert_eq!(cuInit(0), 34);
        assert_eq!(cuDriverGetVersion(Some(&mut 0)), 34);
    });
}

#[test]
fn nothing_works_before_initialization_or_without_devices() {
    alone(&[("CUDA_VISIBLE_DEVICES", "")], || {
        assert_eq!(cuDeviceGetCount(Some(&mut 0)), 3);
        assert_eq!(cuInit(0), 100);
        assert_eq!(cuDeviceGetCount(Some(&mut 0)), 3);
    });
}

#[test]
fn visible_devices_are_renumbered() {
    alone(
        &[("CUDA_VISIBLE_DEVICES", "3,1"), ("FAKE_DEVICE_COUNT", "4")],
        || {
            ok(cuInit(0));
            let (mut count, mut uuid) = (0, [0; 16]);
            ok(cuDeviceGetCount(Some(&mut count)));
            assert_eq!(count, 2);
            ok(cuDeviceGetUuid_v2(Some(&mut uuid), 0));
            assert_eq!(uuid[2], 3);
            assert_eq!(cuDeviceGetUuid(Some(&mut uuid), 2), 101);
        },
    );
}

#[test]
fn a_mig_instance_looks_like_one() {
    alone(&[("FAKE_CUDA_MIG", "1")], || {
        ok(cuInit(0));
        let (mut name, mut reaches) = ([0; 64], 1);
        // SAFETY: the buffer has 64 bytes.
        ok(unsafe { cuDeviceGetName(name.as_mut_ptr(), 64, 0) });
        // SAFETY: the driver terminates names with a zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        assert!(name.to_string_lossy().contains("MIG"));
        ok(cuDeviceCanAccessPeer(Some(&mut reaches), 0, 1));
        assert_eq!(reaches, 0);
    });
}

#[test]
fn the_report_is_written_at_exit() {
    let path = std::env::temp_dir().join(format!("fake-cuda-report-{}", std::process::id()));
    let text = path.to_string_lossy().into_owned();
    let body = || {
        context(0);
        let memory = device_memory(4);
        assert_eq!(cuMemFree_v2(memory + 1), 1);
        let mut buffer = [0u8; 10];
        // SAFETY: the buffer has 10 bytes.
        assert!(unsafe { fake_device_report(buffer.as_mut_ptr(), 10) } > 10);
        assert_eq!(&buffer, b"violation:");
    };
    let inside = std::env::var_os(CHILD).is_some();
    alone(&[("FAKE_DEVICE_REPORT", &text), ("SYMMEM_RANK", "4")], body);
    if !inside {
        let report = std::fs::read_to_string(&path).expect("the report");
        std::fs::remove_file(&path).expect("the report can be removed");
        for line in [
            " rank 4 calls 5",
            "\nviolation: cuMemFree_v2 (call 5): ",
            "\nlive: allocations 1\n",
        ] {
            assert!(report.contains(line), "{report}");
        }
    }
}

#[test]
fn calls_are_traced() {
    let path = std::env::temp_dir().join(format!("fake-cuda-trace-{}", std::process::id()));
    let text = path.to_string_lossy().into_owned();
    let inside = std::env::var_os(CHILD).is_some();
    alone(&[("FAKE_DEVICE_TRACE", &text)], || {
        ok(cuInit(0));
        assert_eq!(cuDeviceGet(Some(&mut 0), 9), 101);
        // SAFETY: the name is zero-terminated.
        unsafe { cuGetProcAddress_v2(c"cuNothing".as_ptr(), Some(&mut 0), 12000, 0, None) };
    });
    if !inside {
        let trace = std::fs::read_to_string(&path).expect("the trace");
        std::fs::remove_file(&path).expect("the trace can be removed");
        // Each line starts with the process and thread numbers.
        let calls: Vec<_> = trace
            .lines()
            .filter_map(|line| line.splitn(3, ' ').nth(2))
            .collect();
        assert_eq!(
            calls,
            [
                "#1 cuInit = 0",
                "#2 cuDeviceGet = 101",
                "looked up cuNothing",
                "#2 cuGetProcAddress_v2 = 500",
            ]
        );
    }
}

#[test]
fn every_name_is_exported() {
    // The library beside this test binary, opened as programs open it.
    let mut path = std::env::current_exe().expect("the test binary's path");
    path.pop();
    path.push("libsymmem_fake_cuda.so");
    // SAFETY: the library runs no code but Rust's own when it is loaded.
    let library =
        unsafe { libloading::Library::new(&path) }.expect("the library was built with the tests");
    let exported = |name: &str| {
        // SAFETY: the symbol is only looked up, never called.
        unsafe { library.get::<*const ()>(CString::new(name).expect("a name").as_bytes()) }.is_ok()
    };
    for name in NAMES.iter().chain(&[
        "fake_device_report",
        "fake_device_live",
        "fake_device_calls",
    ]) {
        assert!(exported(name), "{name}");
    }
    let (mut found, mut status) = (0, 9);
    ok(cuInit(0));
    // SAFETY: the names are zero-terminated.
    unsafe {
        ok(cuGetProcAddress_v2(
            c"cuMemAlloc".as_ptr(),
            Some(&mut found),
            12000,
            0,
            Some(&mut status),
        ));
        assert_eq!((found, status), (cuMemAlloc_v2 as *const () as usize, 0));
        assert_eq!(
            cuGetProcAddress_v2(
                c"cuNothing".as_ptr(),
                Some(&mut found),
                12000,
                0,
                Some(&mut status)
            ),
            500
        );
        assert_eq!((found, status), (0, 1));
    }
}

#[test]
fn the_numbers_are_the_drivers() {
    use cudarc::driver::sys::{
        CUdevice_attribute as Attribute, CUmemAccessDesc, CUmemAllocationProp, CUresult,
    };
    use symmem_fake_cuda::error::Code;
    use symmem_fake_cuda::launch::LaunchConfiguration;
    use symmem_fake_cuda::vmm::{Access, Properties};

    assert_eq!(size_of::<Properties>(), size_of::<CUmemAllocationProp>());
    assert_eq!(size_of::<Access>(), size_of::<CUmemAccessDesc>());
    assert_eq!(
        size_of::<LaunchConfiguration>(),
        size_of::<cudarc::driver::sys::CUlaunchConfig>()
    );
    assert_eq!(
        Code::PEER_ACCESS_UNSUPPORTED.0,
        CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED as i32
    );
    assert_eq!(
        Code::CAPTURED_EVENT.0,
        CUresult::CUDA_ERROR_CAPTURED_EVENT as i32
    );
    alone(&[], || {
        ok(cuInit(0));
        for (attribute, value) in [
            (Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0),
            (
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                227 << 10,
            ),
            (Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3),
            (
                Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                1,
            ),
            (
                Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                1,
            ),
            (
                Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
                0,
            ),
            (Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
            (
                Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
                1,
            ),
        ] {
            let mut found = -1;
            ok(cuDeviceGetAttribute(Some(&mut found), attribute as u32, 0));
            assert_eq!(found, value, "{attribute:?}");
        }
    });
}
