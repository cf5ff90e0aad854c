//! Device code that modules are loaded from: its architecture, and the kernels in it.

use std::ffi::{CStr, c_char};

use fake_device::error::{Code, Result};
use fake_device::modules::Entry;

use crate::devices::{architecture, driver_version};

/// ELF's number for CUDA.
const MACHINE_CUDA: u16 = 190;

/// Reads the image at `pointer`: an ELF cubin, or zero-terminated PTX.
///
/// # Safety
/// `pointer` is one of the two. Neither the driver nor this function is given a length.
pub(crate) unsafe fn read(pointer: *const u8) -> Result<Vec<Entry>> {
    if pointer.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: both kinds have at least four bytes: ELF its magic, PTX its shortest header.
    let magic = unsafe { std::slice::from_raw_parts(pointer, 4) };
    if magic == b"\x7fELF" {
        // SAFETY: the caller promises an ELF image, which starts with a header of 64 bytes.
        let header = unsafe { std::slice::from_raw_parts(pointer, 64) };
        let length = elf_length(header, pointer)?;
        // SAFETY: the section headers say that the image has this many bytes.
        return elf(unsafe { std::slice::from_raw_parts(pointer, length) });
    }
    if !magic
        .iter()
        .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
    {
        return Err(Code::INVALID_IMAGE);
    }
    // SAFETY: the caller promises zero-terminated text if it is not ELF.
    let text = unsafe { CStr::from_ptr(pointer.cast::<c_char>()) };
    ptx(text.to_str().map_err(|_| Code::INVALID_PTX)?)
}

