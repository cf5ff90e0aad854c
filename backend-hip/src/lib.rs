//! The HIP backend of symmem: AMD's runtime, opened at run time.
//!
//! Nothing here needs ROCm to build, and nothing panics where none is installed: the backend then says why
//! it cannot start. What is where:
//!
//! - `runtime`: the library, the table of its functions, its numbers and what they mean; the run-time
//!   compiler;
//! - `describe`, `libraries`: what is known without opening a device; `masks`: what variables leave of it;
//! - `current`, `instance`, `modules`, `kernels`: opening one;
//! - `device`, `gpu`, `memory`: the trait `Device`, and what `symmem_gpu` makes the others of;
//! - `vendor`: RCCL, where it is installed;
//! - `products`, `gemm`, `gathered_gemm`: hipBLASLt, where it is installed, and the trait `Gemm`; the kernel that
//!   multiplies what it gathers;
//! - `multicast`: that there is none;
//! - `tuning`: data, which method and geometry for which size.
//!
//! What bites: a free, an unload or a first launch may wait until the device is idle, so none may happen
//! while a kernel waits for a peer; the launch path neither allocates nor locks; the caller's current
//! device is put back, and no error of ours is left in the thread's last error.

mod current;
mod describe;
mod device;
mod gathered_gemm;
mod gpu;
mod instance;
mod kernels;
mod libraries;
mod masks;
mod memory;
mod modules;
mod multicast;
mod products;
mod runtime;
mod tuning;
mod vendor;

pub use instance::HipBackend;

symmem_core::export_backend!(HipBackend, symmem_backend_hip_v1);
