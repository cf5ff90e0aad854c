//! AMD code objects: their target, and the kernels in them.
//!
//! Layouts and numbers are from LLVM's "User Guide for AMDGPU Backend": the ELF header, and the metadata note of code
//! object version 5.

use fake_device::error::{Code, Result};
use fake_device::modules::Entry;
use fake_device::report::violation;

use crate::devices::architecture;
use crate::message_pack::{self, Value};

/// `EM_AMDGPU`.
const MACHINE: u64 = 224;
/// `ELFOSABI_AMDGPU_HSA`.
const HSA: u8 = 64;
/// `ELFABIVERSION_AMDGPU_HSA_V5`.
const VERSION_5: u8 = 3;
/// `NT_AMDGPU_METADATA`.
const METADATA: u64 = 32;
/// `SHT_NOTE`.
const NOTES: u64 = 7;

/// The processors that symmem has code objects for, by `EF_AMDGPU_MACH`.
const PROCESSORS: &[(u64, &str)] = &[(0x3f, "gfx90a"), (0x4c, "gfx942"), (0x4f, "gfx950")];

/// Reads the code object at `pointer`.
///
/// # Safety
/// `pointer` is null or a whole code object. Neither the runtime nor this function is given a length.
pub(crate) unsafe fn read(pointer: *const u8) -> Result<Vec<Entry>> {
    if pointer.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: a code object has at least the four bytes of its magic number.
    if unsafe { std::slice::from_raw_parts(pointer, 4) } != b"\x7fELF" {
        violation("the image is not an ELF file".into());
        return Err(Code::INVALID_IMAGE);
    }
    // SAFETY: an ELF file starts with a header of 64 bytes.
    let header = unsafe { std::slice::from_raw_parts(pointer, 64) };
    check_header(header)?;
    let (table, size, count) = sections(header)?;
    // SAFETY: the header gives the position and size of the section headers.
    let headers = unsafe { std::slice::from_raw_parts(pointer.wrapping_add(table), size * count) };
    let mut end = table + size * count;
    for section in headers.chunks_exact(size) {
        // Sections of type 8 (`SHT_NOBITS`) have no bytes in the file.
        if number(section, 4, 4)? != 8 {
            end = end.max((number(section, 24, 8)? + number(section, 32, 8)?) as usize);
        }
    }
    // SAFETY: the section headers say that the image has this many bytes.
    entries(unsafe { std::slice::from_raw_parts(pointer, end) })
}

/// Reads a little-endian number from a file.
fn number(bytes: &[u8], at: usize, length: usize) -> Result<u64> {
    let end = at.checked_add(length).ok_or(Code::INVALID_IMAGE)?;
    let field = bytes.get(at..end).ok_or(Code::INVALID_IMAGE)?;
    Ok(field
        .iter()
        .rev()
        .fold(0, |n, byte| n << 8 | u64::from(*byte)))
}

fn check_header(header: &[u8]) -> Result {
    let wrong = |what: String, code: Code| {
        violation(what);
        Err(code)
    };
    let machine = number(header, 18, 2)?;
    if machine != MACHINE || header[7] != HSA {
        let (system, wanted) = (header[7], MACHINE);
        return wrong(
            format!(
                "the image is for machine {machine} and system {system}, not {wanted} and {HSA}"
            ),
            Code::INVALID_IMAGE,
        );
    }
    if header[8] != VERSION_5 {
        return wrong(
            format!(
                "the code object has ABI version {}, not {VERSION_5}",
                header[8]
            ),
            Code::INVALID_IMAGE,
        );
    }
    let built_for = number(header, 48, 4)? & 0xff;
    let known = PROCESSORS.iter().find(|(flags, _)| *flags == built_for);
    match known {
        Some((_, name)) if *name == architecture() => Ok(()),
        // A program may try one image after the other, so this breaks no rule.
        _ => Err(Code::NO_BINARY_FOR_GPU),
    }
}

