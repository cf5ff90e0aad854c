//! What all processes share about a multicast object: records in a memory file.
//!
//! Readers and writers lock the file. The operating system releases the lock when its holder dies, and each change is
//! one record within a page, so a killed process has either made it or not. The records of dead processes stay visible
//! with their process number.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{FlockOperation, MemfdFlags, flock, ftruncate, memfd_create};
use rustix::io::retry_on_intr;

use crate::error::{Code, Result};
use crate::ledger::started;

/// The file's name, which distinguishes it from a file of memory.
const NAME: &str = "fake-device-multicast";

const WORDS: usize = 8;
/// Bytes of a record. A page is a multiple of it.
const RECORD_BYTES: usize = WORDS * 8;
type Record = [u64; WORDS];

const MEMBERS: usize = 16;
const RECORDS: usize = 1024;
const FIRST_BINDING: usize = 1 + MEMBERS;
/// The word of the first record that holds the number of records used so far.
const USED: usize = 3;

/// A process, distinguished from earlier ones with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub number: u64,
    started: u64,
}

impl Process {
    /// Returns this process.
    pub fn own() -> Self {
        let number = std::process::id().into();
        let started = started(number).unwrap_or(0);
        Self { number, started }
    }

    pub fn is_alive(self) -> bool {
        started(self.number) == Some(self.started)
    }
}

/// The part that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// How many devices take part.
    pub devices: usize,
    /// Bytes that can be bound of each device.
    pub bytes: u64,
    /// Whether the object can be exported as a descriptor.
    pub exportable: bool,
}

/// A range of bound memory of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub offset: u64,
    pub bytes: u64,
    /// The physical device.
    pub device: usize,
    /// The process that bound it.
    pub process: Process,
    /// The memory's descriptor in that process.
    pub descriptor: i32,
    pub inode: u64,
    /// Where in the memory the range begins.
    pub memory_offset: u64,
}

/// A range that a running kernel uses of every member's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub offset: u64,
    pub bytes: u64,
    /// The process that runs the kernel.
    pub process: Process,
    /// Distinguishes it from other accesses of that process.
    pub number: u64,
}

/// Values of a record's last word, behind the members: the kind of record.
const BINDING: u64 = 0;
const ACCESS: u64 = 1;

/// A member: a physical device, and the process that added it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub device: usize,
    pub process: Process,
}

/// Creates the file of a new object.
pub(super) fn create(header: Header) -> Result<File> {
    if header.devices > MEMBERS {
        return Err(Code::INVALID_VALUE);
    }
    let file = memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(|_| Code::OPERATING_SYSTEM)?;
    ftruncate(&file, (RECORDS * RECORD_BYTES) as u64).map_err(|_| Code::OPERATING_SYSTEM)?;
    let file = File::from(file);
    let exportable = u64::from(header.exportable);
    let used = FIRST_BINDING as u64;
    let record = [
        header.devices as u64,
        header.bytes,
        exportable,
        used,
        0,
        0,
        0,
        0,
    ];
    write(&file, 0, record)?;
    Ok(file)
}

/// Whether a descriptor is of an object.
pub(super) fn is_object(file: BorrowedFd<'_>) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).is_ok_and(|link| {
        link.to_string_lossy()
            .starts_with(&format!("/memfd:{NAME}"))
    })
}

/// Opens the same file again: flock locks belong to an opening, not to a file or a process.
pub(super) fn open_anew(file: BorrowedFd<'_>) -> Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let options = File::options().read(true).write(true).open(path);
    options.map_err(|_| Code::OPERATING_SYSTEM)
}

fn write(file: &File, index: usize, record: Record) -> Result {
    let bytes: Vec<u8> = record.into_iter().flat_map(u64::to_ne_bytes).collect();
    let written = file.write_all_at(&bytes, (index * RECORD_BYTES) as u64);
    written.map_err(|_| Code::OPERATING_SYSTEM)
}

/// The records, locked until this is dropped. The caller makes sure that one thread at a time locks an opening.
pub(super) struct State<'a> {
    file: &'a File,
    records: Vec<Record>,
}

impl<'a> State<'a> {
    pub fn lock(file: &'a File) -> Result<Self> {
        let lock = || flock(file.as_fd(), FlockOperation::LockExclusive);
        retry_on_intr(lock).map_err(|_| Code::OPERATING_SYSTEM)?;
        let mut state = Self {
            file,
            records: Vec::new(),
        };
        let read = |bytes: &mut [u8]| {
            file.read_exact_at(bytes, 0)
                .map_err(|_| Code::OPERATING_SYSTEM)
        };
        let mut used = [0; (USED + 1) * 8];
        read(&mut used)?;
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let mut bytes = vec![0; word(&used[USED * 8..]) as usize * RECORD_BYTES];
        read(&mut bytes)?;
        state.records = bytes
            .chunks_exact(RECORD_BYTES)
            .map(|record| {
                let mut words = record.chunks_exact(8).map(word);
                std::array::from_fn(|_| words.next().unwrap_or(0))
            })
            .collect();
        Ok(state)
    }

