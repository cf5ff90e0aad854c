//! Checks of a shared object's file, before the dynamic loader maps it.
//!
//! The loader checks the header, but not that the file is as long as its segments: the first access to a mapped page
//! past the file's end raises SIGBUS. Only the ELF header and the program headers are read, because the loader uses
//! nothing else: a file without section headers, or with a cut symbol table for debuggers, loads and works.

use std::io;

/// The reason why a file is not a shared object for this program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The file does not start with the bytes of an ELF file.
    #[error("it is not an ELF file: it starts with \"{}\"", found.escape_ascii())]
    NotElf {
        /// Its first four bytes.
        found: [u8; 4],
    },
    /// The file is for programs of another word size.
    #[error("it is of ELF class {found}, and this program needs class {ELF_CLASS} (64 bit)")]
    OtherClass {
        /// The class in its header: 1 for 32 bit, 2 for 64 bit.
        found: u8,
    },
    /// The file is for machines of the other byte order.
    #[error("its ELF byte order is {found}, and this program needs {BYTE_ORDER}")]
    OtherByteOrder {
        /// The byte order in its header: 1 for little endian, 2 for big endian.
        found: u8,
    },
    /// The file is for another processor.
    #[error(
        "it is for {} (ELF machine {found}), and this program needs {} (ELF machine {MACHINE})",
        machine_name(*found),
        machine_name(MACHINE)
    )]
    OtherMachine {
        /// The machine in its header.
        found: u16,
    },
    /// The file is a program, an object file or a memory image, not a shared object.
    #[error("its ELF type is {found}, and a shared object has type {SHARED_OBJECT}")]
    NotShared {
        /// The type in its header.
        found: u16,
    },
    /// The file ends before a part that the dynamic loader needs.
    #[error("it is truncated: it has {found} bytes, and {part} ends at byte {needed}")]
    Truncated {
        /// The file's size in bytes.
        found: u64,
        /// The part that is not in the file.
        part: &'static str,
        /// The size that the part needs, in bytes.
        needed: u64,
    },
    /// The headers contradict themselves.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// The file could not be read.
    #[error("reading it failed: {0}")]
    Unreadable(#[source] io::Error),
}

// Values of the ELF specification, "ELF Header" and "Program Header".
const ELF_CLASS: u8 = 2;
const BYTE_ORDER: u8 = if cfg!(target_endian = "little") { 1 } else { 2 };
const SHARED_OBJECT: u16 = 3;
const X86_64: u16 = 62;
const AARCH64: u16 = 183;
const MACHINE: u16 = if cfg!(target_arch = "aarch64") {
    AARCH64
} else {
    X86_64
};
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// The most program headers that Linux itself loads (64 KiB; see `load_elf_phdrs` in fs/binfmt_elf.c). Linkers write
/// about ten. The dynamic loader copies them to the stack, where a damaged number of them would end the process.
const MOST_PROGRAM_HEADERS: usize = 65536 / PROGRAM_HEADER_BYTES;
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const NOTE: u32 = 4;
const THREAD_LOCAL: u32 = 7;
/// `PT_GNU_PROPERTY`, from which the loader reads what processor features the file needs.
const PROPERTY: u32 = 0x6474_e553;
/// The parts whose addresses the loader follows without checking them.
const FOLLOWED: [u32; 4] = [DYNAMIC, NOTE, THREAD_LOCAL, PROPERTY];

fn machine_name(machine: u16) -> &'static str {
    match machine {
        3 => "32-bit x86",
        20 => "32-bit PowerPC",
        21 => "PowerPC",
        22 => "s390",
        40 => "32-bit Arm",
        X86_64 => "x86-64",
        AARCH64 => "aarch64",
        243 => "RISC-V",
        258 => "LoongArch",
        _ => "another machine",
    }
}

/// The bytes of a header, read by offset.
struct Header<'a>(&'a [u8]);

impl Header<'_> {
    fn field<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.0[offset..offset + N]);
        field
    }

    fn half(&self, offset: usize) -> u16 {
        u16::from_ne_bytes(self.field(offset))
    }

    fn word(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.field(offset))
    }

    fn long(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.field(offset))
    }
}

/// A program header.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

impl Segment {
    fn read(bytes: &[u8]) -> Self {
        let header = Header(bytes);
        Self {
            kind: header.word(0),
            offset: header.long(8),
            address: header.long(16),
            file_bytes: header.long(32),
            memory_bytes: header.long(40),
        }
    }

    /// Returns whether the loader reads bytes of it.
    fn is_read(&self) -> bool {
        self.kind == LOAD || FOLLOWED.contains(&self.kind)
    }

    /// Returns whether the bytes of `part` that are in the file lie in this segment's, at the same addresses.
    fn contains(&self, part: &Self) -> bool {
        part.address >= self.address
            && part.address - self.address <= self.file_bytes
            && part.file_bytes <= self.file_bytes - (part.address - self.address)
    }
}

