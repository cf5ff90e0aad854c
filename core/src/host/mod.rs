//! The host backend: ranks are processes or threads of one machine, memory is memfd mapped by each,
//! and the initiator's processor does every transfer.
//!
//! It needs nothing but Linux, so it is the default where no GPU is found, and the reference that
//! every other backend must agree with. A [`DeviceAddress`](crate::backend::abi::DeviceAddress) is a plain address. The 32 bits after
//! each signal word belong to this backend: it counts there who sleeps on the word, and whoever
//! allocates signal words leaves that space zero.

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
