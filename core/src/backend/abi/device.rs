//! A device, its memory and what core lends to a backend that opens it.

use super::handles::DeviceAddress;
use super::memory::ShareKind;
use super::transfers::TransferRow;
use std::ffi::c_void;

/// Set in [`Capabilities::flags`]: kernels launched here can use [`Method::BULK`](super::Method::BULK).
pub const CAPABILITY_BULK: u64 = 1 << 0;
/// Streams can be captured into graphs.
pub const CAPABILITY_GRAPHS: u64 = 1 << 1;
/// A stream can wait on a word without a kernel.
pub const CAPABILITY_STREAM_WAIT: u64 = 1 << 2;
/// The device has the hardware for multicast. Says nothing about permission to use it.
pub const CAPABILITY_MULTICAST_HARDWARE: u64 = 1 << 3;
/// A copy engine exists apart from the compute units.
pub const CAPABILITY_COPY_ENGINE: u64 = 1 << 4;
/// Kernels can be loaded and launched through [`crate::backend::Device::launch`].
pub const CAPABILITY_LAUNCH: u64 = 1 << 5;

/// A device as a backend describes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceDescription {
    /// The ordinal under the visibility variables in force.
    pub ordinal: u32,
    /// Compute units (streaming multiprocessors, compute units, or processors).
    pub compute_units: u32,
    /// The number in the architecture's name, e.g. 90 or 942; 0 on the host.
    pub architecture: u32,
    /// 1 if the device is a partition of a device (a MIG instance).
    pub partition: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// What the vendor identifies this very device by.
    pub uuid: [u8; 16],
    /// The device's name, UTF-8, zero-padded.
    pub name: [u8; 64],
    /// PCI address as text, zero-padded.
    pub bus: [u8; 16],
}

/// What an open device can do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Capabilities {
    /// `CAPABILITY_*`.
    pub flags: u64,
    /// Strategies for sharing memory, best first, ended by 0.
    pub share_kinds: [ShareKind; 4],
    /// Bytes that allocations to be shared are rounded up to.
    pub share_granularity: u64,
    /// Most bytes of shared memory a block can have.
    pub shared_memory_per_block: u32,
    /// How many peers at once keep the links busy: 1 behind a switch, all of them in a mesh.
    pub fanout: u32,
    /// The transfer table for puts, ended by a row of `bytes == u64::MAX`.
    pub put_rows: [TransferRow; 8],
    /// The transfer table for gets.
    pub get_rows: [TransferRow; 8],
    /// Version of the driver, as the vendor numbers it.
    pub driver_version: u32,
    /// Bytes that a rank should give for what the others push at it in reductions
    /// ([`super::ReducePushArguments::inboxes`]); 0 where a reduction by pushing takes none.
    pub reduce_inbox_bytes: u32,
}

/// Free and total memory of a device, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryInformation {
    /// Bytes an allocation could still get.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// Host memory that both the host and the device address; pinned on a GPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct HostMemory {
    /// The host's pointer.
    pub host: u64,
    /// The same bytes as kernels and stream operations address them.
    pub device: DeviceAddress,
    /// Bytes.
    pub bytes: u64,
}

/// A grid of blocks of threads.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks along x, y, z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y, z.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_memory: u32,
}

/// Services of the host program that a backend may call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostServices {
    /// Bytes of this struct in the host's build.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// Log `length` bytes of UTF-8 at `level` (1 error … 5 trace).
    pub log: Option<unsafe extern "C" fn(level: u32, text: *const u8, length: usize)>,
}

/// How to open a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpenOptions {
    /// Bytes of this struct in the host's build.
    pub size: u32,
    /// The device's ordinal as probed.
    pub ordinal: u32,
    /// This rank, for messages.
    pub rank: u32,
    /// Ranks on this host, which a spinning host backend compares with its processors.
    pub local_world: u32,
    /// The host's services; outlives the instance.
    pub services: *const HostServices,
}

/// An open backend, owned by the table's `open` and `close`.
pub type Instance = *const c_void;
