//! Helpers: a fresh process for each test, and shortcuts to the calls.

pub use fake_device::testing::*;
use symmem_fake_cuda::allocations::{cuMemAlloc_v2, cuMemHostAlloc};
use symmem_fake_cuda::contexts::{cuCtxSetCurrent, cuDevicePrimaryCtxRetain};
use symmem_fake_cuda::copies::{cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};
use symmem_fake_cuda::devices::cuInit;
use symmem_fake_cuda::modules::{cuModuleGetFunction, cuModuleLoadData};
use symmem_fake_cuda::streams::cuStreamCreate;

/// Initializes the driver and makes the context of device `ordinal` current.
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

/// Allocates zeroed pinned memory.
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

/// Returns PTX with these entries, each with one parameter of the given size.
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

/// Loads a module with one kernel and returns both.
#[track_caller]
pub fn kernel(name: &str, bytes: usize) -> (u64, u64) {
    let (mut module, mut function) = (0, 0);
    let image = ptx(&[(name, bytes)]);
    // SAFETY: the PTX is zero-terminated.
    ok(unsafe { cuModuleLoadData(Some(&mut module), image.as_ptr().cast()) });
    let name = std::ffi::CString::new(name).expect("a name");
    // SAFETY: the name is zero-terminated.
    ok(unsafe { cuModuleGetFunction(Some(&mut function), module, name.as_ptr()) });
    (module, function)
}
