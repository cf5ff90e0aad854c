//! The CUDA backend of symmem. Opens NVIDIA's driver at run time.
//!
//! Building it needs no toolkit, and nothing panics without a driver: the backend then says why it cannot
//! start. What is where:
//!
//! - `driver`: the library, the table of its functions, its constants and their meaning;
//! - `describe`, `libraries`, `multicast`: what is known without opening a device;
//! - `context`, `instance`, `modules`, `kernels`: opening a device;
//! - `device`, `gpu`, `memory`: the traits from which `symmem_gpu` builds the others;
//! - `clusters`, `gathered_gemm`, `split_gemm`, `tensor_maps`: all-gather + GEMM on Hopper;
//! - `push_reduce`, `split_reduce`: GEMM + reduce on Hopper, with large tiles and for few rows;
//! - `reduced_gemm`: GEMM + reduce-scatter and + all-reduce in one kernel;
//! - `nccl`, `cublaslt`: NCCL and cuBLASLt, if they are installed;
//! - `tuning`: data, which method and geometry to use for which size.
//!
//! Dangers: a free, an unload or a first launch may wait for an idle device, so none may happen while a kernel waits
//! for a peer. The launch path neither allocates nor locks. Every call restores the caller's current context.

mod clusters;
mod context;
mod cublaslt;
mod describe;
mod device;
mod driver;
mod gathered_gemm;
mod gpu;
mod instance;
mod kernels;
mod libraries;
mod memory;
mod modules;
mod multicast;
mod nccl;
mod push_reduce;
mod reduced_gemm;
mod split_gemm;
mod split_reduce;
mod tensor_maps;
mod tuning;

pub use instance::CudaBackend;
pub use multicast::{
    ErrorAdvice as MulticastFailure, SLOTS as MULTICAST_SLOTS, Switch as MulticastSwitch,
    meanings as multicast_failures, switches as multicast_switches,
};

symmem_core::export_backend!(CudaBackend, symmem_backend_cuda_v1);
