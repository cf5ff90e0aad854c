//! Injected failures, and switches from the environment.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Returns a variable, if it is set and not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Returns a variable's number, or `otherwise`.
pub fn number<T: std::str::FromStr>(name: &str, otherwise: T) -> T {
    variable(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// Counts a library's calls, and fails the one that the variable names: `SYMBOL[:N[:CODE]]`.
pub struct Calls {
    variable: &'static str,
    counts: LazyLock<Mutex<HashMap<String, u64>>>,
}

impl Calls {
    pub const fn new(variable: &'static str) -> Self {
        Self {
            variable,
            counts: LazyLock::new(Mutex::default),
        }
    }

    /// Counts a call of `symbol`. Returns the error that the rule injects; `otherwise` if the rule names no code.
    pub fn count(&self, symbol: &str, otherwise: c_int) -> Result<(), c_int> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(symbol.to_owned()).or_insert(0);
        *count += 1;
        let Some(rule) = variable(self.variable) else {
            return Ok(());
        };
        let mut parts = rule.split(':');
        let (name, nth, code) = (parts.next(), parts.next(), parts.next());
        let nth = nth.and_then(|text| text.parse().ok()).unwrap_or(1);
        if name != Some(symbol) || *count != nth {
            return Ok(());
        }
        Err(code.and_then(|text| text.parse().ok()).unwrap_or(otherwise))
    }
}
