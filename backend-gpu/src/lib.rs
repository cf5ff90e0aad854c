//! The parts that the CUDA and HIP backends share.
//!
//! Vendor runtimes differ in how they allocate and map memory, load and launch kernels, and report errors.
//! Everything else is written once, here: which kernel implements an operation, which grids may be launched,
//! and what an open device keeps. A backend implements [`Device`](symmem_core::backend::Device), [`Gpu`] and
//! [`Sharing`]; [`OpenGpu`] implements the other traits of the contract on top of them.

pub mod blaslt;
mod collectives;
mod current;
pub mod gathered_gemm;
mod gemm;
mod gpu;
pub mod kernels;
mod launch;
pub mod library;
pub mod memory;
pub mod nccl;
mod nccl_collectives;
mod open;
pub mod reduced_gemm;
mod signals;
mod state;
mod symbols;
mod transfer;
pub mod tuning;
pub mod vmm;

pub use current::Current;
pub use gpu::{Gpu, Grid};
pub use kernels::{Kernels, WaitingKernel};
pub use launch::refused_launch;
pub use memory::{SharedMemory, Sharing};
pub use open::{MOST_URGENT, OpenGpu};
pub use state::GpuState;
