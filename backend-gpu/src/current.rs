//! Making a GPU current on a thread.

use symmem_core::backend::CallResult;

/// Something that has to be made current on a thread before the runtime is called: a context, a device.
pub trait Current {
    /// Current until it is dropped; then what was current before is so again.
    type Entered<'a>
    where
        Self: 'a;
    /// Makes it current on this thread.
    ///
    /// # Errors
    /// The runtime's.
    fn enter(&self) -> CallResult<Self::Entered<'_>>;

    /// Gives something back; done even where this cannot be made current, since most things know their
    /// device and whatever is not given back now never will be.
    ///
    /// # Errors
    /// The first that fails of the two.
    fn give_back(&self, call: impl FnOnce() -> CallResult<()>) -> CallResult<()> {
        let entered = self.enter();
        let given = call();
        entered.map(drop).and(given)
    }
}
