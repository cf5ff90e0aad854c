//! A device, its memory, and what the program lends to a backend that opens it.

use super::handles::DeviceAddress;
use super::memory::ShareKindCode;
use super::transfers::TransferRow;
use std::ffi::c_void;

/// Bit of [`Capabilities::flags`]: kernels on this device can use [`MethodCode::BULK`](super::MethodCode::BULK).
pub const CAPABILITY_BULK: u64 = 1 << 0;
/// Bit: streams can be captured into graphs.
pub const CAPABILITY_GRAPHS: u64 = 1 << 1;
/// Bit: a stream can wait for a word without a kernel.
pub const CAPABILITY_STREAM_WAIT: u64 = 1 << 2;
/// Bit: the device has multicast hardware. Says nothing about permission to use it.
pub const CAPABILITY_MULTICAST_HARDWARE: u64 = 1 << 3;
/// Bit: a copy engine exists apart from the compute units.
pub const CAPABILITY_COPY_ENGINE: u64 = 1 << 4;
/// Bit: kernels can be loaded and launched through [`crate::backend::Device::launch`].
pub const CAPABILITY_LAUNCH: u64 = 1 << 5;

/// The identity and size of a device, known without opening it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceDescription {
    /// The device's ordinal under the visibility variables in force.
    pub ordinal: u32,
    /// Number of streaming multiprocessors, compute units, or processors.
    pub compute_units: u32,
    /// The number in the architecture's name, e.g. 90 or 942; 0 on the host.
    pub architecture: u32,
    /// 1 if the device is a partition of a device (a MIG instance).
    pub partition: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The vendor's unique identifier of the device.
    pub uuid: [u8; 16],
    /// The device's name, UTF-8, zero-padded.
    pub name: [u8; 64],
    /// PCI address as text, zero-padded.
    pub bus: [u8; 16],
}

/// The capabilities of an open device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Capabilities {
    /// Bits `CAPABILITY_*`.
    pub flags: u64,
    /// Ways to share memory, best first, ended by 0.
    pub share_kinds: [ShareKindCode; 4],
    /// Shared allocations are rounded up to a multiple of this many bytes.
    pub share_granularity: u64,
    /// Maximum shared memory per block, in bytes.
    pub shared_memory_per_block: u32,
    /// Number of concurrent peers that saturates the links: 1 behind a switch, all peers in a mesh.
    pub fanout: u32,
    /// The transfer table for puts, ended by a row with `bytes == u64::MAX`.
    pub put_rows: [TransferRow; 8],
    /// The transfer table for gets, ended likewise.
    pub get_rows: [TransferRow; 8],
    /// Version of the driver in the vendor's numbering.
    pub driver_version: u32,
    /// Most bytes of a rank's inbox for reductions by push ([`super::ReducePushArguments::inboxes`]); 0 if this backend
    /// needs none.
    pub reduce_inbox_bytes: u32,
}

/// Free and total memory of a device, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryInformation {
    /// Bytes that can still be allocated.
    pub free: u64,
    /// Total bytes.
    pub total: u64,
}

/// Host memory that the host and the device can address; pinned on a GPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct HostMemory {
    /// The host's address.
    pub host: u64,
    /// The address for kernels and stream operations.
    pub device: DeviceAddress,
    /// Size in bytes.
    pub bytes: u64,
}

/// Dimensions of a grid and its blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks along x, y, z.
    pub blocks: [u32; 3],
    /// Threads per block along x, y, z.
    pub threads: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_memory: u32,
}

/// Services of the program that a backend may call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostServices {
    /// Size of this struct in the program's build, in bytes.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// Logs `length` bytes of UTF-8 at `level` (1 error … 5 trace).
    pub log: Option<unsafe extern "C" fn(level: u32, text: *const u8, length: usize)>,
}

/// Arguments for opening a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpenOptions {
    /// Size of this struct in the program's build, in bytes.
    pub size: u32,
    /// The device's ordinal, as in [`DeviceDescription::ordinal`].
    pub ordinal: u32,
    /// This rank, for messages.
    pub rank: u32,
    /// Number of ranks on this host; the host backend spins only if each has a processor. [`OpenOptions::OTHER_NODES`] if
    /// the job spans nodes.
    pub local_world: u32,
    /// The program's services, which outlive the instance.
    pub services: *const HostServices,
}

impl OpenOptions {
    /// As the number of ranks: there are ranks on other nodes too, and what the host backend's streams wait for may come from
    /// them. Streams then neither spin nor yield; the caller decides, since it also advances the network.
    pub const OTHER_NODES: u32 = u32::MAX;
}

/// An open backend; the table's `open` creates it and `close` destroys it.
pub type Instance = *const c_void;
