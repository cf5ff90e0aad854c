//! Who did how many calls.

use crate::call::Kind;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls of a communicator, by kind: those that symmem did and those that NCCL did.
#[derive(Default)]
pub struct Counts([[AtomicU64; 2]; Kind::ALL.len()]);

impl Counts {
    /// Counts a call.
    pub fn add(&self, kind: Kind, by_symmem: bool) {
        self.0[kind as usize][usize::from(by_symmem)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts of the kinds that were called, as text.
    pub fn text(&self) -> String {
        let all = Kind::ALL.map(|kind| {
            let [by_nccl, by_symmem] = self.0[kind as usize]
                .each_ref()
                .map(|count| count.load(Ordering::Relaxed));
            (by_nccl + by_symmem > 0)
                .then(|| format!("{}: {by_symmem} by symmem, {by_nccl} by NCCL", kind.name()))
        });
        let called: Vec<String> = all.into_iter().flatten().collect();
        match called.is_empty() {
            true => "no collectives".into(),
            false => called.join("; "),
        }
    }
}
