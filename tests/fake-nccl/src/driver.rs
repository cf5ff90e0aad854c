//! What the fake driver gives us, and what we report to it.

use crate::{Code, Result};
use std::ffi::{CStr, c_int, c_void};
use std::sync::LazyLock;
use symmem_core::backend::library::Library;

/// Done on a stream's thread; see the fake driver's `library.rs`.
pub type Run = unsafe extern "C" fn(data: *const c_void, runner: *const c_void) -> c_int;

/// Declares what is taken from the driver's library, and takes it.
macro_rules! functions {
    ($( $field:ident = $name:literal: $type:ty; )*) => {
        struct Driver {
            $( $field: $type, )*
        }

        impl Driver {
            fn load(library: &Library) -> Option<Self> {
                Some(Self {
                    $( $field: {
                        let name = concat!($name, "\0").as_bytes();
                        let address = library.symbol(CStr::from_bytes_with_nul(name).ok()?)?;
                        // SAFETY: the fake driver's function of this name has this type.
                        unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
                    }, )*
                })
            }
        }
    };
}

functions! {
    submit = "fake_device_submit":
        unsafe extern "C" fn(u64, Run, *const c_void, *const [u64; 2], usize) -> c_int;
    copy = "fake_device_copy": unsafe extern "C" fn(*const c_void, u64, *mut u8, u64, u32) -> c_int;
    is_dead = "fake_device_is_dead": unsafe extern "C" fn(*const c_void) -> u32;
    violation = "fake_device_violation": unsafe extern "C" fn(*const u8, usize);
    context = "fake_device_context": unsafe extern "C" fn() -> u64;
    set_context = "fake_device_set_context": unsafe extern "C" fn(u64) -> c_int;
    is_mapping = "fake_device_is_mapping": unsafe extern "C" fn(u64) -> u32;
}

/// The libraries that can be a fake driver, and what this library is over each.
const DRIVERS: [(&str, Spelling); 4] = [
    ("libcuda.so.1", Spelling::Nccl),
    ("libamdhip64.so.7", Spelling::Rccl),
    ("libamdhip64.so.6", Spelling::Rccl),
    ("libamdhip64.so.5", Spelling::Rccl),
];

/// Whose library this is: some names differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// NVIDIA's.
    Nccl,
    /// AMD's.
    Rccl,
}

/// The first that is a fake: a real driver on this machine is none of ours.
static DRIVER: LazyLock<Option<(Driver, Spelling)>> = LazyLock::new(|| {
    DRIVERS.iter().find_map(|(name, spelling)| {
        let library = Library::open(name, &[], "use the fake driver").ok()?;
        Some((Driver::load(&library)?, *spelling))
    })
});

/// Whose library this is.
pub fn spelling() -> Spelling {
    DRIVER
        .as_ref()
        .map_or(Spelling::Nccl, |(_, spelling)| *spelling)
}

fn driver() -> Result<&'static Driver> {
    let found = DRIVER.as_ref().ok_or(Code::CUDA_ERROR)?;
    Ok(&found.0)
}

fn check(code: c_int) -> Result {
    match code {
        0 => Ok(()),
        _ => Err(Code::CUDA_ERROR),
    }
}

/// Reports that the program under test broke a rule.
pub fn violation(text: &str) {
    let text = format!("{:?}: {text}", spelling());
    match driver() {
        // SAFETY: the text is readable.
        Ok(driver) => unsafe { (driver.violation)(text.as_ptr(), text.len()) },
        Err(_) => eprintln!("{text}"),
    }
}

/// The context that is current on this thread.
pub fn current_context() -> Result<u64> {
    // SAFETY: the function takes nothing.
    match unsafe { (driver()?.context)() } {
        0 => {
            violation("no context is current");
            Err(Code::CUDA_ERROR)
        }
        context => Ok(context),
    }
}

/// Makes a context current on this thread.
pub fn set_context(context: u64) -> Result {
    // SAFETY: the driver checks the handle.
    check(unsafe { (driver()?.set_context)(context) })
}

/// Whether memory is virtual memory management's, as windows need.
pub fn is_virtual_memory(address: u64) -> Result<bool> {
    // SAFETY: the driver looks the address up.
    Ok(unsafe { (driver()?.is_mapping)(address) } != 0)
}

/// Puts a function on a stream, with all the memory that it touches.
///
/// # Safety
/// It may be called with `data` any number of times.
pub unsafe fn submit(stream: u64, run: Run, data: *const c_void, ranges: &[[u64; 2]]) -> Result {
    let driver = driver()?;
    // SAFETY: the caller's word; the ranges are readable.
    check(unsafe { (driver.submit)(stream, run, data, ranges.as_ptr(), ranges.len()) })
}

/// The stream's side, within a submitted function.
#[derive(Clone, Copy)]
pub struct Runner(pub *const c_void);

impl Runner {
    pub fn read(self, address: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut data = vec![0; bytes];
        self.copy(address, &mut data, 0)?;
        Ok(data)
    }

    pub fn write(self, address: u64, data: &mut [u8]) -> Result {
        self.copy(address, data, 1)
    }

    fn copy(self, address: u64, data: &mut [u8], to_device: u32) -> Result {
        if data.is_empty() {
            return Ok(());
        }
        let (host, bytes) = (data.as_mut_ptr(), data.len() as u64);
        // SAFETY: the runner is the one of this call; the bytes are ours.
        check(unsafe { (driver()?.copy)(self.0, address, host, bytes, to_device) })
    }

    pub fn is_dead(self) -> bool {
        // SAFETY: the runner is the one of this call.
        driver().is_ok_and(|driver| unsafe { (driver.is_dead)(self.0) } != 0)
    }
}
