//! Describes the libraries that were found, for `symmem info`.

use crate::memory::vmm::refusal;
use crate::rccl::{self, needs_scratch};
use crate::runtime::compiler::{self, Compiler};
use crate::runtime::table::Table;
use crate::runtime::{Runtime, SONAMES, found, version_text};
use crate::{describe, hipblaslt, masks};
use std::fmt::Write;
use std::path::PathBuf;
use symmem_core::backend::abi::NCCL_WINDOWS;
use symmem_gpu::nccl;

/// Returns the description as lines of `key=value`.
pub fn describe() -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match Runtime::get() {
        Err(failure) => match found() {
            Some(file) => writeln!(
                text,
                "libamdhip64.so=unavailable: {}: {failure}",
                file.display()
            ),
            None => writeln!(text, "{}=unavailable: {failure}", SONAMES[0]),
        },
        Ok(runtime) => write_all(runtime, &mut text),
    };
    text
}

fn write_all(runtime: &Runtime, text: &mut String) -> std::fmt::Result {
    writeln!(text, "libamdhip64.so={}", path_text(runtime.file()))?;
    writeln!(text, "runtime_version={}", version_text(runtime.version))?;
    let driver = version_text(runtime.driver_version);
    writeln!(text, "driver_version={driver}")?;
    match runtime.table.missing().as_slice() {
        [] => writeln!(text, "optional_symbols=all {}", Table::OPTIONAL.len())?,
        names => writeln!(text, "optional_symbols=missing {}", names.join(" "))?,
    }
    write_devices(runtime, text)?;
    writeln!(text, "multicast=none: AMD's GPUs have no multicast")?;
    write_rccl(runtime, text)?;
    match Compiler::get() {
        Ok(found) => {
            writeln!(text, "libhiprtc.so={}", path_text(found.file()))?;
            writeln!(text, "hiprtc_version={}", found.version)?;
        }
        Err(failure) => writeln!(text, "{}=unavailable: {failure}", compiler::SONAMES[0])?,
    }
    write_blaslt(runtime, text)
}

fn write_blaslt(runtime: &Runtime, text: &mut String) -> std::fmt::Result {
    let library = match hipblaslt::library() {
        Ok(library) => library,
        Err(failure) => return writeln!(text, "libhipblaslt.so=unavailable: {failure}"),
    };
    writeln!(text, "libhipblaslt.so={}", path_text(library.file()))?;
    // The query creates a handle on the current device, which is idle here.
    let version = runtime.device_count().and_then(|_| library.version());
    let version = match version {
        Ok(version) => library.version_text(version),
        Err(failure) => format!("unknown: {failure}"),
    };
    writeln!(text, "hipblaslt_version={version}")
}

fn write_devices(runtime: &Runtime, text: &mut String) -> std::fmt::Result {
    let count = runtime.device_count().unwrap_or(0);
    for (number, mask) in masks::text().into_iter().enumerate() {
        writeln!(text, "mask_{number}={mask}")?;
    }
    for from in 0..count {
        for to in (0..count).filter(|&to| to != from) {
            let link = describe::link(runtime, from, to).name();
            writeln!(text, "link_{from}_{to}={link}")?;
        }
    }
    for ordinal in 0..count {
        match describe::architecture_name(runtime, ordinal) {
            Ok(name) => {
                let target = describe::target(&name, ordinal).ok();
                let kernels = target.map_or("none", symmem_kernels_hip::Target::name);
                writeln!(text, "device_{ordinal}_architecture={name}")?;
                writeln!(text, "device_{ordinal}_kernels={kernels}")?;
                if let Some(why) = target.and_then(|target| refusal(runtime.version, target)) {
                    writeln!(text, "device_{ordinal}_vmm=unavailable: {why}")?;
                }
            }
            Err(failure) => writeln!(text, "device_{ordinal}=cannot be described: {failure}")?,
        }
    }
    Ok(())
}

fn write_rccl(runtime: &Runtime, text: &mut String) -> std::fmt::Result {
    let soname = rccl::SONAME;
    let library = match rccl::library() {
        Ok(library) => library,
        Err(failure) => return writeln!(text, "{soname}=unavailable: {failure}"),
    };
    let version = nccl::version_text(library.version());
    let windows = match library.flags() & NCCL_WINDOWS {
        0 => "no",
        _ => "yes",
    };
    writeln!(text, "{soname}={}", path_text(library.file()))?;
    writeln!(text, "rccl_version={version}")?;
    writeln!(text, "rccl_symmetric_windows={windows}")?;
    let architecture = describe::describe(runtime, 0).map_or(0, |device| device.architecture);
    let kept = std::env::var_os("HSA_NO_SCRATCH_RECLAIM").is_some_and(|value| value == "1");
    match needs_scratch(runtime.version, architecture) && !kept {
        true => writeln!(
            text,
            "rccl_advice=set HSA_NO_SCRATCH_RECLAIM=1 for RCCL here"
        ),
        false => Ok(()),
    }
}

fn path_text(file: Option<PathBuf>) -> String {
    file.map_or("unknown file".into(), |file| file.display().to_string())
}
