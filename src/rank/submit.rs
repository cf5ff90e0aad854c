//! Submission of work: the only path from an operand to a device address.

use crate::backend::abi::{DeviceAddress, RawStream};
use crate::backend::{Backend, CallResult};
use crate::base::error::Result;
use crate::base::lock::{into_inner, lock};
use crate::rank::driver::Driver;
use crate::rank::operand::Operand;
use crate::rank::release::{Held, Resource};
use std::sync::{Arc, Mutex};
use symmem_core::tickets::Ticket;

/// The resources that recorded work uses, collected while a stream is captured.
#[derive(Default)]
pub struct Recording(Mutex<Vec<Held>>);

impl Recording {
    fn keep<R: Resource + 'static>(&self, resource: &Arc<R>) {
        let mut held = lock(&self.0);
        let same = |known: &Held| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(resource));
        if !held.iter().any(same) {
            held.push(resource.clone());
        }
    }

    /// Returns all resources.
    pub fn finish(self) -> Vec<Held> {
        into_inner(self.0)
    }
}

/// Exists while a call enqueues work. Every address that it returns belongs to memory that stays mapped until
/// the work has passed: an eager call borrows its operands until it has enqueued, and they are released only
/// once all streams are idle; a graph holds the operands of a captured call.
#[must_use]
pub struct Submit<'q> {
    operation: &'static str,
    driver: &'q Driver,
    raw: RawStream,
    recording: Option<&'q Recording>,
    /// Taken before any address is looked up, returned after the work is enqueued.
    _ticket: Ticket<'q>,
}

impl<'q> Submit<'q> {
    /// Begins to enqueue the work of `operation`. Outside of a capture it neither allocates nor locks.
    #[inline]
    pub fn begin(
        operation: &'static str,
        driver: &'q Driver,
        raw: RawStream,
        recording: Option<&'q Recording>,
    ) -> Self {
        Self {
            operation,
            driver,
            raw,
            recording,
            _ticket: driver.streams.tickets.take(),
        }
    }

    /// Ends the submission, and turns the backend's failure into this rank's error.
    ///
    /// # Errors
    /// The failure in `outcome`.
    #[inline]
    pub fn end<R>(self, outcome: CallResult<R>) -> Result<R> {
        outcome.map_err(|failure| self.driver.failed(self.operation, failure))
    }

    /// Returns this rank.
    #[inline]
    pub fn rank(&self) -> usize {
        self.driver.rank
    }

    /// Returns the device and the health of its communicator.
    pub fn driver(&self) -> &'q Driver {
        self.driver
    }

    /// Returns the backend.
    #[inline]
    pub fn backend(&self) -> &'q Backend {
        &self.driver.backend
    }

    /// Returns the stream.
    #[inline]
    pub fn stream(&self) -> RawStream {
        self.raw
    }

    /// Makes the recorded graph, if there is one, hold `resource`.
    #[inline]
    pub fn hold<R: Resource + 'static>(&self, resource: &Arc<R>) {
        if let Some(recording) = self.recording {
            recording.keep(resource);
        }
    }

    /// Returns the address of the first byte of `operand` at `rank`.
    #[inline]
    pub fn address(&self, operand: &Operand<'_>, rank: usize) -> DeviceAddress {
        self.hold(operand.allocation());
        DeviceAddress(operand.start(rank))
    }

    /// Returns the address of the first byte of the operand's allocation at each rank.
    #[inline]
    pub fn bases<'a>(&self, operand: &Operand<'a>) -> &'a [DeviceAddress] {
        self.hold(operand.allocation());
        operand.allocation().peers()
    }

    /// Returns the multicast address of `operand`: null if multicast is emulated, `None` if multicast does not
    /// reach it.
    #[inline]
    pub fn at_all(&self, operand: &Operand<'_>) -> Option<DeviceAddress> {
        self.hold(operand.allocation());
        operand.allocation().at_all(operand.offset())
    }
}
