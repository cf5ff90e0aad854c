//! Structs of the HIP API, as the ABI has them; each is the same in versions 5.2 to 7.14, but for
//! [`AllocationProperties`], which 5.2 had otherwise. `xtask/tests/layouts` compares them.

use std::mem::offset_of;

/// `hipUUID`.
pub type Uuid = [u8; 16];

/// `hipIpcMemHandle_t`. Crosses by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle {
    /// Opaque.
    pub reserved: [u8; 64],
}

/// `hipMemLocation`: a device, named by its ordinal.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryLocation {
    /// `hipMemLocationType`.
    pub kind: u32,
    /// The ordinal.
    pub id: i32,
}

/// `hipMemAllocationProp` from 5.3 on. Before, its fields stood in another order: such a runtime is refused
/// where it starts, as everything before 5.5 is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocationProperties {
    /// `hipMemAllocationType`.
    pub kind: u32,
    /// `hipMemAllocationHandleType`, a bit set.
    pub handle_types: u32,
    /// Where the memory is.
    pub location: MemoryLocation,
    /// Null: for another operating system.
    pub win32_metadata: usize,
    /// Compression, RDMA and usage; zero.
    pub flags: [u8; 8],
}

/// `hipMemAccessDesc`: who may do what.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessDescription {
    /// Who.
    pub location: MemoryLocation,
    /// `hipMemAccessFlags`.
    pub flags: u32,
}

/// `hipDeviceProp_t` as version 5 has it, which the unversioned `hipGetDeviceProperties` fills in later
/// versions too (`hipDeviceProp_tR0000`). Only the architecture's name is read: nothing else tells
/// gfx90a from its predecessors.
#[repr(C, align(8))]
pub struct DeviceProperties {
    before: [u8; 396],
    /// `gfx90a:sramecc+:xnack-`, zero-padded.
    pub architecture: [u8; 256],
    /// The rest, and room for a runtime that fills its own, longer struct.
    after: [u8; 4096 - 396 - 256],
}

impl DeviceProperties {
    /// All zeros.
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
    assert!(size_of::<DeviceProperties>() == 4096);
    assert!(offset_of!(DeviceProperties, architecture) == 396);
};