/// Checks that a file of `length` bytes is a shared object for this machine whose segments are all in the file.
/// `read` fills a buffer with the file's bytes from an offset on.
///
/// # Errors
/// [`ObjectError`] with the first thing that is wrong.
pub fn check(
    length: u64,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> Result<(), ObjectError> {
    let header = identified(length, &read)?;
    let segments = segments(&Header(&header), length, &read)?;
    let loaded: Vec<&Segment> = segments
        .iter()
        .filter(|segment| segment.kind == LOAD)
        .collect();
    let mut end = 0;
    for segment in &loaded {
        // A segment of zeroes only has no place in the file.
        if segment.file_bytes != 0 {
            let in_file = segment.offset.checked_add(segment.file_bytes);
            inside(length, "a segment", in_file)?;
        }
        // The loader reserves the addresses from the first segment to the last one.
        if segment.address < end {
            return Err(ObjectError::Damaged(
                "its segments overlap or are not in order",
            ));
        }
        end = segment
            .address
            .checked_add(segment.memory_bytes)
            .ok_or(ObjectError::Damaged("a segment ends past the last address"))?;
    }
    for part in segments.iter().filter(|part| part.is_read()) {
        if part.file_bytes > part.memory_bytes {
            return Err(ObjectError::Damaged(
                "a segment has more bytes in the file than in memory",
            ));
        }
        // Thread-local zeroes, of which nothing is in the file, may lie outside of all segments.
        if part.file_bytes != 0 && !loaded.iter().any(|segment| segment.contains(part)) {
            return Err(ObjectError::Damaged(
                "its dynamic section, notes or thread-local data are in no segment that is loaded",
            ));
        }
    }
    match segments.iter().any(|segment| segment.kind == DYNAMIC) {
        true => Ok(()),
        false => Err(ObjectError::Damaged("it has no dynamic section")),
    }
}

/// Returns the ELF header, after checking that it is that of a shared object for this machine.
fn identified(
    length: u64,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> Result<[u8; HEADER_BYTES], ObjectError> {
    // Read what there is, so that a short text file is reported as text and not as a truncated object.
    let mut header = [0; HEADER_BYTES];
    let there = length.min(HEADER_BYTES as u64) as usize;
    read(&mut header[..there], 0).map_err(ObjectError::Unreadable)?;
    let magic = b"\x7fELF";
    let same = there.min(magic.len());
    if header[..same] != magic[..same] {
        return Err(ObjectError::NotElf {
            found: Header(&header).field(0),
        });
    }
    inside(length, "the ELF header", Some(HEADER_BYTES as u64))?;
    let (class, order) = (header[4], header[5]);
    if class != ELF_CLASS {
        return Err(ObjectError::OtherClass { found: class });
    }
    if order != BYTE_ORDER {
        return Err(ObjectError::OtherByteOrder { found: order });
    }
    let (kind, machine) = (Header(&header).half(16), Header(&header).half(18));
    if machine != MACHINE {
        return Err(ObjectError::OtherMachine { found: machine });
    }
    if kind != SHARED_OBJECT {
        return Err(ObjectError::NotShared { found: kind });
    }
    Ok(header)
}

/// Reads the program headers.
fn segments(
    header: &Header<'_>,
    length: u64,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> Result<Vec<Segment>, ObjectError> {
    let offset = header.long(32);
    let [bytes_each, count] = [54, 56].map(|at| usize::from(header.half(at)));
    if bytes_each != PROGRAM_HEADER_BYTES || count == 0 {
        return Err(ObjectError::Damaged(
            "it has no program headers of the known size",
        ));
    }
    if count > MOST_PROGRAM_HEADERS {
        return Err(ObjectError::Damaged(
            "it has more program headers than Linux loads",
        ));
    }
    let bytes = count * PROGRAM_HEADER_BYTES;
    inside(
        length,
        "the table of program headers",
        offset.checked_add(bytes as u64),
    )?;
    let mut table = vec![0; bytes];
    read(&mut table, offset).map_err(ObjectError::Unreadable)?;
    Ok(table
        .chunks_exact(PROGRAM_HEADER_BYTES)
        .map(Segment::read)
        .collect())
}

/// Checks that a part which ends at byte `end` is in the file; `None` is an end past any number.
fn inside(length: u64, part: &'static str, end: Option<u64>) -> Result<(), ObjectError> {
    let needed = end.unwrap_or(u64::MAX);
    match needed <= length {
        true => Ok(()),
        false => Err(ObjectError::Truncated {
            found: length,
            part,
            needed,
        }),
    }
}

#[cfg(test)]
#[path = "shared_object_tests.rs"]
mod tests;
