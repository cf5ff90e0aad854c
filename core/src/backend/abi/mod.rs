//! Every type that crosses the boundary between core and a backend.
//!
//! Only integers, pointers with lengths and `repr(C)` structs of those live here: a backend may be a
//! shared object built by another compiler. Within a major version only structs that carry their size
//! grow, at their end; every other layout is fixed. A snapshot test pins each. Arguments of kernels are also passed, by
//! value, to kernels: `device/include/symmem/abi.h` declares the same layouts and both sides assert size
//! and offsets.

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u64);
        impl $name {
            /// The handle that names nothing; on GPUs the null stream.
            pub const NULL: Self = Self(0);
        }
    };
}
handle!(
    /// An address a device (or, on the host backend, a processor) can load and store.
    DeviceAddress
);
handle!(
    /// A queue of ordered work. On a GPU it is the driver's own stream handle.
    RawStream
);
handle!(
    /// A point in a stream's work.
    RawEvent
);
handle!(
    /// Captured work, not yet launchable.
    RawGraph
);
handle!(
    /// Captured work, instantiated: launchable any number of times.
    RawGraphExec
);
handle!(
    /// Loaded device code.
    RawModule
);
handle!(
    /// A kernel inside a loaded module.
    RawFunction
);
handle!(
    /// Memory this process allocated to share it.
    RawAllocation
);
handle!(
    /// A peer's allocation as this process sees it.
    RawMapping
);
handle!(
    /// A communicator of the vendor's library of collectives.
    RawVendor
);
handle!(
    /// A multicast object: one address behind which every member's memory lies.
    RawMulticast
);

macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:expr,)+ }) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            $($(#[$vdoc])* pub const $variant: Self = Self($value);)+
            /// The name of the value, or `unknown` for one from a newer version.
            pub fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($variant),)+ _ => "unknown" }
            }
        }
    };
}

mod collectives;
mod device;
mod gemm;
mod memory;
mod multicast;
mod signals;
mod transfers;
mod vendor;

pub use collectives::*;
pub use device::*;
pub use gemm::*;
pub use memory::*;
pub use multicast::*;
pub use signals::*;
pub use transfers::*;
pub use vendor::*;

/// Most ranks a node group can have; the length of every table of peers that a kernel takes by value.
///
/// 72 is the largest domain of links sold.
pub const MAX_RANKS: usize = 72;

open_enum!(
    /// What became of a call through the table. Anything but `OK` has a [`FailureRecord`].
    Status {
        /// It worked.
        OK = 0,
        /// The vendor's call failed; the record has its name and number.
        CALL_FAILED = 1,
        /// No memory of that kind is left on this device.
        OUT_OF_MEMORY = 2,
        /// The backend, the device or the driver cannot do this.
        UNSUPPORTED = 3,
        /// An argument is outside what the contract allows.
        INVALID_ARGUMENT = 4,
        /// There is no such device.
        NO_DEVICE = 5,
        /// A library or a symbol in it is missing.
        LIBRARY_MISSING = 6,
        /// This device cannot address that peer's memory.
        PEER_UNREACHABLE = 7,
        /// The backend panicked; the panic was caught at the table.
        PANICKED = 8,
        /// Work submitted earlier failed, and the device's context is lost.
        CONTEXT_LOST = 9,
    }
);

/// What went wrong in the last failed call of this thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FailureRecord {
    /// The status that the call returned.
    pub status: Status,
    /// The vendor's error number, 0 if there is none.
    pub vendor_code: i32,
    /// The failing call as the vendor spells it, UTF-8, zero-padded.
    pub call: [u8; 64],
    /// What it said and what to do about it, UTF-8, zero-padded.
    pub message: [u8; 952],
}
