//! The contract's traits for the host backend, one per file.

mod collectives;
mod device;
mod gemm;
mod multicast;
mod nccl_collectives;
mod remote_access;
mod signals;
mod symmetric_memory;
