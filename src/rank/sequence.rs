//! Collectives that follow one another, and the periods in which they and their streams are in use.

use crate::rank::driver::Driver;
use crate::rank::release::{Progress, Resource};
use std::sync::atomic::{AtomicU32, Ordering};

/// The period in which something was last admitted to use; periods count from 1. See
/// [`crate::group::residency::Residency`], whose locks order the changes.
#[derive(Debug, Default)]
pub struct Admission(AtomicU32);

impl Admission {
    /// Returns whether it was admitted in `period`.
    #[inline]
    pub fn is_of(&self, period: u32) -> bool {
        self.0.load(Ordering::Relaxed) == period
    }

    /// Records its admission in `period`.
    pub fn set(&self, period: u32) {
        self.0.store(period, Ordering::Relaxed);
    }
}

/// Collectives of this rank of which at most one is under way at a time: those of one channel of a group, or the
/// calls of one all-gather + GEMM. Counted as in use until no handle, graph or enqueued work has it.
#[derive(Debug, Default)]
pub struct Sequence {
    /// The period in which it is in use.
    pub admission: Admission,
}

impl Resource for Sequence {
    fn release(&self, _driver: &Driver, quiet: bool, unheld: bool) -> Progress {
        Progress::done(quiet && unheld)
    }
}
