//! Collectives of groups that span nodes: stages within each node by the group's kernels, and legs between nodes by the
//! network, all on one queue.
//!
//! Where the host addresses the operands, and they are symmetric, what all-gathers and all-to-alls send goes from operand to
//! operand. Other data goes through the group's staging memory ([`layout`]), which the network has registered, so operands may
//! be of any memory. Large calls go in chunks, whose legs run beside the stages of the next chunk. Every plan depends only on what
//! all members know: sizes, the placement of members, and the channel.
//!
//! `stages` enqueues a stage, `legs` a leg by the network, and `rail` a leg by NCCL or RCCL; a `task` describes either.
//! `reduce` has the reductions: on nodes of equal size by *rails*, one for each number within a node, and otherwise by one
//! member of each node. `gather` has all-gather and broadcast. `pairs` has what goes between pairs of ranks: all-to-alls,
//! gather, scatter, sends and receives. `small` has calls that take less time by one member of each node. `run` checks and
//! dispatches. A `rehearsal` goes the same way, for this rank or for another member, and writes down what would be enqueued:
//! `explain` and checks of named algorithms know plans from there only.

pub(crate) mod barrier;
mod gather;
pub(crate) mod layout;
mod legs;
pub(crate) mod pairs;
mod rail;
mod reduce;
pub(crate) mod rehearsal;
pub(crate) mod run;
mod small;
pub(crate) mod stages;
mod task;
