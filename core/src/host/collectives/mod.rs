//! Collectives on the host: one thread a rank does what a grid of one block would.
//!
//! `members` is how ranks keep in step, `barriered` and `packets` the families, `exchange` sends and
//! receives, `arithmetic` what reductions compute, `rows` which algorithm for which size, `call` what a stream
//! is asked for.

pub(crate) mod arithmetic;
mod barriered;
mod call;
pub(crate) mod exchange;
mod members;
mod packets;
pub(crate) mod rows;

pub(crate) use call::Collective;
