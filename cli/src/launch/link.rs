//! The connection between the launcher and its supervisor: a pair of sockets, one of which is the supervisor's standard
//! input.
//!
//! The launcher sends an [`Order`], then the numbers of signals; the supervisor answers with one [`Outcome`]. Each
//! message is a line. The end of the connection tells either side that the other has died.

use super::options::RunOptions;
use crate::output::{OutputError, Stream};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io;

/// The job that the supervisor is to run.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub options: RunOptions,
    /// The job's name.
    pub job: String,
    pub secret: String,
}

/// How the job ended.
#[derive(Serialize, Deserialize)]
pub(super) enum Outcome {
    /// Every rank has ended; the launcher's exit code.
    Ended(u8),
    /// A rank's output could not be written.
    OutputLost { stream: Stream, errno: i32 },
    /// A rank could not be started.
    NotStarted { message: String, errno: i32 },
}

impl Outcome {
    pub(super) fn output_lost(error: &OutputError) -> Self {
        Self::OutputLost {
            stream: error.stream(),
            errno: errno(error.cause()),
        }
    }

    pub(super) fn not_started(message: String, cause: &io::Error) -> Self {
        let errno = errno(cause);
        Self::NotStarted { message, errno }
    }

    /// Returns the exit code.
    ///
    /// # Errors
    /// The error that kept the job from its end.
    pub(super) fn into_code(self) -> io::Result<u8> {
        match self {
            Self::Ended(code) => Ok(code),
            Self::OutputLost { stream, errno } => {
                Err(OutputError::new(stream, io::Error::from_raw_os_error(errno)).into())
            }
            Self::NotStarted { message, errno } => {
                let kind = io::Error::from_raw_os_error(errno).kind();
                Err(io::Error::new(kind, message))
            }
        }
    }
}

/// Returns the number of a system's error. Errors without one are closed pipes, or failures of this program.
fn errno(error: &io::Error) -> i32 {
    let otherwise = match error.kind() {
        io::ErrorKind::BrokenPipe => Errno::PIPE,
        _ => Errno::IO,
    };
    let number = error.raw_os_error();
    number.unwrap_or(otherwise.raw_os_error())
}
