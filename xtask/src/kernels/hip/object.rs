//! Reads a code object: the metadata of its kernels, and the addresses that the sources have marked.
//!
//! The note is a map in MessagePack: LLVM's "User Guide for AMDGPU Backend", code object V5 metadata.

use std::path::Path;

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};
use rmpv::Value;

use crate::error::{Error, Result, at};

/// The note's type, `NT_AMDGPU_METADATA`.
const NOTE_METADATA: u32 = 32;

/// The contents of the note and the sections.
#[derive(Debug, Default)]
pub struct CodeObject {
    /// The target, such as `amdgcn-amd-amdhsa--gfx942`.
    pub target: String,
    pub kernels: Vec<Kernel>,
    /// Number of entries in relocation sections.
    pub relocations: usize,
    /// Addresses of the instructions after marks for published flags (`SYMMEM_PUBLISHES` in `arch_hip.h`).
    pub publications: Vec<u64>,
}

/// The metadata of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernel {
    pub name: String,
    pub arguments: Vec<Argument>,
    pub kernarg_bytes: u64,
    pub shared_bytes: u64,
    pub scratch_bytes: u64,
    pub dynamic_stack: bool,
    pub scalar_spills: u64,
    pub vector_spills: u64,
    pub wave: u64,
    /// Vector registers of a lane, including accumulation registers.
    pub registers: u64,
    pub threads: u64,
}

/// An argument; the kinds of hidden arguments begin with `hidden_`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Argument {
    pub offset: u64,
    pub bytes: u64,
    pub kind: String,
}

/// Reads a code object.
pub fn read(path: &Path) -> Result<CodeObject> {
    let bytes = at(path, std::fs::read(path))?;
    parse(&bytes).map_err(|what| Error::CodeObject {
        path: path.to_owned(),
        what,
    })
}

pub(super) fn parse(bytes: &[u8]) -> std::result::Result<CodeObject, String> {
    let wrong = |error: object::Error| error.to_string();
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(wrong)?;
    let endian = header.endian().map_err(wrong)?;
    if header.e_machine(endian) != object::elf::EM_AMDGPU {
        return Err("not for an AMD GPU".into());
    }
    let sections = header.sections(endian, bytes).map_err(wrong)?;
    let mut found = CodeObject::default();
    let mut described = false;
    for section in sections.iter() {
        let name = sections.section_name(endian, section).map_err(wrong)?;
        let kind = section.sh_type(endian);
        if kind == object::elf::SHT_RELA || kind == object::elf::SHT_REL {
            let entry = section.sh_entsize(endian).max(1);
            found.relocations +=
                usize::try_from(section.sh_size(endian) / entry).unwrap_or(usize::MAX);
        }
        if name == b".symmem.publishes" {
            let data = section.data(endian, bytes).map_err(wrong)?;
            found.publications = data
                .chunks_exact(8)
                .map(|chunk| {
                    chunk
                        .iter()
                        .rev()
                        .fold(0, |all, byte| all << 8 | u64::from(*byte))
                })
                .collect();
        }
        let Some(mut notes) = section.notes(endian, bytes).map_err(wrong)? else {
            continue;
        };
        while let Some(note) = notes.next().map_err(wrong)? {
            if note.n_type(endian) == NOTE_METADATA {
                let value = rmpv::decode::read_value(&mut note.desc())
                    .map_err(|error| error.to_string())?;
                found.target = text(&value, "amdhsa.target")?;
                let kernels = field(&value, "amdhsa.kernels")?.as_array();
                found.kernels = kernels
                    .into_iter()
                    .flatten()
                    .map(kernel)
                    .collect::<std::result::Result<_, _>>()?;
                described = true;
            }
        }
    }
    if described {
        Ok(found)
    } else {
        Err("no note with metadata of kernels".into())
    }
}

fn kernel(value: &Value) -> std::result::Result<Kernel, String> {
    let arguments = match field(value, ".args") {
        Ok(arguments) => arguments
            .as_array()
            .into_iter()
            .flatten()
            .map(argument)
            .collect::<std::result::Result<_, _>>()?,
        Err(_) => Vec::new(), // a kernel without arguments has no list
    };
    Ok(Kernel {
        name: text(value, ".name")?,
        arguments,
        kernarg_bytes: number(value, ".kernarg_segment_size")?,
        shared_bytes: number(value, ".group_segment_fixed_size")?,
        scratch_bytes: number(value, ".private_segment_fixed_size")?,
        dynamic_stack: field(value, ".uses_dynamic_stack")?
            .as_bool()
            .unwrap_or(true),
        scalar_spills: number(value, ".sgpr_spill_count")?,
        vector_spills: number(value, ".vgpr_spill_count")?,
        wave: number(value, ".wavefront_size")?,
        registers: number(value, ".vgpr_count")?,
        threads: number(value, ".max_flat_workgroup_size")?,
    })
}

fn argument(value: &Value) -> std::result::Result<Argument, String> {
    Ok(Argument {
        offset: number(value, ".offset")?,
        bytes: number(value, ".size")?,
        kind: text(value, ".value_kind")?,
    })
}

fn field<'a>(value: &'a Value, name: &str) -> std::result::Result<&'a Value, String> {
    value
        .as_map()
        .into_iter()
        .flatten()
        .find_map(|(key, value)| (key.as_str() == Some(name)).then_some(value))
        .ok_or_else(|| format!("the note has no {name}"))
}

fn number(value: &Value, name: &str) -> std::result::Result<u64, String> {
    field(value, name)?
        .as_u64()
        .ok_or_else(|| format!("{name} in the note is not a number"))
}

fn text(value: &Value, name: &str) -> std::result::Result<String, String> {
    let text = field(value, name)?
        .as_str()
        .ok_or_else(|| format!("{name} in the note is not text"))?;
    Ok(text.to_owned())
}
