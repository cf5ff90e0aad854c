//! Describes the libraries found, for `symmem info`.

use crate::driver::{Driver, Table, version_text};
use crate::{cublaslt, describe, kernels, multicast, nccl};
use std::fmt::Write;
use symmem_core::backend::abi::NCCL_WINDOWS;

/// Returns lines of `key=value`.
pub fn describe() -> String {
    let mut text = String::new();
    // Writing to a String cannot fail, so the results are ignored.
    match Driver::get() {
        Err(failure) => {
            let _ = writeln!(text, "libcuda.so.1=unavailable: {failure}");
        }
        Ok(driver) => {
            describe_driver(driver, &mut text);
            describe_nccl(&mut text);
            describe_blaslt(&mut text);
        }
    }
    text
}

fn describe_nccl(text: &mut String) {
    let soname = nccl::SONAME;
    let library = match nccl::library() {
        Ok(library) => library,
        Err(failure) => {
            let _ = writeln!(text, "{soname}=unavailable: {failure}");
            return;
        }
    };
    let file = library
        .file()
        .map_or("unknown file".into(), |file| file.display().to_string());
    let _ = writeln!(text, "{soname}={file}");
    let _ = writeln!(
        text,
        "nccl_version={}",
        symmem_gpu::nccl::version_text(library.version())
    );
    let windows = library.flags() & NCCL_WINDOWS != 0;
    let _ = writeln!(
        text,
        "nccl_symmetric_windows={}",
        if windows {
            "yes"
        } else {
            "no (needs NCCL 2.27 or newer)"
        }
    );
    let _ = match nccl::check_permitted() {
        Ok(()) => writeln!(text, "nccl_permitted=yes"),
        Err(failure) => writeln!(text, "nccl_permitted=no: {}", failure.message),
    };
}

fn describe_blaslt(text: &mut String) {
    let label = cublaslt::LABEL;
    let library = match cublaslt::library() {
        Ok(library) => library,
        Err(failure) => {
            let _ = writeln!(text, "{label}=unavailable: {failure}");
            return;
        }
    };
    let file = library
        .file()
        .map_or("unknown file".into(), |file| file.display().to_string());
    let _ = writeln!(text, "{label}={file}");
    let _ = match library.version() {
        Ok(version) => writeln!(text, "cublaslt_version={}", library.version_text(version)),
        Err(failure) => writeln!(text, "cublaslt_version=unknown: {failure}"),
    };
}

fn describe_driver(driver: &Driver, text: &mut String) {
    let file = driver
        .file()
        .map_or("unknown file".into(), |file| file.display().to_string());
    let _ = writeln!(text, "libcuda.so.1={file}");
    let _ = writeln!(text, "driver_version={}", version_text(driver.version));
    let missing = driver.table.missing();
    let _ = match missing.as_slice() {
        [] => writeln!(text, "optional_symbols=all {}", Table::OPTIONAL.len()),
        names => writeln!(text, "optional_symbols=missing {}", names.join(" ")),
    };
    let count = describe::count(driver).unwrap_or(0);
    for from in 0..count {
        for to in (0..count).filter(|&to| to != from) {
            let link = describe::link(driver, from, to);
            let _ = writeln!(text, "link_{from}_{to}={link}");
        }
    }
    for ordinal in 0..count {
        let Ok(device) = describe::describe(driver, ordinal) else {
            let _ = writeln!(text, "device_{ordinal}=cannot be described");
            continue;
        };
        for module in symmem_kernels_ptx::modules() {
            if let Some(origin) = kernels::origin(module, device.architecture) {
                let _ = writeln!(text, "device_{ordinal}_kernels_{}={origin}", module.name);
            }
        }
        if let Ok(raw) = describe::device(driver, ordinal) {
            let line = multicast::line(driver, raw);
            let _ = writeln!(text, "device_{ordinal}_multicast={line}");
        }
    }
}
