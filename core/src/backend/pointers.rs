//! Checks of a loaded plugin's pointers, before they are followed.
//!
//! A table of another build, or a function that is no table's, can hold any number where a pointer should be. The
//! kernel's list of this process's mappings tells which addresses can be read or executed without a signal. The check
//! holds until the table has been copied, and later for its functions: libraries are never unloaded, and a plugin
//! promises that its table lives as long as the program. What the check cannot exclude is a plugin that unmaps its own
//! table meanwhile, or a readable table with meaningless functions.

use super::table_error::TableError;
use std::io;

/// The addresses that a table may point to.
pub(super) enum Pointers {
    /// Any: the table is a static of this program, whose pointers the compiler checked.
    Trusted,
    /// Those in these mappings, in ascending order.
    In(Vec<Mapping>),
}

/// A mapping of this process.
pub(super) struct Mapping {
    start: usize,
    end: usize,
    readable: bool,
    executable: bool,
}

impl Pointers {
    /// Lists this process's mappings. Blocks while the kernel lists them: some microseconds each.
    ///
    /// # Errors
    /// The operating system's reason for not listing them.
    pub(super) fn of_this_process() -> io::Result<Self> {
        // Names of files in it may have any bytes.
        let list = std::fs::read("/proc/self/maps")?;
        Ok(Self::parse(&String::from_utf8_lossy(&list)))
    }

    fn parse(list: &str) -> Self {
        Self::In(list.lines().filter_map(Mapping::parse).collect())
    }

    /// Checks that `bytes` bytes at `table` can be read, and that it is aligned.
    ///
    /// # Errors
    /// `Misaligned` or `Unreadable`.
    pub(super) fn readable<T>(
        &self,
        part: &'static str,
        table: *const T,
        bytes: usize,
    ) -> Result<(), TableError> {
        let Self::In(mappings) = self else {
            return Ok(());
        };
        let address = table.addr();
        if !table.is_aligned() {
            return Err(TableError::Misaligned { part, address });
        }
        match can_be_read(mappings, address, bytes) {
            true => Ok(()),
            false => Err(TableError::Unreadable {
                part,
                address,
                bytes,
            }),
        }
    }

    /// Checks that an entry of a table is null or the address of code.
    ///
    /// # Errors
    /// `NotAFunction`.
    pub(super) fn executable(
        &self,
        part: &'static str,
        entry: &'static str,
        function: Option<*const ()>,
    ) -> Result<(), TableError> {
        match function {
            Some(function) if !self.is_code(function) => Err(TableError::NotAFunction {
                part,
                entry,
                address: function.addr(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns whether code lies at this address.
    pub(super) fn is_code(&self, function: *const ()) -> bool {
        match self {
            Self::Trusted => true,
            Self::In(mappings) => {
                mapping_of(mappings, function.addr()).is_some_and(|mapping| mapping.executable)
            }
        }
    }
}

impl Mapping {
    /// Parses a line such as `7f00-8000 r-xp 00000000 08:01 42 /usr/lib/libc.so.6`; see proc_pid_maps(5).
    fn parse(line: &str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let permissions = rest.as_bytes();
        Some(Self {
            start: usize::from_str_radix(start, 16).ok()?,
            end: usize::from_str_radix(end, 16).ok()?,
            readable: permissions.first() == Some(&b'r'),
            executable: permissions.get(2) == Some(&b'x'),
        })
    }
}

fn mapping_of(mappings: &[Mapping], address: usize) -> Option<&Mapping> {
    let next = mappings.partition_point(|mapping| mapping.end <= address);
    mappings
        .get(next)
        .filter(|mapping| mapping.start <= address)
}

/// Returns whether all bytes from `address` on can be read; they may lie in several mappings.
fn can_be_read(mappings: &[Mapping], address: usize, bytes: usize) -> bool {
    let Some(end) = address.checked_add(bytes) else {
        return false;
    };
    let mut at = address;
    while at < end {
        match mapping_of(mappings, at) {
            Some(mapping) if mapping.readable => at = mapping.end,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::without_provenance;

    const LIST: &str = "\
1000-2000 r--p 00000000 08:01 42                   /usr/lib/lib with space.so
2000-3000 r-xp 00001000 08:01 42                   /usr/lib/lib with space.so
3000-4000 ---p 00000000 00:00 0
5000-6000 rw-p 00000000 00:00 0                    [heap]
6000-7000 --xp 00000000 00:00 0\n";

    #[test]
    fn a_table_is_read_only_where_every_byte_of_it_can_be_read() {
        let pointers = Pointers::parse(LIST);
        let readable = |address: usize, bytes: usize| {
            let table: *const u64 = without_provenance(address);
            pointers.readable("a", table, bytes).is_ok()
        };
        // From the first byte of a mapping to the last byte of the next one.
        assert!(readable(0x1000, 0x2000) && readable(0x2ff8, 8));
        assert!(readable(0x5000, 0x1000) && readable(0x5ff8, 8));
        // One byte further there is a mapping that cannot be read, none, or code that can only be executed.
        assert!(!readable(0x1000, 0x2001) && !readable(0x3000, 8));
        assert!(!readable(0x4ff8, 8) && !readable(0x5ff8, 9));
        assert!(!readable(8, 8) && !readable(0x7000, 8) && !readable(0x5000, usize::MAX));
        // A misaligned table is refused wherever it is.
        let odd: *const u64 = without_provenance(0x1004);
        let error = pointers.readable("device", odd, 8).unwrap_err();
        assert!(matches!(
            error,
            TableError::Misaligned {
                part: "device",
                address: 0x1004
            }
        ));
    }

    #[test]
    fn an_entry_is_null_or_code() {
        let pointers = Pointers::parse(LIST);
        let entry = |address: usize| {
            let function = Some(without_provenance(address));
            pointers.executable("device", "launch", function).is_ok()
        };
        assert!(entry(0x2000) && entry(0x6fff));
        assert!(!entry(0x1000) && !entry(0x3000) && !entry(0x4000) && !entry(0x5000));
        assert!(pointers.executable("device", "launch", None).is_ok());
    }

    // Miri isolates files.
    #[cfg(not(miri))]
    #[test]
    fn of_this_process_everything_is_found_that_it_uses() {
        let pointers = Pointers::of_this_process().expect("Linux lists them");
        let (local, function) = (7_u64, an_entry_is_null_or_code as *const ());
        assert!(pointers.readable("a", &raw const local, 8).is_ok());
        assert!(pointers.is_code(function));
        assert!(!pointers.is_code((&raw const local).cast()));
        let nothing: *const u64 = without_provenance(8);
        assert!(pointers.readable("a", nothing, 8).is_err());
        assert!(Pointers::Trusted.readable("a", nothing, 8).is_ok());
    }
}
