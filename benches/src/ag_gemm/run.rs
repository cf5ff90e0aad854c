//! What is the same for all products of one type.

use super::data::Table;
use super::element::Real;
use super::options::Options;
use super::torch::Torch;
use crate::clock::Clock;
use crate::outcome::{Outcome, agree};
use crate::{Result, exchange};
use symmem::{Communicator, Stream};

/// Calls one by one in a round at most.
pub(super) const SINGLE: u32 = 5;
/// Rows up to which calls are replayed too: above, a launch is short beside the call.
pub(super) const REPLAYED_ROWS: usize = 1024;
/// DDLB's calls that are not timed, and that are.
pub(super) const DDLB: (u32, u32) = (5, 50);
/// What is the same for all products of one type.
pub(super) struct Run<'a, T> {
    pub(super) communicator: &'a Communicator,
    pub(super) options: &'a Options,
    pub(super) stream: Stream,
    pub(super) clock: Clock<'a>,
    pub(super) table: Table<T>,
}

impl<'a, T: Real> Run<'a, T> {
    pub(super) fn new(communicator: &'a Communicator, options: &'a Options) -> Result<Self> {
        let timers = if options.ddlb { DDLB.1 } else { SINGLE };
        Ok(Self {
            communicator,
            options,
            stream: communicator.stream()?,
            clock: Clock::new(communicator, timers)?,
            table: Table::new(),
        })
    }

    /// Lets PyTorch's processes work while all ranks are idle: the same outcome everywhere. A process that
    /// breaks off ends their part and not the run. Collective.
    pub(super) fn ask<V>(
        &self,
        torch: &mut Option<Torch>,
        work: impl FnOnce(&mut Torch) -> Result<Outcome<V>>,
    ) -> Result<Outcome<V>> {
        self.communicator.host_barrier()?;
        let outcome = match torch {
            Some(torch) => work(torch),
            None => Ok(Err("it failed earlier in this run".into())),
        };
        let broken = outcome.is_err();
        // What the ranks say of it is a barrier, too.
        if exchange::all_gather(self.communicator, &broken)?.contains(&true) {
            // Its peers may be waiting for it: none is asked again.
            *torch = None;
        }
        let outcome = outcome.unwrap_or_else(|error| Err(error.to_string()));
        agree(self.communicator, outcome)
    }
}
