//! Loading device code, whole and at once.
//!
//! CUDA loads modules lazily by default, a kernel at its first launch, and such a load may have to
//! wait until the device is idle: beside a kernel that waits for a peer that is a deadlock. So every
//! function is loaded with its module, before anything of ours can wait.

use crate::driver::constants::*;
use crate::driver::{Driver, call};
use cudarc::driver::sys::{CUfunction, CUmodule};
use std::ffi::{CString, c_int};
use std::ptr::{null_mut, without_provenance_mut};
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure, read_text};

/// Bytes kept of what the driver's compiler says about PTX that it refuses.
const COMPILER_LOG_BYTES: usize = 512;

/// Loads PTX text or a cubin, and every function in it where the driver can list them.
///
/// # Errors
/// The driver's, with its compiler's log.
///
/// # Safety
/// The context is current, and the image is a whole cubin, or PTX that ends with a zero byte, whose
/// code is safe to run.
pub unsafe fn load(driver: &Driver, image: &[u8]) -> CallResult<CUmodule> {
    let mut log = [0_u8; COMPILER_LOG_BYTES];
    let mut options = [JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_BYTES];
    let mut values = [
        log.as_mut_ptr().cast(),
        // The driver takes the number itself where a pointer would stand.
        without_provenance_mut(COMPILER_LOG_BYTES),
    ];
    let mut module = null_mut();
    // SAFETY: the image is as the driver wants it; both lists have the length named, and the
    // log has the bytes that its option names.
    unsafe {
        call!(
            driver,
            cuModuleLoadDataEx(
                &raw mut module,
                image.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        )
    }
    .map_err(|mut failure| {
        let said = read_text(&log);
        if !said.trim().is_empty() {
            failure.message.push_str("; its compiler said: ");
            failure.message.push_str(said.trim());
        }
        failure
    })?;
    // SAFETY: the module was loaded above and has not been given to anybody.
    unsafe { load_functions(driver, module) }.inspect_err(|_| {
        // SAFETY: as above. The first failure is the one to tell.
        unsafe { (driver.table.cuModuleUnload)(module) };
    })?;
    Ok(module)
}

/// Loads every function of a module. Drivers without these calls load a function when it is looked
/// up.
///
/// # Safety
/// The module is live and its context current.
unsafe fn load_functions(driver: &Driver, module: CUmodule) -> CallResult<()> {
    let table = &driver.table;
    let (Some(count_of), Some(enumerate), Some(load)) = (
        table.cuModuleGetFunctionCount,
        table.cuModuleEnumerateFunctions,
        table.cuFuncLoad,
    ) else {
        return Ok(());
    };
    let mut count = 0;
    // SAFETY: the place is writable; the module is live.
    driver.check("cuModuleGetFunctionCount", unsafe {
        count_of(&raw mut count, module)
    })?;
    let mut functions = vec![null_mut(); count as usize];
    // SAFETY: the list has `count` places.
    driver.check("cuModuleEnumerateFunctions", unsafe {
        enumerate(functions.as_mut_ptr(), count, module)
    })?;
    for function in functions {
        // SAFETY: the driver gave the function.
        driver.check("cuFuncLoad", unsafe { load(function) })?;
    }
    Ok(())
}

/// Finds a kernel, loads it, and lets its blocks have as much dynamic shared memory as
/// `shared_bytes`, the device's most for one block, leaves beside its static shared memory.
///
/// # Safety
/// The module is live and its context current.
pub unsafe fn function(
    driver: &Driver,
    module: CUmodule,
    name: &[u8],
    shared_bytes: u32,
) -> CallResult<CUfunction> {
    let name = CString::new(name).map_err(|_| {
        Failure::new(
            Status::INVALID_ARGUMENT,
            "cuModuleGetFunction",
            "a kernel's name has no zero byte in it",
        )
    })?;
    let mut function = null_mut();
    let mut fixed: c_int = 0;
    // SAFETY: the places are writable, the name ends with a zero and the module is live.
    unsafe {
        call!(
            driver,
            cuModuleGetFunction(&raw mut function, module, name.as_ptr())
        )
        .map_err(|mut failure| {
            failure.message = format!("kernel {}: {}", name.to_string_lossy(), failure.message);
            failure
        })?;
        if let Some(load) = driver.table.cuFuncLoad {
            driver.check("cuFuncLoad", load(function))?;
        }
        call!(
            driver,
            cuFuncGetAttribute(&raw mut fixed, FUNCTION_STATIC_SHARED_BYTES, function)
        )?;
        let dynamic = (shared_bytes as c_int).saturating_sub(fixed);
        call!(
            driver,
            cuFuncSetAttribute(function, FUNCTION_MAX_DYNAMIC_SHARED_BYTES, dynamic)
        )?;
    }
    Ok(function)
}
