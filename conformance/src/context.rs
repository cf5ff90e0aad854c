//! The context of a transfer check.

use super::findings::Fault;
use super::transfer_case::TransferCase;
use std::time::Duration;
use symmem::{Communicator, Stream};

/// Number of streams that a case can use.
pub(super) const STREAMS: usize = 3;

pub(super) struct Context<'a> {
    pub communicator: &'a Communicator,
    pub streams: &'a [Stream],
    pub case: &'a TransferCase,
    pub deadline: Duration,
    pub fault: Option<Fault>,
}

impl Context<'_> {
    /// Whether a test planted this fault.
    pub fn planted(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}
