//! Limits that are compiled into both sides of the table.

/// Maximum number of ranks in a group, and the length of every per-peer array that a kernel takes by value.
///
/// 72 is the size of the largest NVLink domain sold (NVL72).
pub const MAX_RANKS: usize = 72;
