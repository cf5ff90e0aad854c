//! Who did how many calls.

use crate::call::Kind;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counted functions that NCCL alone does.
pub const OF_NCCL: [&str; 5] = [
    "ncclSend",
    "ncclRecv",
    "ncclGather",
    "ncclScatter",
    "ncclAllToAllv",
];

/// Calls of a communicator.
#[derive(Default)]
pub struct Counts {
    /// By kind: calls that NCCL did, then those that symmem did.
    collectives: [[AtomicU64; 2]; Kind::ALL.len()],
    of_nccl: [AtomicU64; OF_NCCL.len()],
}

impl Counts {
    /// Counts a collective.
    pub fn add(&self, kind: Kind, by_symmem: bool) {
        self.collectives[kind as usize][usize::from(by_symmem)].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call of a function that NCCL alone does, if it is one that is counted.
    pub fn add_forwarded(&self, name: &str) {
        if let Some(place) = OF_NCCL.iter().position(|one| *one == name) {
            self.of_nccl[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counts of the functions that were called, as text.
    pub fn text(&self) -> String {
        let collectives = Kind::ALL.into_iter().filter_map(|kind| {
            let [by_nccl, by_symmem] = self.collectives[kind as usize]
                .each_ref()
                .map(|count| count.load(Ordering::Relaxed));
            (by_nccl + by_symmem > 0)
                .then(|| format!("{}: {by_symmem} by symmem, {by_nccl} by NCCL", kind.name()))
        });
        let of_nccl = OF_NCCL
            .iter()
            .zip(&self.of_nccl)
            .filter_map(|(name, count)| {
                let count = count.load(Ordering::Relaxed);
                (count > 0).then(|| format!("{name}: {count} by NCCL"))
            });
        let called: Vec<String> = collectives.chain(of_nccl).collect();
        match called.is_empty() {
            true => "no collectives".into(),
            false => called.join("; "),
        }
    }
}
