//! The collective verbs with default options, as methods of a queue.

use crate::base::element::Element;
use crate::base::error::Result;
use crate::base::names::ReduceOp;
use crate::base::reducible::Reducible;
use crate::buffer::slice::Slice;
use crate::collectives::options::CollectiveOptions;
use crate::stream::queue::Queue;

impl Queue {
    /// [`Collectives::all_reduce`](crate::Collectives::all_reduce) with default options.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`](crate::Collectives::all_reduce).
    pub fn all_reduce<'a, T: Reducible>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .all_reduce(destination, source, operator)
    }

    /// [`Collectives::reduce`](crate::Collectives::reduce) with default options.
    ///
    /// # Errors
    /// As [`Collectives::reduce`](crate::Collectives::reduce).
    pub fn reduce<'a, T: Reducible>(
        &self,
        root: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .reduce(root, destination, source, operator)
    }

    /// [`Collectives::reduce_scatter`](crate::Collectives::reduce_scatter) with default options.
    ///
    /// # Errors
    /// As [`Collectives::reduce_scatter`](crate::Collectives::reduce_scatter).
    pub fn reduce_scatter<'a, T: Reducible>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .reduce_scatter(destination, source, operator)
    }

    /// [`Collectives::all_gather`](crate::Collectives::all_gather) with default options.
    ///
    /// # Errors
    /// As [`Collectives::all_gather`](crate::Collectives::all_gather).
    pub fn all_gather<'a, T: Element>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .all_gather(destination, source)
    }

    /// [`Collectives::all_gather_v`](crate::Collectives::all_gather_v) with default options.
    ///
    /// # Errors
    /// As [`Collectives::all_gather_v`](crate::Collectives::all_gather_v).
    pub fn all_gather_v<'a, T: Element>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        counts: &[usize],
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .all_gather_v(destination, source, counts)
    }

    /// [`Collectives::broadcast`](crate::Collectives::broadcast) with default options.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`](crate::Collectives::broadcast).
    pub fn broadcast<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .broadcast(root, destination, source)
    }

    /// [`Collectives::all_to_all`](crate::Collectives::all_to_all) with default options.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all`](crate::Collectives::all_to_all).
    pub fn all_to_all<'a, T: Element>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .all_to_all(destination, source)
    }

    /// [`Collectives::all_to_all_v`](crate::Collectives::all_to_all_v) with default options.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all_v`](crate::Collectives::all_to_all_v).
    #[allow(clippy::too_many_arguments, reason = "MPI's arguments, in two groups")]
    pub fn all_to_all_v<'a, T: Element>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        received: &[usize],
        received_at: &[usize],
        source: impl Into<Slice<'a, T>>,
        sent: &[usize],
        sent_at: &[usize],
    ) -> Result<()> {
        self.with(&CollectiveOptions::default()).all_to_all_v(
            destination,
            received,
            received_at,
            source,
            sent,
            sent_at,
        )
    }

    /// [`Collectives::gather`](crate::Collectives::gather) with default options.
    ///
    /// # Errors
    /// As [`Collectives::gather`](crate::Collectives::gather).
    pub fn gather<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .gather(root, destination, source)
    }

    /// [`Collectives::scatter`](crate::Collectives::scatter) with default options.
    ///
    /// # Errors
    /// As [`Collectives::scatter`](crate::Collectives::scatter).
    pub fn scatter<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .scatter(root, destination, source)
    }

    /// [`Collectives::send`](crate::Collectives::send) with default options.
    ///
    /// # Errors
    /// As [`Collectives::send`](crate::Collectives::send).
    pub fn send<'a, T: Element>(&self, peer: usize, source: impl Into<Slice<'a, T>>) -> Result<()> {
        self.with(&CollectiveOptions::default()).send(peer, source)
    }

    /// [`Collectives::recv`](crate::Collectives::recv) with default options.
    ///
    /// # Errors
    /// As [`Collectives::recv`](crate::Collectives::recv).
    pub fn recv<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .recv(peer, destination)
    }
}
