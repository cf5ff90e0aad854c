//! One-sided operations to ranks of other nodes, over UCX.

pub(crate) mod leg;
pub(crate) mod wire;
