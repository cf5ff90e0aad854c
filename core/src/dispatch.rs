//! The kinds of handle behind which a backend can stand.

// enum_dispatch emits each implementation here, where the traits must be in scope; it forwards
// unsafe methods without a block of their own.
#![allow(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
// A process has a handful of these, and the large variant is on every call's path.
#![allow(clippy::large_enum_variant)]

use crate::backend::abi::*;
use crate::backend::{
    CallResult, Collectives, Device, Gemm, Multicast, PluginBackend, RemoteAccess, Signals,
    SymmetricMemory, VendorCollectives,
};
use crate::host::HostBackend;
use enum_dispatch::enum_dispatch;
use std::mem::MaybeUninit;

/// An open backend. The variants are kinds of handle, not vendors.
// One value a rank, never moved about: its size does not matter, an indirection on each call would.
#[allow(clippy::large_enum_variant)]
#[enum_dispatch(
    Device,
    SymmetricMemory,
    RemoteAccess,
    Signals,
    Collectives,
    VendorCollectives,
    Gemm,
    Multicast
)]
pub enum Backend {
    /// The built-in reference backend.
    Host(HostBackend),
    /// A table of functions, linked or loaded.
    Plugin(PluginBackend),
}
