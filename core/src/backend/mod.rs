//! The contract between the library and a backend.
//!
//! Eight traits, one for each noun: [`Device`], [`SymmetricMemory`], [`RemoteAccess`], [`Signals`], [`CollectiveKernels`],
//! [`NcclCollectives`], [`Gemm`] and [`Multicast`]. A backend gives mechanism only. The library (crate `symmem`)
//! makes every choice: engine, size, order, deadline. Each side promises:
//!
//! - Methods take `&self` and values that cross the table (see [`Cross`]). Any thread may call them; a backend makes
//!   its device current itself.
//! - A method enqueues and returns without waiting for a device. Allocation, mapping, module loading and freeing may
//!   block; the library bounds them.
//! - On the launch path (`transfer`, `signal_*`, `barrier`, `launch`), a method neither allocates host memory nor
//!   takes a lock that another launch may contend for, after the first call of its kind.
//! - Errors name the vendor's call and its error number. The library adds rank, peer and size.
//! - The library has checked the arguments: bounds, overlap, the alignment that a row requires, peers. A backend
//!   checks only what the library cannot know.
//! - No trait has a default method, because the plugin table would silently not forward it.
//!
//! A vendor backend is always reached through its [`BackendTable`], whether linked or loaded.

pub mod abi;
mod boundary;
mod collectives;
mod cross;
mod device;
mod failure;
mod forward;
mod gemm;
mod implementation;
mod load_error;
mod loader;
mod mapped_file;
mod multicast;
mod nccl_collectives;
mod plugin;
mod plugin_file;
mod pointers;
mod remote_access;
mod shared_object;
mod signals;
mod symbol_kind;
mod symmetric_memory;
mod table;
mod table_error;
mod trait_tables;

pub use crate::dispatch::Backend;
pub use boundary::TableEntry;
pub use collectives::CollectiveKernels;
pub use cross::{Cross, argument_bytes};
pub use device::Device;
pub use failure::{CallResult, Failure, read_text, write_text};
pub use gemm::Gemm;
pub use implementation::Implementation;
pub use load_error::LoadError;
pub use loader::load;
pub use mapped_file::file_of;
pub use multicast::{Multicast, WithoutMulticastObjects};
pub use nccl_collectives::{NcclCollectives, WithoutNcclCollectives};
pub use plugin::{PluginBackend, Tables};
pub use plugin_file::WorldWritable;
pub use remote_access::RemoteAccess;
pub use shared_object::{ObjectError, check as check_shared_object};
pub use signals::Signals;
pub use symmetric_memory::SymmetricMemory;
pub use table::{ABI_MAJOR, ABI_MINOR, BackendTable, MAGIC};
pub use table_error::TableError;
pub use trait_tables::{
    CollectivesTable, DeviceTable, GemmTable, MulticastTable, NcclCollectivesTable,
    RemoteAccessTable, SignalsTable, SymmetricMemoryTable,
};
