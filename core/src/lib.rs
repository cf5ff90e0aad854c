//! The contract that symmem's backends implement, and the host backend as its reference implementation.
//!
//! [`backend`] holds the traits, the types that cross the plugin table, and the code that reaches a backend through
//! its table, linked or loaded. A plugin's author depends on this crate and on no other crate of symmem.

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("symmem runs on Linux, on x86-64 and aarch64; no other platform is supported");

pub mod backend;
pub mod epoch;
pub mod float;
pub mod host;
pub mod slots;
pub mod tickets;

// Must come after the traits: enum_dispatch emits the implementations at the trait or the enum, whichever is last.
mod dispatch;
