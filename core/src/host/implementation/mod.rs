//! The traits of the contract, as the host backend implements them: a file for each.

mod collectives;
mod device;
mod gemm;
mod multicast;
mod remote_access;
mod signals;
mod symmetric_memory;
mod vendor_collectives;
