//! What the tests share: a fresh process each, and short ways to the calls.

use std::process::Command;

use symmem_fake_cuda::allocations::{cuMemAlloc_v2, cuMemHostAlloc};
use symmem_fake_cuda::contexts::{cuCtxSetCurrent, cuDevicePrimaryCtxRetain};
use symmem_fake_cuda::copies::{cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};
use symmem_fake_cuda::devices::cuInit;
use symmem_fake_cuda::driver::Kind;
use symmem_fake_cuda::modules::{cuModuleGetFunction, cuModuleLoadData};
use symmem_fake_cuda::report::{self, fake_device_live};
use symmem_fake_cuda::streams::cuStreamCreate;

const CHILD: &str = "FAKE_CUDA_TEST_CHILD";

/// Run `body` in a process of its own, under these variables.
pub fn alone(environment: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let output = child(environment).output().expect("the test binary starts");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "the process of this test failed ({})\n{}{}",
        output.status,
        said(&output.stdout),
        said(&output.stderr)
    );
}

/// This very test, to be run in another process.
pub fn child(environment: &[(&str, &str)]) -> Command {
    let name = std::thread::current()
        .name()
        .expect("tests run on named threads")
        .to_owned();
    let mut command = Command::new(std::env::current_exe().expect("the test binary's path"));
    command
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1");
    command.envs(environment.iter().copied());
    command
}

/// Assert that a call worked.
#[track_caller]
pub fn ok(code: i32) {
    assert_eq!(code, 0, "report so far:\n{}", report::text());
}

/// Initialise and make the context of device `ordinal` current.
#[track_caller]
pub fn context(ordinal: i32) -> u64 {
    ok(cuInit(0));
    let mut context = 0;
    ok(cuDevicePrimaryCtxRetain(Some(&mut context), ordinal));
    ok(cuCtxSetCurrent(context));
    context
}

#[track_caller]
pub fn device_memory(bytes: usize) -> u64 {
    let mut address = 0;
    ok(cuMemAlloc_v2(Some(&mut address), bytes));
    address
}

/// Zeroed pinned memory.
#[track_caller]
pub fn host_memory(bytes: usize) -> u64 {
    let mut address = 0;
    ok(cuMemHostAlloc(Some(&mut address), bytes, 3));
    address
}

#[track_caller]
pub fn stream() -> u64 {
    let mut stream = 0;
    ok(cuStreamCreate(Some(&mut stream), 1));
    stream
}

#[track_caller]
pub fn write(address: u64, bytes: &[u8]) {
    // SAFETY: the source is a slice of that length.
    ok(unsafe { cuMemcpyHtoD_v2(address, bytes.as_ptr() as u64, bytes.len()) });
}

#[track_caller]
pub fn read(address: u64, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    // SAFETY: the target is a vector of that length.
    ok(unsafe { cuMemcpyDtoH_v2(read.as_mut_ptr() as u64, address, bytes) });
    read
}

#[track_caller]
pub fn read_word(address: u64) -> u32 {
    u32::from_ne_bytes(read(address, 4).try_into().expect("four bytes"))
}

/// PTX with these entries, none of which declares parameters that the fake would check.
pub fn ptx(entries: &[(&str, usize)]) -> String {
    let mut text = ".version 8.0\n.target sm_80\n.address_size 64\n".to_owned();
    for (name, bytes) in entries {
        text += &format!(
            ".visible .entry {name}(.param .align 8 .b8 {name}_param_0[{bytes}]) {{ ret; }}\n"
        );
    }
    text.push('\0');
    text
}

/// Load a module with one kernel and get it.
#[track_caller]
pub fn kernel(name: &str, bytes: usize) -> (u64, u64) {
    let (mut module, mut function) = (0, 0);
    let image = ptx(&[(name, bytes)]);
    // SAFETY: zero-terminated PTX.
    ok(unsafe { cuModuleLoadData(Some(&mut module), image.as_ptr().cast()) });
    let name = std::ffi::CString::new(name).expect("a name");
    // SAFETY: a zero-terminated name.
    ok(unsafe { cuModuleGetFunction(Some(&mut function), module, name.as_ptr()) });
    (module, function)
}

/// How many of a kind this process holds.
pub fn live(kind: Kind) -> u64 {
    fake_device_live(kind as u32)
}

/// Assert that the report has one violation and that it says `what`.
#[track_caller]
pub fn violated(what: &str) {
    let text = report::text();
    let violations: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("violation: "))
        .collect();
    assert_eq!(violations.len(), 1, "{text}");
    assert!(violations[0].contains(what), "{text}");
    report::fake_device_clear_violations();
}

/// Assert that no rule was broken.
#[track_caller]
pub fn clean() {
    let text = report::text();
    assert!(!text.contains("violation: "), "{text}");
}