/// Returns the position of the section headers, the size of each, and their number.
fn sections(header: &[u8]) -> Result<(usize, usize, usize)> {
    let table = number(header, 40, 8)? as usize;
    let (size, count) = (
        number(header, 58, 2)? as usize,
        number(header, 60, 2)? as usize,
    );
    if size != 64 || count == 0 {
        return Err(Code::INVALID_IMAGE);
    }
    Ok((table, size, count))
}

/// Returns the kernels that the metadata lists.
fn entries(image: &[u8]) -> Result<Vec<Entry>> {
    let metadata = metadata(image)?;
    let target = metadata.get("amdhsa.target").and_then(Value::text);
    let wanted = format!("amdgcn-amd-amdhsa--{}", architecture());
    // Features may follow the target, separated by colons.
    if target.and_then(|target| target.split(':').next()) != Some(&wanted) {
        violation(format!("the metadata is for {target:?}, not {wanted}"));
        return Err(Code::INVALID_IMAGE);
    }
    let kernels = metadata.get("amdhsa.kernels").ok_or(Code::INVALID_IMAGE)?;
    kernels.list().iter().map(entry).collect()
}

fn metadata(image: &[u8]) -> Result<Value> {
    let (table, size, count) = sections(image)?;
    for section in (0..count).map(|index| table + index * size) {
        if number(image, section + 4, 4)? != NOTES {
            continue;
        }
        let mut at = number(image, section + 24, 8)? as usize;
        let end = at + number(image, section + 32, 8)? as usize;
        // A note: lengths of name and descriptor, type, then name and descriptor, each padded to 4 bytes.
        while at + 12 <= end {
            let (name, bytes) = (
                number(image, at, 4)? as usize,
                number(image, at + 4, 4)? as usize,
            );
            let kind = number(image, at + 8, 4)?;
            let from = at + 12 + name.next_multiple_of(4);
            let text = image.get(at + 12..at + 12 + name);
            let body = image.get(from..from + bytes).ok_or(Code::INVALID_IMAGE)?;
            if kind == METADATA && text == Some(b"AMDGPU\0") {
                return message_pack::read(body).ok_or(Code::INVALID_IMAGE);
            }
            at = from + bytes.next_multiple_of(4);
        }
    }
    violation("the code object has no metadata".into());
    Err(Code::INVALID_IMAGE)
}

fn entry(kernel: &Value) -> Result<Entry> {
    let count = |key: &str| kernel.get(key).and_then(Value::number);
    let name = kernel.get(".name").and_then(Value::text);
    let name = name.ok_or(Code::INVALID_IMAGE)?.to_owned();
    // Users' kernels are launched like those of any program, with the runtime's hidden arguments.
    let own = !name.starts_with("symmem_example_");
    let segment = count(".kernarg_segment_size").ok_or(Code::INVALID_IMAGE)?;
    let mut parameters = Vec::new();
    for argument in kernel.get(".args").map_or(&[][..], Value::list) {
        let field = |key: &str| argument.get(key).and_then(Value::number);
        let (offset, size) = (field(".offset"), field(".size"));
        let (offset, size) = offset.zip(size).ok_or(Code::INVALID_IMAGE)?;
        let kind = argument.get(".value_kind").and_then(Value::text);
        let hidden = kind.is_some_and(|kind| kind.starts_with("hidden_"));
        if hidden && own {
            violation(format!("{name} has a hidden argument: {kind:?}"));
        } else if !hidden {
            parameters.push((offset as usize, size as usize));
        }
    }
    let entry = Entry {
        name,
        own,
        parameters: Some(parameters),
        most_threads: count(".max_flat_workgroup_size").map(|most| most as u32),
        shared_bytes: count(".group_segment_fixed_size").unwrap_or(0) as u32,
    };
    let (name, explicit) = (&entry.name, entry.parameter_bytes().unwrap_or(0));
    if explicit as u64 > segment {
        violation(format!(
            "{name} has {explicit} bytes of arguments in {segment}"
        ));
        return Err(Code::INVALID_IMAGE);
    }
    if count(".wavefront_size") != Some(64) {
        violation(format!("{name} is not compiled for waves of 64"));
    }
    if count(".private_segment_fixed_size") != Some(0) {
        violation(format!("{name} uses scratch memory"));
    }
    Ok(entry)
}
