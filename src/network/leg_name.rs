//! The name of a leg, by which its messages find it.

/// Names a leg among all that a rank takes part in: its key, and its number among those of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LegName {
    /// The key of its call: [`LegCall::key`](super::legs::LegCall::key).
    pub key: u64,
    /// The number.
    pub number: u64,
}
