//! Faults to order, from the environment; see the README.

use crate::{Code, Result};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, PoisonError};

static CALLS: LazyLock<Mutex<HashMap<&'static str, u64>>> = LazyLock::new(Mutex::default);

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn number<T: std::str::FromStr>(name: &str, otherwise: T) -> T {
    variable(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// `FAKE_NCCL_VERSION`.
pub fn version() -> c_int {
    number("FAKE_NCCL_VERSION", 22_809)
}

/// `FAKE_NCCL_CONNECT_MS`: how long the first call of a communicator works beside the caller.
pub fn connect_milliseconds() -> u64 {
    number("FAKE_NCCL_CONNECT_MS", 5)
}

/// Counts a call, and fails it where `FAKE_NCCL_FAIL=SYMBOL[:N[:CODE]]` says so.
pub fn check(symbol: &'static str) -> Result {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let calls = calls.entry(symbol).or_insert(0);
    *calls += 1;
    let Some(rule) = variable("FAKE_NCCL_FAIL") else {
        return Ok(());
    };
    let mut parts = rule.split(':');
    let (name, nth, code) = (parts.next(), parts.next(), parts.next());
    let nth = nth.and_then(|text| text.parse().ok()).unwrap_or(1);
    if name != Some(symbol) || *calls != nth {
        return Ok(());
    }
    Err(Code(code.and_then(|text| text.parse().ok()).unwrap_or(2)))
}

/// Whether what `symbol` began at `rank` never ends: `FAKE_NCCL_HANG=SYMBOL[:RANK]`.
pub fn hangs(symbol: &str, rank: usize) -> bool {
    variable("FAKE_NCCL_HANG").is_some_and(|rule| is_at(&rule, symbol, rank))
}

/// What `symbol` at `rank` ends with once the caller has gone on: `FAKE_NCCL_ASYNC=SYMBOL[:RANK]` is a
/// remote error.
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
