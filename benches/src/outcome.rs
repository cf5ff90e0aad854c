//! Results that may be absent without an error of the run, for example because a library is missing.

use super::{BenchError, Result, exchange};
use symmem::{Communicator, Error};

/// A value, or the reason why it is absent.
pub(super) type Outcome<T> = std::result::Result<T, String>;

/// Exchanges the ranks' outcomes: the first reason counts for all ranks. Collective.
pub(super) fn agree<T>(communicator: &Communicator, outcome: Outcome<T>) -> Result<Outcome<T>> {
    let own = outcome.as_ref().err().cloned();
    let all = exchange::all_gather(communicator, &own)?;
    Ok(match all.into_iter().flatten().next() {
        Some(reason) => Err(reason),
        None => outcome,
    })
}

/// Turns an unsupported call or an invalid argument into a reason; other errors remain errors.
pub(super) fn not_here<V>(result: Result<V>) -> Result<Outcome<V>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(BenchError::Symmem(
            error @ (Error::Unsupported { .. } | Error::InvalidArgument { .. }),
        )) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}
