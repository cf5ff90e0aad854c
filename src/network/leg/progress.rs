//! What a poll of a leg returns.

/// What a poll of a leg has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing can be done before something arrives, or a put is complete.
    Waiting,
    /// There is more to do at once.
    Busy,
    /// This rank's part is done: its results are in its region, and no peer writes to the region for this leg any more.
    Done,
}
