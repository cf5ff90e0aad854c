//! One rank: its context, its allocations, what it has enqueued, and when what it gave up is released.

pub(crate) mod agreement;
pub(crate) mod allocation;
pub(crate) mod context;
pub(crate) mod release;
pub(crate) mod side;
pub(crate) mod teardown;
