//! Legs of collectives between nodes: algorithms over a [`Wire`](super::wire::Wire), on memory that the host addresses.
//!
//! A [`leg::Leg`] describes one; [`leg::Running`] is the state of one under way, which is polled and never blocks. All
//! members of a leg run the same one, with the same offsets in their regions.
//!
//! `small` reduces vectors that fit in messages: each member sends its vector to all, one latency. `pieces` reduces large
//! ones: each member owns a share, receives it from all others in pieces, reduces each piece once and puts the result to
//! whoever needs it. So a byte of an all-reduce among N members travels 2·(N-1)/N times, as in a ring, but in two steps
//! whatever N is, and every sum is made in member order and rounded once. `exchange` moves parts between all pairs: gathers,
//! scatters and all-to-alls. `tree` and `chain` broadcast small and large data; `barrier` is the dissemination barrier.
//!
//! Where a device's memory is not the host's, the region is a mirror of it, and `ranges` says which bytes are copied. `shape` names legs for reports.
//!
//! Bottom up: `fault`, `tag`, `parts`, `memory`, `progress`; the algorithms; `leg`; `ranges`; `shape`.

mod barrier;
mod chain;
mod exchange;
pub(crate) mod fault;
#[allow(
    clippy::module_inception,
    reason = "the type that the folder is named after"
)]
pub(crate) mod leg;
pub(crate) mod memory;
pub(crate) mod parts;
mod pieces;
pub(crate) mod progress;
mod ranges;
pub(crate) mod shape;
mod small;
mod tag;
mod tree;

#[cfg(test)]
mod tests;
