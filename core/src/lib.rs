//! The contract, the policy and the host backend of symmem. Knows no vendor.

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("symmem runs on Linux, on x86-64 and aarch64; no other platform is supported");

pub mod backend;
pub mod epoch;
pub mod host;
