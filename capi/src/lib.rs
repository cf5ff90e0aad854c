//! symmem as a C library: `include/symmem.h`, which `cargo xtask capi` makes of this crate.
//!
//! Every function checks its arguments, catches panics and returns a [`symmem_status`]; the message of a failure is the
//! thread's ([`symmem_last_error`]). Handles are numbers that are looked up and never used again, so a handle that was
//! destroyed is an error.

#![allow(non_camel_case_types, reason = "the names are C's")]
#![allow(
    improper_ctypes_definitions,
    reason = "handles point to nothing, so that C must not know their layout"
)]

mod collectives;
mod communicator;
mod gemm;
mod handles;
mod memory;
mod segments;
mod status;
mod stream;
mod transfers;

pub use collectives::*;
pub use communicator::*;
pub use handles::{symmem_buffer, symmem_communicator, symmem_stream};
pub use memory::*;
pub use status::{symmem_last_error, symmem_last_error_peer, symmem_status};
pub use stream::*;
pub use transfers::*;