fn number(bytes: &[u8], at: usize, length: usize) -> Result<u64> {
    let field = at
        .checked_add(length)
        .and_then(|end| bytes.get(at..end))
        .ok_or(Code::INVALID_IMAGE)?;
    Ok(field
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn elf_length(header: &[u8], pointer: *const u8) -> Result<usize> {
    let (table, size) = (
        number(header, 40, 8)? as usize,
        number(header, 58, 2)? as usize,
    );
    let count = number(header, 60, 2)? as usize;
    if number(header, 18, 2)? as u16 != MACHINE_CUDA || size != 64 || count == 0 {
        return Err(Code::INVALID_IMAGE);
    }
    // SAFETY: the header gives the position and size of the section headers.
    let sections = unsafe { std::slice::from_raw_parts(pointer.wrapping_add(table), size * count) };
    let mut end = table + size * count;
    for section in sections.chunks_exact(size) {
        // Sections of type 8 (`SHT_NOBITS`) have no bytes in the file.
        if number(section, 4, 4)? != 8 {
            end = end.max((number(section, 24, 8)? + number(section, 32, 8)?) as usize);
        }
    }
    Ok(end)
}

fn elf(image: &[u8]) -> Result<Vec<Entry>> {
    let flags = number(image, 48, 4)?;
    // ABI 8, which CUDA 13's tools write, stores the architecture one byte higher.
    let built_for = if image[8] >= 8 {
        flags >> 8 & 0xff
    } else {
        flags & 0xff
    } as u32;
    let device = architecture();
    if built_for / 10 != device / 10 || built_for > device {
        return Err(Code::NO_BINARY_FOR_GPU);
    }
    let table = number(image, 40, 8)? as usize;
    let count = number(image, 60, 2)? as usize;
    let section = |index: usize, field: usize, length: usize| {
        number(image, table + index * 64 + field, length)
    };
    let mut entries = Vec::new();
    for index in (0..count).filter(|&index| section(index, 4, 4) == Ok(2)) {
        let (symbols, bytes) = (
            section(index, 24, 8)? as usize,
            section(index, 32, 8)? as usize,
        );
        let strings = section(section(index, 40, 4)? as usize, 24, 8)? as usize;
        for symbol in (symbols..symbols + bytes).step_by(24) {
            let defined = number(image, symbol + 6, 2)? != 0;
            // A global function (`STB_GLOBAL`, `STT_FUNC`).
            if defined && number(image, symbol + 4, 1)? == 0x12 {
                let name = image
                    .get(strings + number(image, symbol, 4)? as usize..)
                    .unwrap_or_default();
                let name = CStr::from_bytes_until_nul(name).map_err(|_| Code::INVALID_IMAGE)?;
                let name = name.to_string_lossy().into_owned();
                entries.push(Entry {
                    name,
                    ..Entry::default()
                });
            }
        }
    }
    Ok(entries)
}

/// Returns the newest PTX version that a driver accepts, times ten, from the table of releases in the PTX manual.
fn newest_ptx(driver: i32) -> u32 {
    match driver {
        13010.. => 91,
        13000.. => 90,
        12090.. => 88,
        12080.. => 87,
        12070.. => 86,
        12050.. => 85,
        12000.. => (80 + (driver - 12000) / 10) as u32,
        _ => 78,
    }
}

fn ptx(text: &str) -> Result<Vec<Entry>> {
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    let after = |directive: &str| {
        let rest = code.split_once(directive)?.1.trim_start();
        rest.split(|c: char| c.is_whitespace() || c == ',').next()
    };
    let version = after(".version").ok_or(Code::INVALID_PTX)?;
    let version: u32 = version
        .replace('.', "")
        .parse()
        .map_err(|_| Code::INVALID_PTX)?;
    if version > newest_ptx(driver_version()) {
        return Err(Code::UNSUPPORTED_PTX_VERSION);
    }
    let target = after(".target")
        .and_then(|t| t.strip_prefix("sm_"))
        .ok_or(Code::INVALID_PTX)?;
    let digits = target.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let wanted: u32 = digits.parse().map_err(|_| Code::INVALID_PTX)?;
    let device = architecture();
    // A target with a letter suffix runs on that architecture only.
    if wanted > device || digits != target && wanted != device {
        return Err(Code::INVALID_PTX);
    }
    let mut entries = Vec::new();
    for rest in code.split(".entry").skip(1) {
        let rest = rest.trim_start();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !"_$%".contains(c))
            .unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        if name.is_empty() {
            return Err(Code::INVALID_PTX);
        }
        let list = rest
            .trim_start()
            .strip_prefix('(')
            .and_then(|r| r.split(')').next());
        let parameters = Some(list.map(parameters).unwrap_or_default());
        entries.push(Entry {
            name: name.to_owned(),
            parameters,
            ..Entry::default()
        });
    }
    Ok(entries)
}

/// Returns the offset and size in bytes of each of a list of `.param` declarations.
fn parameters(list: &str) -> Vec<(usize, usize)> {
    let (mut parameters, mut end) = (Vec::new(), 0_usize);
    for parameter in list
        .split(',')
        .filter(|parameter| parameter.contains(".param"))
    {
        let words = || parameter.split_whitespace();
        let width = words().find_map(|word| match word {
            ".b8" | ".u8" | ".s8" => Some(1),
            ".b16" | ".u16" | ".s16" | ".f16" => Some(2),
            ".b32" | ".u32" | ".s32" | ".f32" => Some(4),
            ".b64" | ".u64" | ".s64" | ".f64" => Some(8),
            _ => None,
        });
        let Some(width) = width else { continue };
        // Before an array, `.align` is the struct's alignment; before a pointer, that of its target.
        let elements = parameter
            .split_once('[')
            .and_then(|(_, n)| n.split(']').next()?.trim().parse().ok());
        let mut following = words().skip_while(|word| *word != ".align");
        let align = following
            .nth(1)
            .and_then(|n| n.parse().ok())
            .filter(|_| elements.is_some());
        let offset = end.next_multiple_of(align.unwrap_or(width));
        let size = width * elements.unwrap_or(1);
        parameters.push((offset, size));
        end = offset + size;
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.target sm_80 // comment\n.address_size 64\n\
        .visible .entry one(\n .param .align 8 .b8 one_param_0[64]\n)\n{ ret; }\n\
        // .entry not_there(\n.entry two(.param .u64 .ptr .align 16 a, .param .u32 b,\n.param .u64 c) { ret; }\n";

    #[test]
    fn entries_and_parameters_are_found_in_ptx() {
        let entries = ptx(PTX).expect("good PTX");
        let expected = [
            ("one", vec![(0, 64)]),
            ("two", vec![(0, 8), (8, 4), (16, 8)]),
        ];
        assert_eq!(entries.len(), 2);
        for (entry, (name, parameters)) in entries.iter().zip(expected) {
            assert_eq!(
                (entry.name.as_str(), &entry.parameters),
                (name, &Some(parameters))
            );
        }
        let bytes = entries.iter().map(Entry::parameter_bytes);
        assert!(bytes.eq([Some(64), Some(24)]));
    }

    #[test]
    fn ptx_for_another_device_or_driver_is_refused() {
        assert_eq!(ptx(&PTX.replace("sm_80", "sm_100")), Err(Code::INVALID_PTX));
        assert_eq!(ptx(&PTX.replace("sm_80", "sm_80a")), Err(Code::INVALID_PTX));
        assert!(ptx(&PTX.replace("sm_80", "sm_90a")).is_ok());
        assert_eq!(
            ptx(&PTX.replace("8.0", "9.5")),
            Err(Code::UNSUPPORTED_PTX_VERSION)
        );
        assert_eq!(ptx("no such thing"), Err(Code::INVALID_PTX));
    }

    /// Makes a cubin with one kernel `go` for `sm_<built_for>`: header, symbols, names, sections.
    fn cubin(machine: u16, built_for: u8) -> Vec<u8> {
        let mut image = vec![0; 64];
        image[..4].copy_from_slice(b"\x7fELF");
        image[8] = 7;
        image[18..20].copy_from_slice(&machine.to_le_bytes());
        image[48] = built_for;
        let mut symbol = vec![0; 48];
        symbol[24] = 1;
        symbol[28] = 0x12;
        symbol[30] = 1;
        let symbols = image.len();
        image.extend(symbol);
        let names = image.len();
        image.extend(b"\0go\0\0\0\0\0");
        let sections = image.len() as u64;
        image[40..48].copy_from_slice(&sections.to_le_bytes());
        image[58] = 64;
        image[60] = 3;
        for (kind, at, bytes, link) in [(0u32, 0, 0, 0u32), (2, symbols, 48, 2), (3, names, 8, 0)] {
            let mut section = [0; 64];
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[24..32].copy_from_slice(&(at as u64).to_le_bytes());
            section[32..40].copy_from_slice(&(bytes as u64).to_le_bytes());
            section[40..44].copy_from_slice(&link.to_le_bytes());
            image.extend(section);
        }
        image
    }

    #[test]
    fn entries_are_found_in_a_cubin() {
        // SAFETY: the image is a whole ELF file.
        let read = |image: Vec<u8>| unsafe { read(image.as_ptr()) };
        let go = Entry {
            name: "go".into(),
            ..Entry::default()
        };
        assert_eq!(read(cubin(190, 90)), Ok(vec![go]));
        assert_eq!(
            read(cubin(190, 80)),
            Err(Code::NO_BINARY_FOR_GPU),
            "another generation"
        );
        assert_eq!(
            read(cubin(62, 90)),
            Err(Code::INVALID_IMAGE),
            "a host's object"
        );
    }
}