    pub fn header(&self) -> Header {
        let [devices, bytes, exportable, ..] = self.records[0];
        Header {
            devices: devices as usize,
            bytes,
            exportable: exportable != 0,
        }
    }

    /// Returns the members in the order in which they were added.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        let records = &self.records[1..FIRST_BINDING];
        records
            .iter()
            .filter(|record| record[0] != 0)
            .map(|record| {
                let [_, device, number, started, ..] = *record;
                Member {
                    device: device as usize,
                    process: Process { number, started },
                }
            })
    }

    pub fn bindings(&self) -> impl Iterator<Item = Binding> {
        let records = self.records[FIRST_BINDING..].iter();
        records.filter(|it| is_of(it, BINDING)).map(binding)
    }

    pub fn accesses(&self) -> impl Iterator<Item = Access> {
        let records = self.records[FIRST_BINDING..].iter();
        records.filter(|it| is_of(it, ACCESS)).map(access)
    }

    pub fn add_member(&mut self, device: usize) -> Result {
        let Process { number, started } = Process::own();
        let record = [1, device as u64, number, started, 0, 0, 0, 0];
        self.put(1..FIRST_BINDING, |_| false, record)
    }

    pub fn add_binding(&mut self, binding: Binding) -> Result {
        let record = [
            binding.bytes,
            binding.offset,
            // A record has no room for a word each.
            (binding.device as u64) << 32 | u64::from(binding.descriptor as u32),
            binding.process.number,
            binding.process.started,
            binding.inode,
            binding.memory_offset,
            BINDING,
        ];
        self.put(FIRST_BINDING..RECORDS, |_| false, record)
    }

    pub fn remove_binding(&mut self, gone: Binding) -> Result {
        self.remove(FIRST_BINDING..RECORDS, |record| {
            is_of(record, BINDING) && binding(record) == gone
        })
    }

    /// Adds an access, in the place of a dead process's access if there is one.
    pub fn add_access(&mut self, new: Access) -> Result {
        let Process { number, started } = new.process;
        let record = [
            new.bytes, new.offset, 0, number, started, new.number, 0, ACCESS,
        ];
        let dead = |record: &Record| is_of(record, ACCESS) && !access(record).process.is_alive();
        self.put(FIRST_BINDING..RECORDS, dead, record)
    }

    pub fn remove_access(&mut self, gone: Access) -> Result {
        self.remove(FIRST_BINDING..RECORDS, |record| {
            is_of(record, ACCESS) && access(record) == gone
        })
    }

    /// Writes a record to the first place that is free or that `taken` says may be overwritten.
    fn put(
        &mut self,
        mut places: std::ops::Range<usize>,
        taken: impl Fn(&Record) -> bool,
        record: Record,
    ) -> Result {
        let used = self.records.len();
        let free = |index: &usize| {
            let record = self.records.get(*index);
            record.is_none_or(|record| record[0] == 0 || taken(record))
        };
        let index = places.find(free).ok_or(Code::OUT_OF_MEMORY)?;
        if index == used {
            // The counter grows first: a record that is counted but empty means nothing.
            self.records.push([0; WORDS]);
            let mut first = self.records[0];
            first[USED] = self.records.len() as u64;
            self.set(0, first)?;
        }
        self.set(index, record)
    }

    /// Clears the chosen record, which exists.
    fn remove(
        &mut self,
        mut places: std::ops::Range<usize>,
        chosen: impl Fn(&Record) -> bool,
    ) -> Result {
        let there = |index: &usize| {
            let record = self.records.get(*index);
            record.is_some_and(|record| record[0] != 0 && chosen(record))
        };
        let index = places.find(there).ok_or(Code::UNKNOWN)?;
        self.set(index, [0; WORDS])
    }

    fn set(&mut self, index: usize, record: Record) -> Result {
        self.records[index] = record;
        write(self.file, index, record)
    }
}

impl Drop for State<'_> {
    fn drop(&mut self) {
        // Unlocking a lock that is held cannot fail.
        let _ = flock(self.file.as_fd(), FlockOperation::Unlock);
    }
}

/// Whether a record behind the members is in use and of this kind.
fn is_of(record: &Record, what: u64) -> bool {
    record[0] != 0 && record[WORDS - 1] == what
}

fn access(record: &Record) -> Access {
    let [bytes, offset, _, number, started, counted, ..] = *record;
    Access {
        offset,
        bytes,
        process: Process { number, started },
        number: counted,
    }
}

fn binding(record: &Record) -> Binding {
    let [
        bytes,
        offset,
        device_and_descriptor,
        number,
        started,
        inode,
        memory_offset,
        _,
    ] = *record;
    Binding {
        offset,
        bytes,
        device: (device_and_descriptor >> 32) as usize,
        process: Process { number, started },
        descriptor: device_and_descriptor as u32 as i32,
        inode,
        memory_offset,
    }
}
