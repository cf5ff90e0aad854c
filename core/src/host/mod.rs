//! The host backend: ranks are processes or threads of one machine, symmetric memory is memfds that each rank maps,
//! and the initiator's processor makes every transfer.
//!
//! It needs only Linux, so it is the default without a GPU and the reference for all other backends. A
//! [`DeviceAddress`](crate::backend::abi::DeviceAddress) is a plain address. This backend counts the sleepers on a
//! signal word in the 32 bits after it; the allocator of signal words leaves these bits zero.

mod backend;
mod collectives;
mod copies;
#[doc(hidden)]
pub mod emulation;
mod gemm;
mod handle;
mod implementation;
mod machine;
mod progress;
mod segments;
mod signals;
mod stream;
mod words;

#[cfg(all(test, not(loom)))]
mod tests;

pub use backend::HostBackend;
pub use collectives::arithmetic::{Reduction, reduction};
