//! The CUDA backend of symmem: NVIDIA's driver, opened at run time.
//!
//! Nothing here needs a toolkit to build, and nothing panics where no driver is installed: the
//! backend then says why it cannot start. What is where:
//!
//! - `driver`: the library, the table of its functions, its numbers and what they mean;
//! - `describe`, `libraries`, `multicast`: what is known without opening a device;
//! - `context`, `instance`, `modules`, `kernels`: opening one;
//! - `device`, `gpu`, `memory`: the trait `Device`, and what `symmem_gpu` makes the others of;
//! - `vendor`: NCCL, where it is installed;
//! - `products`, `gemm`: cuBLASLt, where it is installed, and the trait `Gemm`;
//! - `tuning`: data, which method and geometry for which size.
//!
//! What bites: a free, an unload or a first launch may wait until the device is idle, so none may
//! happen while a kernel waits for a peer; the launch path neither allocates nor locks; the caller's
//! current context is put back.

mod context;
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
mod products;
mod split_gemm;
mod tensor_maps;
mod tuning;
mod vendor;

pub use instance::CudaBackend;
pub use multicast::{
    Meaning as MulticastFailure, SLOTS as MULTICAST_SLOTS, Switch as MulticastSwitch,
    meanings as multicast_failures, switches as multicast_switches,
};

symmem_core::export_backend!(CudaBackend, symmem_backend_cuda_v1);
