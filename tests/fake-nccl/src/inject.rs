//! Injected faults, from the environment; see the README.

use crate::{Code, Result};
use fake_library::{Calls, number, variable};
use std::ffi::c_int;

static CALLS: Calls = Calls::new("FAKE_NCCL_FAIL");

/// Returns `FAKE_NCCL_VERSION`.
pub fn version() -> c_int {
    number("FAKE_NCCL_VERSION", 22_809)
}

/// Returns `FAKE_NCCL_CONNECT_MS`: how long the first call with a peer continues beside the caller.
pub fn connect_milliseconds() -> u64 {
    number("FAKE_NCCL_CONNECT_MS", 5)
}

/// Counts a call, and fails it if `FAKE_NCCL_FAIL=SYMBOL[:N[:CODE]]` says so.
pub fn check(symbol: &'static str) -> Result {
    CALLS.count(symbol, Code::SYSTEM_ERROR.0).map_err(Code)
}

/// Whether `FAKE_NCCL_HANG=SYMBOL[:RANK]` says that what `symbol` began at `rank` never ends.
pub fn hangs(symbol: &str, rank: usize) -> bool {
    variable("FAKE_NCCL_HANG").is_some_and(|rule| is_at(&rule, symbol, rank))
}

/// Returns the error that what `symbol` began at `rank` ends with after the call has returned: a remote error if
/// `FAKE_NCCL_ASYNC=SYMBOL[:RANK]` says so.
pub fn fails_later(symbol: &str, rank: usize) -> Option<Code> {
    let rule = variable("FAKE_NCCL_ASYNC")?;
    is_at(&rule, symbol, rank).then_some(Code(6))
}

fn is_at(rule: &str, symbol: &str, rank: usize) -> bool {
    match rule.split_once(':') {
        Some((name, only)) => name == symbol && only == rank.to_string(),
        None => rule == symbol,
    }
}
