//! Structs of the HIP API in their ABI layout, which is the same in versions 5.2 to 7.14, except for
//! [`AllocationProperties`], which differs in 5.2. `tests/hip-layouts` compares them.

use std::mem::offset_of;

/// `hipUUID`.
pub type Uuid = [u8; 16];

/// `hipIpcMemHandle_t`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle {
    /// Opaque.
    pub reserved: [u8; 64],
}

/// `hipMemLocation`: a device, by ordinal.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryLocation {
    /// `hipMemLocationType`.
    pub kind: u32,
    /// The ordinal.
    pub id: i32,
}

/// `hipMemAllocationProp` from 5.3 on. Older versions have another field order, but runtimes before 5.7 are refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocationProperties {
    /// `hipMemAllocationType`.
    pub kind: u32,
    /// `hipMemAllocationHandleType`, a bit set.
    pub handle_types: u32,
    /// Where the memory is.
    pub location: MemoryLocation,
    /// Null; used on Windows only.
    pub win32_metadata: usize,
    /// Compression, RDMA and usage; zero.
    pub flags: [u8; 8],
}

/// `hipMemAccessDesc`: which device has which access.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessDescription {
    /// Device.
    pub location: MemoryLocation,
    /// `hipMemAccessFlags`.
    pub flags: u32,
}

/// `hipExternalMemoryHandleDesc`. Older versions end before `reserved`, so a longer struct serves them, too.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExternalHandle {
    /// `hipExternalMemoryHandleType`.
    pub kind: u32,
    /// A union; of a descriptor the first word counts.
    pub handle: [u64; 2],
    /// Bytes.
    pub size: u64,
    /// Zero.
    pub flags: u32,
    /// Zero.
    pub reserved: [u32; 16],
}

impl ExternalHandle {
    /// Describes `bytes` bytes of memory behind a file descriptor.
    pub fn of_descriptor(kind: u32, descriptor: i32, bytes: u64) -> Self {
        Self {
            kind,
            // Little-endian: the int at the union's start is the lower half.
            handle: [u64::from(descriptor as u32), 0],
            size: bytes,
            flags: 0,
            reserved: [0; 16],
        }
    }
}

/// `hipExternalMemoryBufferDesc`, with a `reserved` as in [`ExternalHandle`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExternalBuffer {
    /// Bytes from the start of the memory.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Zero.
    pub flags: u32,
    /// Zero.
    pub reserved: [u32; 16],
}

impl ExternalBuffer {
    /// Describes the first `bytes` bytes.
    pub fn whole(bytes: u64) -> Self {
        Self {
            offset: 0,
            size: bytes,
            flags: 0,
            reserved: [0; 16],
        }
    }
}

/// `hipDeviceProp_t` of version 5. The unversioned `hipGetDeviceProperties` fills in this layout in later
/// versions, too (`hipDeviceProp_tR0000`). Only the architecture's name is read; nothing else distinguishes
/// gfx90a from its predecessors.
#[repr(C, align(8))]
pub struct DeviceProperties {
    before: [u8; 396],
    /// `gfx90a:sramecc+:xnack-`, zero-padded.
    pub architecture: [u8; 256],
    /// The rest, with room for a runtime that writes a longer struct.
    after: [u8; 4096 - 396 - 256],
}

impl DeviceProperties {
    /// Returns a struct of zeros.
    pub const fn zeroed() -> Self {
        Self {
            before: [0; 396],
            architecture: [0; 256],
            after: [0; 4096 - 396 - 256],
        }
    }
}

const _: () = {
    assert!(size_of::<IpcHandle>() == 64);
    assert!(size_of::<MemoryLocation>() == 8 && offset_of!(MemoryLocation, id) == 4);
    assert!(size_of::<AllocationProperties>() == 32 && align_of::<AllocationProperties>() == 8);
    assert!(offset_of!(AllocationProperties, handle_types) == 4);
    assert!(offset_of!(AllocationProperties, location) == 8);
    assert!(offset_of!(AllocationProperties, win32_metadata) == 16);
    assert!(offset_of!(AllocationProperties, flags) == 24);
    assert!(size_of::<AccessDescription>() == 12 && offset_of!(AccessDescription, flags) == 8);
    assert!(size_of::<ExternalHandle>() == 104 && offset_of!(ExternalHandle, handle) == 8);
    assert!(offset_of!(ExternalHandle, size) == 24 && offset_of!(ExternalHandle, flags) == 32);
    assert!(size_of::<ExternalBuffer>() == 88 && offset_of!(ExternalBuffer, flags) == 16);
    assert!(size_of::<DeviceProperties>() == 4096);
    assert!(offset_of!(DeviceProperties, architecture) == 396);
};
