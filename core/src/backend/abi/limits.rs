//! Limits that both sides of the table are built with.

/// Most ranks a node group can have; the length of every table of peers that a kernel takes by value.
///
/// 72 is the largest domain of links sold.
pub const MAX_RANKS: usize = 72;
