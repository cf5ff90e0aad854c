//! Options of calls: `queue.with(&options)`.

use crate::stream::queue::Queue;

/// Options that [`Queue::with`] takes: [`crate::TransferOptions`] and [`crate::CollectiveOptions`]. Sealed:
/// other crates cannot implement it.
pub trait CallOptions: sealed::Sealed {
    /// The calls that take these options.
    type Calls<'q>
    where
        Self: 'q;

    /// Returns `queue`'s calls with these options. [`Queue::with`] is the usual way to write it.
    fn calls<'q>(&'q self, queue: &'q Queue) -> Self::Calls<'q>;
}

impl Queue {
    /// Returns the calls that take `options`: [`crate::Transfers`] for [`crate::TransferOptions`],
    /// [`crate::Collectives`] for [`crate::CollectiveOptions`]. Enqueues nothing.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, out: &SymmetricBuffer<f32>, inbox: &SymmetricBuffer<f32>) -> Result<()> {
    /// let narrow = TransferOptions::new().geometry(1, 128);
    /// stream.with(&narrow).put(1, inbox, out)?;
    /// let two_shot = CollectiveOptions::new().algorithm(Algorithm::TwoShot);
    /// stream.with(&two_shot).all_reduce(inbox, out, ReduceOp::Sum)
    /// # }
    /// ```
    pub fn with<'q, O: CallOptions>(&'q self, options: &'q O) -> O::Calls<'q> {
        options.calls(self)
    }
}

pub(crate) mod sealed {
    /// Seals [`super::CallOptions`].
    pub trait Sealed {}
}
