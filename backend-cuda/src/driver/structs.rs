//! Structs of the driver API whose declaration differs between CUDA versions, in the ABI's layout.
//!
//! `CUmemLocation` gained a union in CUDA 13.2, which changed the structs that contain it, so a binding built
//! for one version does not compile against another. The bytes are the same in all versions.

use cudarc::driver::sys::CUstream;
use std::mem::offset_of;

/// `CUmemLocation`: a device, by ordinal.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryLocation {
    /// `CUmemLocationType`.
    pub kind: u32,
    /// The ordinal.
    pub id: i32,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocationProperties {
    /// `CUmemAllocationType`.
    pub kind: u32,
    /// `CUmemAllocationHandleType`, a bit set.
    pub handle_types: u32,
    /// Where the memory is.
    pub location: MemoryLocation,
    /// Null; for Windows.
    pub win32_metadata: usize,
    /// Compression, RDMA and usage; zero.
    pub flags: [u8; 8],
}

/// `CUlaunchAttribute`: its ID, and a union of 64 bytes of which this crate uses at most three words.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct LaunchAttribute {
    /// `CUlaunchAttributeID`.
    pub kind: u32,
    /// Zero.
    pub padding: u32,
    /// The value's first word.
    pub value: u32,
    /// The rest of the union: zero, or a cluster's dimensions along y and z first.
    pub rest: [u32; 15],
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfiguration {
    /// Blocks along x, y, z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y, z.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_memory: u32,
    /// The stream.
    pub stream: CUstream,
    /// Array of `count` attributes.
    pub attributes: *const LaunchAttribute,
    /// Number of attributes.
    pub count: u32,
}

const _: () = assert!(
    size_of::<LaunchAttribute>() == 72
        && offset_of!(LaunchAttribute, value) == 8
        && size_of::<LaunchConfiguration>() == 56
        && offset_of!(LaunchConfiguration, stream) == 32
        && offset_of!(LaunchConfiguration, attributes) == 40
        && offset_of!(LaunchConfiguration, count) == 48
);

/// `CUmemAccessDesc`: access rights of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessDescription {
    /// The device.
    pub location: MemoryLocation,
    /// `CUmemAccess_flags`.
    pub flags: u32,
}

const _: () = {
    assert!(size_of::<MemoryLocation>() == 8);
    assert!(offset_of!(MemoryLocation, id) == 4);
    assert!(size_of::<AllocationProperties>() == 32 && align_of::<AllocationProperties>() == 8);
    assert!(offset_of!(AllocationProperties, handle_types) == 4);
    assert!(offset_of!(AllocationProperties, location) == 8);
    assert!(offset_of!(AllocationProperties, win32_metadata) == 16);
    assert!(offset_of!(AllocationProperties, flags) == 24);
    assert!(size_of::<AccessDescription>() == 12);
    assert!(offset_of!(AccessDescription, flags) == 8);
};

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;

    #[test]
    fn layouts_are_those_of_the_binding() {
        assert_eq!(size_of::<MemoryLocation>(), size_of::<sys::CUmemLocation>());
        assert_eq!(
            size_of::<AllocationProperties>(),
            size_of::<sys::CUmemAllocationProp>()
        );
        assert_eq!(
            size_of::<AccessDescription>(),
            size_of::<sys::CUmemAccessDesc>()
        );
    }
}
