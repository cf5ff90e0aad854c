//! Collectives on the host: one thread per rank does the work of a grid of one block.
//!
//! `members` synchronizes ranks; `barriered`, `packets`, `reduce_lamport` and `move_lamport` are the families of algorithms,
//! the last two over the inboxes of `lamport`; `exchange` is send and receive; `arithmetic` computes reductions; `rows` is the
//! selector's table; `call` is what a stream receives.

pub(crate) mod arithmetic;
mod barriered;
mod call;
pub(crate) mod exchange;
mod lamport;
mod members;
mod move_lamport;
mod packets;
mod reduce_lamport;
mod reduce_norm;
pub(crate) mod rows;

pub(crate) use call::Collective;
