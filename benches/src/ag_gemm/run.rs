//! State shared by all shapes of one element type.

use super::options::Options;
use super::torch::Torch;
use crate::clock::Clock;
use crate::gemm::data::Table;
use crate::gemm::element::MatrixFloat;
use crate::gemm::turn::SINGLE;
use crate::outcome::{Outcome, agree};
use crate::{Result, exchange};
use symmem::{Communicator, Stream};

/// Numbers of untimed and of timed calls in DDLB's method.
pub(super) const DDLB: (u32, u32) = (5, 50);
/// State shared by all shapes of one element type.
pub(super) struct Run<'a, T> {
    pub(super) communicator: &'a Communicator,
    pub(super) options: &'a Options,
    pub(super) stream: Stream,
    pub(super) clock: Clock<'a>,
    pub(super) table: Table<T>,
}

impl<'a, T: MatrixFloat> Run<'a, T> {
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

    /// Lets PyTorch's processes work while all ranks are idle; returns the same outcome on all ranks. A process that
    /// fails ends PyTorch's part, but not the run. Collective.
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
        // The exchange is also a barrier.
        if exchange::all_gather(self.communicator, &broken)?.contains(&true) {
            // The other processes may wait for the failed one, so none is asked again.
            *torch = None;
        }
        let outcome = outcome.unwrap_or_else(|error| Err(error.to_string()));
        agree(self.communicator, outcome)
    }
}
