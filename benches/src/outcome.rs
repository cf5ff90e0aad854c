//! What some library does, or why it cannot: no error of the run.

use super::{BenchError, Result, exchange};
use symmem::{Communicator, Error};

/// Something that was done, or why it cannot be.
pub(super) type Outcome<T> = std::result::Result<T, String>;

/// Gives every rank's outcome to all: the first reason becomes everybody's.
pub(super) fn agree<T>(communicator: &Communicator, outcome: Outcome<T>) -> Result<Outcome<T>> {
    let own = outcome.as_ref().err().cloned();
    let all = exchange::all_gather(communicator, &own)?;
    Ok(match all.into_iter().flatten().next() {
        Some(reason) => Err(reason),
        None => outcome,
    })
}

/// A call that the backend or the algorithm does not have is a reason, anything else an error.
pub(super) fn not_here<V>(result: Result<V>) -> Result<Outcome<V>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(BenchError::Symmem(
            error @ (Error::Unsupported { .. } | Error::InvalidArgument { .. }),
        )) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}
