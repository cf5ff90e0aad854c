//! The parts that the CUDA and HIP backends share.
//!
//! Vendor runtimes differ in how they allocate and map memory, load and launch kernels, and report errors.
//! Everything else is written once, here: which kernel implements an operation, which grids may be launched,
//! and what an open device keeps. A backend implements [`Device`](symmem_core::backend::Device), [`Gpu`] and
//! [`Sharing`]; [`OpenGpu`] implements the other traits of the contract on top of them.

mod collectives;
mod current;
pub mod gathered_gemm;
mod gemm;
mod gpu;
pub mod kernels;
pub mod library;
pub mod matrix_library;
pub mod memory;
mod open;
mod parts;
mod signals;
mod symbols;
mod transfer;
pub mod tuning;
mod vendor_collectives;
pub mod vendor_library;
pub mod vmm;

pub use current::Current;
pub use gpu::{Gpu, Grid};
pub use kernels::{Kernels, WaitingKernel};
pub use memory::{SharedMemory, Sharing};
pub use open::OpenGpu;
pub use parts::Parts;
