//! Groups of ranks: membership, the memory with which members synchronize, the selector, NCCL.

pub(crate) mod choice;
pub(crate) mod compared;
pub(crate) mod dependents;
pub(crate) mod families;
pub(crate) mod far;
pub(crate) mod inbox;
pub(crate) mod lanes;
pub(crate) mod membership;
pub(crate) mod named;
pub(crate) mod nccl;
pub(crate) mod operations;
pub(crate) mod provider;
pub(crate) mod reserve;
pub(crate) mod residency;
pub(crate) mod selector;
pub(crate) mod slots;
pub(crate) mod span;
pub(crate) mod state;
