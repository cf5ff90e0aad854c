//! What a run has done, in numbers.

use crate::call::Call;
use crate::plan::Action;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use symmem::ErrorKind;

/// Counts by name. An action counts once for each rank.
#[derive(Default)]
pub struct Counts(Mutex<BTreeMap<String, u64>>);

impl Counts {
    /// Adds to a number.
    pub fn add(&self, name: String, count: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(name).or_default() += count;
    }

    /// Counts an action.
    pub fn action(&self, action: &Action) {
        // A call counts by its kind.
        if !matches!(action, Action::Enqueue { .. }) {
            self.add(format!("action.{}", first_word(action)), 1);
        }
    }

    /// Counts a call.
    pub fn call(&self, call: &Call) {
        self.add(format!("call.{}", first_word(&call.kind)), 1);
    }

    /// Counts an error that was expected.
    pub fn error(&self, kind: ErrorKind) {
        self.add(format!("error.{kind:?}"), 1);
    }

    /// Counts bytes that were compared with the model's.
    pub fn checked(&self, bytes: usize) {
        self.add("checks".into(), 1);
        self.add("bytes".into(), bytes as u64);
    }
}

fn first_word(value: &impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    let end = text.find(|letter: char| !letter.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

/// One line, `name=number` each.
impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs: Vec<String> = counts
            .iter()
            .map(|(name, count)| format!("{name}={count}"))
            .collect();
        formatter.write_str(&pairs.join(" "))
    }
}
