//! Every look-up is recorded, and nothing else.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::process::Command;

use symmem_gpu::library::Library;

/// Returns the path of a library beside this test.
fn beside(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("the test binary's path");
    path.pop();
    path.join(name)
}

/// Runs a test again in a child process and returns the names that it looks up.
fn recorded(test: &str) -> Option<Vec<String>> {
    if std::env::var_os("SYMMEM_TEST_LOOK_UPS").is_some() {
        return None;
    }
    let file = format!("look-ups-{test}-{}", std::process::id());
    let file = std::env::temp_dir().join(file);
    let mut child = Command::new(std::env::current_exe().expect("the test binary's path"));
    child.args(["--exact", test, "--test-threads=1"]);
    child.env("LD_PRELOAD", beside("libsymmem_look_ups.so"));
    child.env("SYMMEM_TEST_LOOK_UPS", &file);
    let output = child.output().expect("the test binary starts");
    assert!(output.status.success(), "{output:?}");
    let record = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    let names = record.lines().filter_map(|line| line.split_once(' '));
    Some(names.map(|(_, name)| name.to_owned()).collect())
}

fn driver() -> Library {
    let path = beside("libsymmem_fake_cuda.so");
    let name = path.to_str().expect("a path that is text");
    Library::open(name, &[], "build it").expect("the fake driver")
}

#[test]
fn what_symmem_looks_up_is_on_record_whether_it_is_there_or_not() {
    match recorded("what_symmem_looks_up_is_on_record_whether_it_is_there_or_not") {
        None => {
            let driver = driver();
            assert!(driver.symbol(c"cuMulticastCreate").is_some());
            assert!(driver.symbol(c"cuMulticastNothing").is_none());
        }
        Some(names) => {
            for name in ["cuMulticastCreate", "cuMulticastNothing"] {
                let times = names.iter().filter(|found| *found == name).count();
                assert_eq!(times, 1, "{name} in {names:?}");
            }
        }
    }
}

#[test]
fn what_is_looked_up_with_a_version_is_on_record_too() {
    unsafe extern "C" {
        fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
        fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    }
    match recorded("what_is_looked_up_with_a_version_is_on_record_too") {
        None => {
            let lazy = 1;
            // SAFETY: the names are zero-terminated, and the library stays loaded.
            unsafe {
                let libc = dlopen(c"libc.so.6".as_ptr(), lazy);
                assert!(!libc.is_null());
                let found = ["GLIBC_2.2.5", "GLIBC_2.17"].map(|version| {
                    let version = CString::new(version).expect("a version");
                    dlvsym(libc, c"getpid".as_ptr(), version.as_ptr())
                });
                assert!(found.iter().any(|address| !address.is_null()));
            }
        }
        Some(names) => {
            let times = names.iter().filter(|found| *found == "getpid").count();
            assert_eq!(times, 2, "{names:?}");
        }
    }
}

#[test]
fn what_nobody_looks_up_is_not_on_record() {
    match recorded("what_nobody_looks_up_is_not_on_record") {
        None => assert!(driver().symbol(c"cuInit").is_some()),
        Some(names) => {
            assert!(names.iter().any(|name| name == "cuInit"), "{names:?}");
            let multicast = names.iter().find(|name| name.starts_with("cuMulticast"));
            assert_eq!(multicast, None);
        }
    }
}
