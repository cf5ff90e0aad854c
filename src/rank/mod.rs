//! One rank: its device, its allocations, its enqueued work, and the release of resources that it gave up.
//!
//! Bottom up: `streams`; `driver`; `release`; `sequence`, `side`, `allocation`; `memory_range`; `submit`; `agreement`;
//! `context`; `teardown`.

pub(crate) mod agreement;
pub(crate) mod allocation;
pub(crate) mod context;
pub(crate) mod driver;
pub(crate) mod memory_range;
pub(crate) mod release;
pub(crate) mod sequence;
pub(crate) mod side;
pub(crate) mod streams;
pub(crate) mod submit;
mod teardown;
