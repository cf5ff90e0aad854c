//! Loads device code eagerly.
//!
//! By default CUDA loads a kernel at its first launch, which may wait for an idle device. Beside a kernel that waits
//! for a peer this is a deadlock. So every function is loaded with its module, before any kernel of symmem can wait.

use crate::driver::constants::result::{INVALID_VALUE, SUCCESS};
use crate::driver::constants::*;
use crate::driver::{Driver, call};
use cudarc::driver::sys::{CUfunction, CUmodule};
use std::ffi::{CString, c_int};
use std::ptr::{null_mut, without_provenance_mut};
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure, read_text};

/// Bytes kept of the driver's compiler log.
const COMPILER_LOG_BYTES: usize = 512;

/// Loads PTX text or a cubin, and every function in it if the driver can list them.
///
/// # Errors
/// The driver's failure, with its compiler log.
///
/// # Safety
/// The context is current, and the image is a whole cubin, or PTX that ends with a zero byte, whose
/// code is safe to run.
pub unsafe fn load(driver: &Driver, image: &[u8]) -> CallResult<CUmodule> {
    let mut log = [0_u8; COMPILER_LOG_BYTES];
    let mut options = [JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_BYTES];
    let mut values = [
        log.as_mut_ptr().cast(),
        // The driver expects the number in the pointer's place.
        without_provenance_mut(COMPILER_LOG_BYTES),
    ];
    let mut module = null_mut();
    // SAFETY: the caller passes a valid image. Both lists have the length passed, and the log has the bytes
    // that its option names.
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
            failure.message.push_str("; compiler log: ");
            failure.message.push_str(said.trim());
        }
        failure
    })?;
    // SAFETY: the module was loaded above, and nobody else has it.
    unsafe { load_functions(driver, module) }.inspect_err(|_| {
        // SAFETY: as above. Only the first failure is reported.
        unsafe { (driver.table.cuModuleUnload)(module) };
    })?;
    Ok(module)
}

/// Loads every function of a module. Drivers without these calls load a function when it is looked up.
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
    // SAFETY: the out-pointer is writable, and the module is live.
    driver.check("cuModuleGetFunctionCount", unsafe {
        count_of(&raw mut count, module)
    })?;
    let mut functions = vec![null_mut(); count as usize];
    // SAFETY: the list has `count` entries.
    driver.check("cuModuleEnumerateFunctions", unsafe {
        enumerate(functions.as_mut_ptr(), count, module)
    })?;
    for function in functions {
        // SAFETY: the driver returned this function above.
        driver.check("cuFuncLoad", unsafe { load(function) })?;
    }
    Ok(())
}

/// Finds and loads a kernel, and permits its blocks as much dynamic shared memory as its static shared memory
/// leaves of `shared_bytes`, the device's most per block.
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
            "the kernel's name contains a zero byte",
        )
    })?;
    let mut function = null_mut();
    let mut fixed: c_int = 0;
    // SAFETY: the out-pointers are writable, the name ends with a zero byte, and the module is live.
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

/// Returns the bytes of a kernel's parameters, up to the end of the last one; `None` if the driver cannot tell.
///
/// # Safety
/// The function is live and its context current.
pub unsafe fn parameter_bytes(driver: &Driver, function: CUfunction) -> CallResult<Option<u64>> {
    let Some(information) = driver.table.cuFuncGetParamInfo else {
        return Ok(None);
    };
    let mut end = 0;
    for index in 0.. {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the out-pointers are writable, and the function is live.
        match unsafe { information(function, index, &raw mut offset, &raw mut size) } {
            SUCCESS => end = offset + size,
            // The kernel has no parameter of this index: the previous one was the last.
            INVALID_VALUE => break,
            code => return Err(driver.failure("cuFuncGetParamInfo", code)),
        }
    }
    Ok(Some(end as u64))
}
