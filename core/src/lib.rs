//! The contract of symmem's backends, and the host backend as its reference.
//!
//! [`backend`] states what a backend gives, has the types that cross, and reaches a backend by its table,
//! linked or loaded. Whoever writes a plugin depends on this crate and on nothing else of symmem's.

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("symmem runs on Linux, on x86-64 and aarch64; no other platform is supported");

pub mod backend;
pub mod epoch;
pub mod float;
pub mod host;
pub mod tickets;

// After the traits: enum_dispatch emits the enum's implementations at whichever comes last.
mod dispatch;
