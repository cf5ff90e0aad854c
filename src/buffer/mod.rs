//! Symmetric buffers, their slices and views.

pub(crate) mod device_slice;
mod handle;
pub(crate) mod local;
mod making;
mod nccl;
pub(crate) mod operand;
pub(crate) mod segments;
pub(crate) mod slice;
pub(crate) mod symmetric;
pub(crate) mod views;
