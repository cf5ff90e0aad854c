//! The contract between core and a backend.
//!
//! Eight traits, one for each noun: [`Device`], [`SymmetricMemory`], [`RemoteAccess`], [`Signals`],
//! [`Collectives`], [`VendorCollectives`], [`Gemm`] and [`Multicast`]. A backend gives mechanism only; every choice (which engine,
//! which size, which order, which deadline) is core's. What each side promises:
//!
//! - Methods take `&self` and values that cross the table (see [`Cross`]), and may be called from any
//!   thread. A backend makes its device current itself.
//! - A method enqueues and returns; none waits for a device, except allocation, mapping, module
//!   loading and freeing, which may. Core bounds those.
//! - No method allocates host memory or takes a lock that a launch could contend on once the first
//!   call of its kind has been made (launch path: `transfer`, `signal_*`, `barrier`, `launch`).
//! - Errors name the vendor's call and its number. Core adds rank, peer and size.
//! - Arguments were checked by core: bounds, overlap, alignment that a row demands, peers. A backend
//!   checks only what core cannot know.
//! - No trait has a default method, since the plugin table would silently not forward it.
//!
//! A vendor backend is always reached through its [`BackendTable`], linked or loaded: one path.

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
mod multicast;
mod plugin;
mod remote_access;
mod signals;
mod symmetric_memory;
mod table;
mod trait_tables;
mod vendor_collectives;

pub use crate::dispatch::Backend;
pub use boundary::TableEntry;
pub use collectives::Collectives;
pub use cross::{Cross, argument_bytes};
pub use device::Device;
pub use failure::{CallResult, Failure, read_text, write_text};
pub use gemm::Gemm;
pub use implementation::Implementation;
pub use load_error::LoadError;
pub use loader::load;
pub use multicast::{Multicast, WithoutMulticastObjects};
pub use plugin::{PluginBackend, Tables};
pub use remote_access::RemoteAccess;
pub use signals::Signals;
pub use symmetric_memory::SymmetricMemory;
pub use table::{ABI_MAJOR, ABI_MINOR, BackendTable, MAGIC};
pub use trait_tables::{
    CollectivesTable, DeviceTable, GemmTable, MulticastTable, RemoteAccessTable, SignalsTable,
    SymmetricMemoryTable, VendorCollectivesTable,
};
pub use vendor_collectives::{VendorCollectives, WithoutVendorCollectives};
