//! The HIP backend of symmem, which opens AMD's HIP runtime at run time.
//!
//! It builds without ROCm. Without a runtime it reports why it cannot start, and does not panic. What is where:
//!
//! - `runtime`: the library, the table of its functions, its constants and their meaning; the run-time compiler;
//! - `describe`, `libraries`: what is known without opening a device; `masks`: compute units that variables mask;
//! - `current`, `instance`, `modules`, `kernels`: opening a device;
//! - `device`, `gpu`, `memory`: the traits that the vendor implements; `symmem_gpu` builds the others on them;
//! - `rccl`, `hipblaslt`: RCCL and hipBLASLt, if they are installed;
//! - `gathered_gemm`: the all-gather + GEMM kernels;
//! - `reduced_gemm`: GEMM + reduce-scatter and + all-reduce in one kernel;
//! - `multicast`: reports that there is none;
//! - `tuning`: data, which method and geometry to use for which size.
//!
//! Dangers: freeing, unloading and first launches may wait for an idle device, and so must not happen while a
//! kernel waits for a peer. The launch path must not allocate or lock. Every call restores the caller's current
//! device, and leaves no error of symmem in the thread's last error.

mod current;
mod describe;
mod device;
mod gathered_gemm;
mod gemm_rounds;
mod gemm_tiles;
mod gpu;
mod hipblaslt;
mod instance;
mod kernels;
mod libraries;
mod masks;
mod memory;
mod modules;
mod multicast;
mod rccl;
mod reduced_gemm;
mod runtime;
mod tuning;

pub use instance::HipBackend;

symmem_core::export_backend!(HipBackend, symmem_backend_hip_v1);
