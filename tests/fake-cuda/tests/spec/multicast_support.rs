//! Helpers of the multicast tests.

use symmem_fake_cuda::multicast::*;
use symmem_fake_cuda::vmm::*;

use crate::support::*;

pub const UNIT: usize = 2 << 20;
pub const HARDWARE: (&str, &str) = ("FAKE_CUDA_MULTICAST_HARDWARE", "1");

pub fn object_properties(devices: u32, bytes: usize) -> ObjectProperties {
    ObjectProperties {
        devices,
        bytes,
        handle_types: 1,
        flags: 0,
    }
}

/// Creates an object of 4 units for `devices` devices.
#[track_caller]
pub fn object(devices: u32) -> u64 {
    let mut handle = 0;
    let properties = object_properties(devices, 4 * UNIT);
    ok(cuMulticastCreate(Some(&mut handle), Some(&properties)));
    handle
}

/// Creates `units` units of memory on a device.
#[track_caller]
pub fn memory(device: i32, units: usize) -> u64 {
    memory_for(device, units, 1)
}

/// Like [`memory`], for export by these handle types.
#[track_caller]
pub fn memory_for(device: i32, units: usize, handle_types: u32) -> u64 {
    let mut handle = 0;
    let location = Location {
        kind: 1,
        id: device,
    };
    let properties = Properties {
        kind: 1,
        handle_types,
        location,
        ..Default::default()
    };
    ok(cuMemCreate(
        Some(&mut handle),
        units * UNIT,
        Some(&properties),
        0,
    ));
    handle
}

/// Maps memory or an object with access for a device.
#[track_caller]
pub fn mapped(handle: u64, units: usize, device: i32) -> u64 {
    let mut base = 0;
    let bytes = units * UNIT;
    ok(cuMemAddressReserve(Some(&mut base), bytes, UNIT, 0, 0));
    ok(cuMemMap(base, bytes, 0, handle, 0));
    let access = Access {
        location: Location {
            kind: 1,
            id: device,
        },
        flags: 3,
    };
    // SAFETY: the array has one descriptor.
    ok(unsafe { cuMemSetAccess(base, bytes, &access, 1) });
    base
}

#[track_caller]
pub fn unmapped(base: u64, units: usize) {
    ok(cuMemUnmap(base, units * UNIT));
    ok(cuMemAddressFree(base, units * UNIT));
}
