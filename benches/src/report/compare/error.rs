//! Why runs cannot be laid side by side.

use crate::report::schema::ReadError;

/// Why runs cannot be laid side by side.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A file that is not a report, or one of another version.
    #[error("{file}: {error}")]
    Read {
        /// Its name.
        file: String,
        /// What is wrong with it.
        #[source]
        error: ReadError,
    },
    /// Too few runs.
    #[error("{0} run given: comparing takes two or more, of `symmem bench ... --json FILE`")]
    TooFew(usize),
    /// No two runs measured the same.
    #[error(
        "no two of these runs measured the same: {}; run the same `symmem bench` on each machine",
        contents.join("; ")
    )]
    NothingInCommon {
        /// Each file and what it has.
        contents: Vec<String>,
    },
}
