//! The collective verbs with default options, as methods of a queue.

use crate::base::element::Element;
use crate::base::error::Result;
use crate::base::names::ReduceOp;
use crate::base::reducible::Reducible;
use crate::buffer::operand::Operand;
use crate::collectives::options::CollectiveOptions;
use crate::stream::queue::Queue;

impl Queue {
    /// [`Collectives::all_reduce`](crate::Collectives::all_reduce) with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, x: &SymmetricBuffer<f32>, y: &SymmetricBuffer<f32>) -> Result<()> {
    /// stream.all_reduce(y, x, ReduceOp::Sum)?; // `y` becomes the sum of all ranks' `x`
    /// stream.all_reduce(x, x, ReduceOp::Maximum)?; // in place
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`](crate::Collectives::all_reduce).
    pub fn all_reduce<'a, T: Reducible>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .all_reduce(destination, source, operator)
    }

    /// [`Collectives::reduce`](crate::Collectives::reduce) with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, x: &SymmetricBuffer<f32>, y: &SymmetricBuffer<f32>) -> Result<()> {
    /// stream.reduce(0, y, x, ReduceOp::Average)?; // `y` changes at rank 0 only
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::reduce`](crate::Collectives::reduce).
    pub fn reduce<'a, T: Reducible>(
        &self,
        root: usize,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .reduce(root, destination, source, operator)
    }

    /// [`Collectives::reduce_scatter`](crate::Collectives::reduce_scatter) with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, whole: &SymmetricBuffer<f32>, part: &SymmetricBuffer<f32>) -> Result<()> {
    /// // `whole` is as long as the world's `part`s together.
    /// stream.reduce_scatter(part, whole, ReduceOp::Sum)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::reduce_scatter`](crate::Collectives::reduce_scatter).
    pub fn reduce_scatter<'a, T: Reducible>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .reduce_scatter(destination, source, operator)
    }

    /// [`Collectives::all_gather`](crate::Collectives::all_gather) with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, whole: &SymmetricBuffer<f32>, part: &SymmetricBuffer<f32>) -> Result<()> {
    /// // `whole` is as long as the world's `part`s together.
    /// stream.all_gather(whole, part)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::all_gather`](crate::Collectives::all_gather).
    pub fn all_gather<'a, T: Element>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .all_gather(destination, source)
    }

    /// [`Collectives::all_gather_v`](crate::Collectives::all_gather_v) with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, whole: &SymmetricBuffer<f32>, part: &SymmetricBuffer<f32>) -> Result<()> {
    /// // Two ranks: `whole` has 150 elements, `part` at least as many as its rank's count.
    /// stream.all_gather_v(whole, part, &[100, 50])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::all_gather_v`](crate::Collectives::all_gather_v).
    pub fn all_gather_v<'a, T: Element>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        counts: &[usize],
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .all_gather_v(destination, source, counts)
    }

    /// [`Collectives::broadcast`](crate::Collectives::broadcast) with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, x: &SymmetricBuffer<f32>, y: &SymmetricBuffer<f32>) -> Result<()> {
    /// stream.broadcast(0, y, x)?; // `x` of rank 0 to `y` of all ranks
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::broadcast`](crate::Collectives::broadcast).
    pub fn broadcast<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .broadcast(root, destination, source)
    }

    /// [`Collectives::all_to_all`](crate::Collectives::all_to_all) with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, x: &SymmetricBuffer<f32>, y: &SymmetricBuffer<f32>) -> Result<()> {
    /// // Both have `world` equal parts; part `r` of `x` goes to rank `r`.
    /// stream.all_to_all(y, x)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::all_to_all`](crate::Collectives::all_to_all).
    pub fn all_to_all<'a, T: Element>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .all_to_all(destination, source)
    }

    /// [`Collectives::all_to_all_v`](crate::Collectives::all_to_all_v) with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, x: &SymmetricBuffer<f32>, y: &SymmetricBuffer<f32>) -> Result<()> {
    /// // Two ranks: each sends 8 elements to every rank, from offset 0 and from offset 32 of `x`.
    /// let (counts, from, to) = ([8, 8], [0, 32], [0, 8]);
    /// stream.all_to_all_v(y, &counts, &to, x, &counts, &from)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::all_to_all_v`](crate::Collectives::all_to_all_v).
    #[allow(clippy::too_many_arguments, reason = "MPI's arguments, in two groups")]
    pub fn all_to_all_v<'a, T: Element>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        received: &[usize],
        received_at: &[usize],
        source: impl Into<Operand<'a, T>>,
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
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, whole: &SymmetricBuffer<f32>, part: &SymmetricBuffer<f32>) -> Result<()> {
    /// stream.gather(0, whole, part)?; // every rank's `part` to `whole` of rank 0
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::gather`](crate::Collectives::gather).
    pub fn gather<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .gather(root, destination, source)
    }

    /// [`Collectives::scatter`](crate::Collectives::scatter) with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, whole: &SymmetricBuffer<f32>, part: &SymmetricBuffer<f32>) -> Result<()> {
    /// stream.scatter(0, part, whole)?; // part `r` of rank 0's `whole` to `part` of rank `r`
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::scatter`](crate::Collectives::scatter).
    pub fn scatter<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .scatter(root, destination, source)
    }

    /// [`Collectives::send`](crate::Collectives::send) with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, rank: usize, x: &SymmetricBuffer<f32>) -> Result<()> {
    /// match rank {
    ///     0 => stream.send(1, x),
    ///     1 => stream.recv(0, x),
    ///     _ => Ok(()), // other ranks take no part
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::send`](crate::Collectives::send).
    pub fn send<'a, T: Element>(
        &self,
        peer: usize,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default()).send(peer, source)
    }

    /// [`Collectives::recv`](crate::Collectives::recv) with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, rank: usize, x: &SymmetricBuffer<f32>) -> Result<()> {
    /// match rank {
    ///     0 => stream.send(1, x),
    ///     1 => stream.recv(0, x),
    ///     _ => Ok(()), // other ranks take no part
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::recv`](crate::Collectives::recv).
    pub fn recv<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .recv(peer, destination)
    }
}
