//! Execution of a call: by kernels, by copy engines, by NCCL or RCCL.

pub(crate) mod copy_engine;
pub(crate) mod dispatch;
pub(crate) mod kernel;
pub(crate) mod nccl;
pub(crate) mod norm;
