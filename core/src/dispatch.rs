//! The enum of handle kinds that an open backend can have.

// enum_dispatch emits the implementations here, so the traits must be in scope. It forwards unsafe methods without an
// `unsafe` block of their own.
#![allow(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
// Each rank has one value, which never moves; boxing the large variant would add an indirection to every call.
#![allow(clippy::large_enum_variant)]

use crate::backend::abi::*;
use crate::backend::{
    CallResult, CollectiveKernels, Device, Gemm, Multicast, NcclCollectives, PluginBackend,
    RemoteAccess, Signals, SymmetricMemory,
};
use crate::host::HostBackend;
use enum_dispatch::enum_dispatch;
use std::mem::MaybeUninit;

/// An open backend. The variants are kinds of handle, not vendors.
#[allow(clippy::large_enum_variant)]
#[enum_dispatch(
    Device,
    SymmetricMemory,
    RemoteAccess,
    Signals,
    CollectiveKernels,
    NcclCollectives,
    Gemm,
    Multicast
)]
pub enum Backend {
    /// The built-in reference backend.
    Host(HostBackend),
    /// A backend reached through its table of functions, linked or loaded.
    Plugin(PluginBackend),
}
