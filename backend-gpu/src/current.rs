//! Making a GPU current on a thread.

use symmem_core::backend::CallResult;

/// Something that must be made current on a thread before calls of the runtime: a CUDA context, a HIP device.
pub trait Current {
    /// Keeps it current; dropping this restores what was current before.
    type ContextGuard<'a>
    where
        Self: 'a;
    /// Makes it current on this thread.
    ///
    /// # Errors
    /// The runtime's failure.
    fn enter(&self) -> CallResult<Self::ContextGuard<'_>>;

    /// Runs `call`, which releases something. Runs it even if making this current fails: most objects know
    /// their device, and an object that is not released now never is.
    ///
    /// # Errors
    /// The first failure: of making this current, or of `call`.
    fn give_back(&self, call: impl FnOnce() -> CallResult<()>) -> CallResult<()> {
        let entered = self.enter();
        let given = call();
        entered.map(drop).and(given)
    }
}
