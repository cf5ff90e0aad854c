//! Enqueueing work: the only way from an operand to a device address.

use crate::backend::abi::{DeviceAddress, RawStream};
use crate::backend::{Backend, CallResult};
use crate::rank::driver::{Driver, lock};
use crate::rank::operand::Operand;
use crate::rank::release::{Held, Resource};
use std::sync::{Arc, Mutex};
use symmem_core::tickets::Ticket;

/// What recorded work uses, collected while a stream is captured.
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

    /// All of it.
    pub fn finish(self) -> Vec<Held> {
        self.0
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Lent while a call enqueues. Whatever address it gives belongs to memory that stays mapped until the work has
/// passed: an eager call's operands are borrowed until it has enqueued, and are released only once all streams
/// are idle; a captured call's are held by the graph.
pub struct Submit<'q> {
    driver: &'q Driver,
    raw: RawStream,
    recording: Option<&'q Recording>,
    /// Taken before anything is looked up, given up when all is enqueued.
    _ticket: Ticket<'q>,
}

impl<'q> Submit<'q> {
    /// Lends a submit to `work`. Outside of a capture it neither allocates nor locks.
    ///
    /// # Errors
    /// What `work` fails with.
    #[inline]
    pub fn run<R>(
        driver: &'q Driver,
        raw: RawStream,
        recording: Option<&'q Recording>,
        work: impl FnOnce(&Self) -> CallResult<R>,
    ) -> CallResult<R> {
        let submit = Self {
            driver,
            raw,
            recording,
            _ticket: driver.tickets.take(),
        };
        work(&submit)
    }

    /// This rank.
    #[inline]
    pub fn rank(&self) -> usize {
        self.driver.rank
    }

    /// The backend.
    #[inline]
    pub fn backend(&self) -> &'q Backend {
        &self.driver.backend
    }

    /// The stream.
    #[inline]
    pub fn stream(&self) -> RawStream {
        self.raw
    }

    /// Has the graph that is recorded, if one is, hold `resource`.
    #[inline]
    pub fn hold<R: Resource + 'static>(&self, resource: &Arc<R>) {
        if let Some(recording) = self.recording {
            recording.keep(resource);
        }
    }

    /// The first byte of `operand` at `rank`.
    #[inline]
    pub fn address(&self, operand: &Operand<'_>, rank: usize) -> DeviceAddress {
        self.hold(operand.allocation());
        operand.place(rank)
    }

    /// The first byte of the operand's allocation at each rank.
    #[inline]
    pub fn bases<'a>(&self, operand: &Operand<'a>) -> &'a [DeviceAddress] {
        self.hold(operand.allocation());
        operand.allocation().peers()
    }

    /// The first byte of `operand` at all ranks at once: null where multicast is emulated, `None` where it is
    /// not reached so.
    #[inline]
    pub fn at_all(&self, operand: &Operand<'_>) -> Option<DeviceAddress> {
        self.hold(operand.allocation());
        operand.allocation().at_all(operand.offset())
    }
}
