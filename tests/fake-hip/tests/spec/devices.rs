//! Devices, and which one a thread uses.

use std::ffi::{CStr, c_int};

use symmem_fake_hip::devices::*;
use symmem_fake_hip::driver::Kind;
use symmem_fake_hip::errors::*;
use symmem_fake_hip::graphs::hipGraphUpload;

use crate::support::*;

fn device_count() -> (i32, c_int) {
    let mut count = -1;
    (hipGetDeviceCount(Some(&mut count)), count)
}

fn attribute(number: u32) -> Option<c_int> {
    let mut value = 0;
    (hipDeviceGetAttribute(Some(&mut value), number, 0) == 0).then_some(value)
}

fn properties_name() -> String {
    let mut bytes = [0xffu8; 792];
    // SAFETY: the struct of the oldest layout has 792 bytes.
    ok(unsafe { hipGetDeviceProperties(bytes.as_mut_ptr(), 0) });
    let name = CStr::from_bytes_until_nul(&bytes[396..]).expect("a name");
    name.to_string_lossy().into_owned()
}

#[test]
fn devices_are_used_without_being_made_ready() {
    alone(&[], || {
        let mut device = -1;
        ok(hipGetDevice(Some(&mut device)));
        assert_eq!(device, 0, "device 0 if the thread has chosen none");
        ok(hipSetDevice(1));
        std::thread::spawn(|| {
            let mut device = -1;
            ok(hipGetDevice(Some(&mut device)));
            assert_eq!(device, 0, "each thread has its own device");
        })
        .join()
        .expect("the thread ends well");
        ok(hipGetDevice(Some(&mut device)));
        assert_eq!(device, 1);
        assert_eq!(hipSetDevice(2), 101);
        assert_eq!(
            live(Kind::Context),
            0,
            "an implicit context is never released"
        );
    });
}

#[test]
fn no_device_has_two_numbers() {
    let environment = |release| [("FAKE_DEVICE_COUNT", "0"), ("FAKE_HIP_RELEASE", release)];
    for release in ["5.2", "7.1"] {
        alone(&environment(release), || {
            // The test's child process runs with one of the two releases at a time.
            let here = std::env::var("FAKE_HIP_RELEASE").expect("a release");
            assert_eq!(hipInit(0), if here == "5.2" { 101 } else { 100 });
            assert_eq!(device_count(), (100, 0));
            assert_eq!(hipSetDevice(0), 100);
        });
    }
}

#[test]
fn visible_devices_are_those_of_both_variables() {
    let environment = [
        ("FAKE_DEVICE_COUNT", "4"),
        ("ROCR_VISIBLE_DEVICES", "GPU-fa03,2,1"),
        ("HIP_VISIBLE_DEVICES", "2,0"),
    ];
    alone(&environment, || {
        assert_eq!(device_count(), (0, 2));
        let physical = |ordinal| {
            let mut uuid = [0; 16];
            ok(hipDeviceGetUuid(Some(&mut uuid), ordinal));
            String::from_utf8(uuid[2..4].to_vec()).expect("characters")
        };
        assert_eq!((physical(0), physical(1)), ("01".into(), "03".into()));
    });
}

#[test]
fn a_processor_has_its_own_figures() {
    for (target, units, lds) in [("gfx90a", 110, 64), ("gfx950", 256, 160)] {
        alone(&[("FAKE_HIP_ARCHITECTURE", target)], || {
            let here = std::env::var("FAKE_HIP_ARCHITECTURE").expect("an architecture");
            let name = properties_name();
            assert_eq!(name, format!("{here}:sramecc+:xnack-"));
            if here == target {
                assert_eq!(attribute(63), Some(units));
                assert_eq!(attribute(74), Some(lds << 10));
            }
            assert_eq!(attribute(87), Some(64), "a wave");
        });
    }
}

#[test]
fn an_older_release_lacks_what_came_later() {
    alone(&[("FAKE_HIP_RELEASE", "5.2")], || {
        let mut version = 0;
        ok(hipRuntimeGetVersion(Some(&mut version)));
        assert_eq!(version / 100_000, 502);
        assert_eq!((attribute(89), attribute(10017)), (None, None));
        assert_eq!(attribute(63), Some(304));
        assert_eq!(hipGraphUpload(0, 0), 801);
        violated("hipGraphUpload was added in release 5.3");
    });
}

#[test]
fn the_last_failure_is_told_once() {
    alone(&[], || {
        assert_eq!(hipSetDevice(7), 101);
        ok(hipSetDevice(0));
        assert_eq!(hipGetLastError(), 101);
        ok(hipGetLastError());
        // SAFETY: names are zero-terminated and never freed.
        let name = unsafe { CStr::from_ptr(hipGetErrorName(101)) };
        assert_eq!(name, c"hipErrorInvalidDevice");
    });
}

#[test]
fn links_are_named() {
    alone(
        &[("FAKE_DEVICE_COUNT", "3"), ("FAKE_DEVICE_NO_PEER", "0-2")],
        || {
            let link = |one, other| {
                let (mut kind, mut hops) = (0, 0);
                ok(hipExtGetLinkTypeAndHopCount(
                    one,
                    other,
                    Some(&mut kind),
                    Some(&mut hops),
                ));
                (kind, hops)
            };
            assert_eq!((link(0, 1), link(0, 2)), ((4, 1), (2, 2)));
            ok(hipDeviceEnablePeerAccess(1, 0));
            assert_eq!(hipDeviceEnablePeerAccess(1, 0), 704);
            assert_eq!(hipDeviceEnablePeerAccess(2, 0), 217);
        },
    );
}
