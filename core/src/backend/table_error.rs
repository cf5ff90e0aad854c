//! The error of a backend's table.

/// The reason why a table cannot be used as a backend's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// There is no table.
    #[error("its table is null; rebuild it with `export_backend!`")]
    Null,
    /// A table is not where a table can be.
    #[error(
        "its table `{part}` is at {address:#x}, which is not a multiple of 8; rebuild it with `export_backend!`"
    )]
    Misaligned {
        /// The table: `backend`, or the one of a trait.
        part: &'static str,
        /// Its address.
        address: usize,
    },
    /// A table is not in memory of this process that can be read.
    #[error(
        "its table `{part}` is not in readable memory: {bytes} bytes at {address:#x}; rebuild it with \
         `export_backend!`, from this program's symmem release"
    )]
    Unreadable {
        /// The table: `backend`, or the one of a trait.
        part: &'static str,
        /// Its address.
        address: usize,
        /// The bytes that were to be read.
        bytes: usize,
    },
    /// The table does not start with [`MAGIC`](super::MAGIC).
    #[error(
        "its table starts with \"{}\", not with symmem's magic bytes; use a file that is a symmem plugin",
        found.escape_ascii()
    )]
    WrongMagic {
        /// The first bytes of the table.
        found: [u8; 8],
    },
    /// The table states another major version than the name of the symbol that returned it.
    #[error(
        "its table has ABI version {found}, and this program needs {expected}; rebuild the plugin from this \
         program's symmem release"
    )]
    WrongMajor {
        /// The plugin's version.
        found: u32,
        /// This program's version.
        expected: u32,
    },
    /// A table is shorter than that of any release.
    #[error(
        "its table `{part}` has {found} bytes, and the smallest valid one has {least}: the file is damaged; install \
         or build it again"
    )]
    Truncated {
        /// The table: `backend`, or the one of a trait.
        part: &'static str,
        /// The size that the table states, in bytes.
        found: u64,
        /// The size of the first version's table, in bytes.
        least: u64,
    },
    /// A table states a size that no build of its version has.
    #[error(
        "its table `{part}` has {found} bytes, and one of its ABI version has {expected}; rebuild the plugin from this \
         program's symmem release"
    )]
    OtherSize {
        /// The table: `backend`, or the one of a trait.
        part: &'static str,
        /// The size that the table states, in bytes.
        found: u64,
        /// The size of this version's table, in bytes.
        expected: u64,
    },
    /// An entry does not point to code.
    #[error(
        "entry `{entry}` of its table `{part}` is no function: there is no code at {address:#x}; rebuild the plugin \
         from this program's symmem release"
    )]
    NotAFunction {
        /// The table: `backend`, or the one of a trait.
        part: &'static str,
        /// The entry.
        entry: &'static str,
        /// The address in it.
        address: usize,
    },
}
