//! What every backend for a GPU has in common.
//!
//! A vendor's runtime differs in how memory is made and mapped, how a kernel is loaded and launched, and
//! how errors are told. Which kernel does what, which grids may be launched, and what an instance keeps
//! are the same, and stand here once: a backend implements [`Device`](symmem_core::backend::Device), [`Gpu`] and [`Sharing`], and has
//! the other traits of the contract from here.

mod collectives;
pub mod gathered_gemm;
mod gemm;
mod gpu;
pub mod kernels;
pub mod library;
pub mod matrix_library;
pub mod memory;
mod open;
mod signals;
mod symbols;
mod transfer;
pub mod tuning;
mod vendor_collectives;
pub mod vendor_library;
pub mod vmm;

pub use gpu::{Current, Gpu, Grid, Parts};
pub use kernels::{Kernels, WaitingKernel};
pub use memory::{SharedMemory, Sharing};
pub use open::OpenGpu;
