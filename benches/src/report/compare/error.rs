//! Errors of a comparison.

use crate::report::schema::ReadError;

/// Why runs cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A file is not a report, or has another schema version.
    #[error("{file}: {error}")]
    Read {
        /// The file's name.
        file: String,
        /// The reason.
        #[source]
        error: ReadError,
    },
    /// Fewer than two runs.
    #[error("{0} run given; give two or more files written by `symmem bench ... --json FILE`")]
    TooFew(usize),
    /// No two runs have a measurement in common.
    #[error(
        "no two of these runs have a measurement in common: {}; run the same `symmem bench` on each machine",
        contents.join("; ")
    )]
    NothingInCommon {
        /// Each file's name and contents.
        contents: Vec<String>,
    },
}
