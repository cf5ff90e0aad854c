//! Memory: caching, copies, virtual memory management.

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use symmem_fake_hip::memory::*;
use symmem_fake_hip::sharing::*;
use symmem_fake_hip::vmm::*;

use crate::support::*;

const UNIT: usize = GRANULARITY as usize;

#[test]
fn a_copy_says_which_way_it_goes() {
    alone(&[], || {
        let (device, mut host) = (device_memory(8), [0u8; 8]);
        write(device, b"8 bytes!");
        let place = host.as_mut_ptr() as u64;
        // SAFETY: the host buffer has eight bytes.
        let copy = |to, from, kind| unsafe { hipMemcpy(to, from, 8, kind) };
        ok(copy(place, device, 2));
        assert_eq!(&host, b"8 bytes!");
        ok(copy(device, place, 4));
        assert_eq!(copy(device, place, 9), 21, "no such direction");
        assert_eq!(
            copy(device, device + 4, 1),
            1,
            "device memory passed as host memory"
        );
        violated("passed as host memory");
    });
}

/// `hipMemcpyDeviceToDeviceNoCU`.
fn copy_without_units(to: u64, from: u64) -> i32 {
    // SAFETY: the tests pass addresses of eight bytes.
    unsafe { hipMemcpy(to, from, 8, 1024) }
}

#[test]
fn a_copy_is_kept_off_the_compute_units_between_devices_only() {
    let mut host = [0u8; 8];
    let place = host.as_mut_ptr() as u64;
    alone(&[("FAKE_HIP_RELEASE", "6.1")], || {
        let (one, other) = (device_memory(8), device_memory(8));
        write(one, b"8 bytes!");
        ok(copy_without_units(other, one));
        assert_eq!(read(other, 8), b"8 bytes!");
        assert_eq!(copy_without_units(place, one), 1);
        violated("is not memory that the driver knows");
    });
}

#[test]
fn before_six_one_no_copy_is_kept_off_the_compute_units() {
    alone(&[("FAKE_HIP_RELEASE", "6.0")], || {
        let memory = device_memory(8);
        assert_eq!(copy_without_units(memory, memory), 21, "no such direction");
    });
}

#[test]
fn memory_is_uncached_where_release_and_processor_have_that() {
    let allocate = |flags| {
        let mut address = 0;
        let code = hipExtMallocWithFlags(Some(&mut address), 64, flags);
        if code == 0 {
            ok(hipFree(address));
        }
        code
    };
    alone(&[("FAKE_HIP_RELEASE", "5.2")], || {
        assert_eq!((allocate(0), allocate(1)), (0, 0));
        assert_eq!(allocate(3), 1, "added in 5.5");
        clean();
    });
}

#[test]
fn null_is_freed_and_nothing_else_twice() {
    alone(&[], || {
        ok(hipFree(0));
        ok(hipHostFree(0));
        let memory = device_memory(4);
        ok(hipFree(memory));
        assert_eq!(hipFree(memory), 1);
        violated("no longer");
    });
}

#[test]
fn a_pointer_s_kind_is_numbered_by_the_release() {
    let kind = |address| {
        let mut kind: c_int = -1;
        let place = (&raw mut kind).cast();
        // SAFETY: the attribute is a C int.
        ok(unsafe { hipPointerGetAttribute(place, 2, address) });
        kind
    };
    alone(&[("FAKE_HIP_RELEASE", "5.2")], || {
        assert_eq!((kind(host_memory(4)), kind(device_memory(4))), (0, 1));
    });
}

/// Creates memory without addresses, for export.
fn create() -> u64 {
    let location = Location { kind: 1, id: 0 };
    let properties = Properties {
        kind: 1,
        handle_types: 1,
        location,
        ..Default::default()
    };
    let mut handle = 0;
    ok(hipMemCreate(Some(&mut handle), UNIT, Some(&properties), 0));
    handle
}

fn export(handle: u64) -> OwnedFd {
    let mut descriptor = -1;
    ok(hipMemExportToShareableHandle(
        Some(&mut descriptor),
        handle,
        1,
        0,
    ));
    // SAFETY: the runtime has just returned this descriptor, which nothing else owns.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn import(shareable: *mut c_void) -> i32 {
    let mut handle = 0;
    // SAFETY: the shareable handle is a descriptor or a pointer to one.
    let code = unsafe { hipMemImportFromShareableHandle(Some(&mut handle), shareable, 1) };
    if code == 0 {
        ok(hipMemRelease(handle));
    }
    code
}

#[test]
fn a_descriptor_is_imported_by_value_from_seven_one_on() {
    use std::os::fd::AsRawFd;
    alone(&[], || {
        let handle = create();
        let descriptor = export(handle);
        let mut number = descriptor.as_raw_fd();
        ok(import(number as usize as *mut c_void));
        assert_ne!(
            import((&raw mut number).cast()),
            0,
            "a pointer is not a descriptor"
        );
        ok(hipMemRelease(handle));
    });
}

#[test]
fn a_descriptor_is_imported_by_a_pointer_before() {
    use std::os::fd::AsRawFd;
    alone(&[("FAKE_HIP_RELEASE", "6.4")], || {
        let handle = create();
        let descriptor = export(handle);
        let mut number = descriptor.as_raw_fd();
        ok(import((&raw mut number).cast()));
        assert_eq!(import(number as usize as *mut c_void), 1);
        violated("imported by a pointer to it");
        ok(hipMemRelease(handle));
    });
}

#[test]
fn access_is_set_from_the_start_of_a_reservation() {
    alone(&[], || {
        let (one, other, mut base) = (create(), create(), 0);
        ok(hipMemAddressReserve(Some(&mut base), 2 * UNIT, 0, 0, 0));
        ok(hipMemMap(base, UNIT, 0, one, 0));
        ok(hipMemMap(base + UNIT as u64, UNIT, 0, other, 0));
        let location = Location { kind: 1, id: 0 };
        let access = [Access { location, flags: 3 }];
        // SAFETY: the array has one descriptor.
        let set = |base, bytes| unsafe { hipMemSetAccess(base, bytes, access.as_ptr(), 1) };
        assert_eq!(set(base + UNIT as u64, UNIT), 1);
        violated("inside a reservation");
        ok(set(base, 2 * UNIT));
        write(base + UNIT as u64, b"mapped");
        let mut handle = IpcHandle::default();
        assert_eq!(hipIpcGetMemHandle(Some(&mut handle), base), 1);
        violated("is not an allocation");
        ok(hipMemUnmap(base, 2 * UNIT));
        ok(hipMemAddressFree(base, 2 * UNIT));
        ok(hipMemRelease(one));
        ok(hipMemRelease(other));
        clean();
    });
}

/// Maps memory and returns a handle retained from its address.
fn found_by_its_address() -> u64 {
    let (handle, mut base, mut found) = (create(), 0, 0);
    ok(hipMemAddressReserve(Some(&mut base), UNIT, 0, 0, 0));
    ok(hipMemMap(base, UNIT, 0, handle, 0));
    ok(hipMemRetainAllocationHandle(Some(&mut found), base));
    assert_eq!(found, handle);
    handle
}

#[test]
fn a_handle_is_asked_for_of_mapped_memory_only_and_is_not_held() {
    alone(&[], || {
        let handle = found_by_its_address();
        ok(hipMemRelease(handle));
        assert_eq!(hipMemRelease(handle), 1);
        violated("was destroyed before");
        let mut found = 0;
        let code = hipMemRetainAllocationHandle(Some(&mut found), device_memory(64));
        assert_eq!(code, 1);
        violated("is not mapped");
    });
}

#[test]
fn a_handle_may_be_asked_for_of_any_memory_from_seven_fourteen_on_and_is_held() {
    alone(&[("FAKE_HIP_RELEASE", "7.14")], || {
        let handle = found_by_its_address();
        ok(hipMemRelease(handle));
        ok(hipMemRelease(handle));
        let mut found = 0;
        let code = hipMemRetainAllocationHandle(Some(&mut found), device_memory(64));
        assert_eq!(code, 1);
        clean();
    });
}

#[test]
fn the_first_release_has_no_virtual_memory() {
    alone(&[("FAKE_HIP_RELEASE", "5.2")], || {
        let mut base = 0;
        assert_eq!(hipMemAddressReserve(Some(&mut base), UNIT, 0, 0, 0), 801);
    });
}

#[test]
fn the_first_address_behind_a_mapping_is_answered_for_as_if_it_were_in_it() {
    alone(&[], || {
        let (handle, mut base) = (create(), 0);
        ok(hipMemAddressReserve(Some(&mut base), 2 * UNIT, 0, 0, 0));
        ok(hipMemMap(base, UNIT, 0, handle, 0));
        let location = Location { kind: 1, id: 0 };
        let asked = |at| hipMemGetAccess(Some(&mut 0), Some(&location), base + at);
        let end = UNIT as u64;
        assert_eq!([0, end - 1, end, end + 1].map(asked), [0, 0, 0, 1]);
        ok(hipMemUnmap(base, UNIT));
        ok(hipMemAddressFree(base, 2 * UNIT));
        ok(hipMemRelease(handle));
        clean();
    });
}

#[test]
fn rows_are_copied_between_strides_whichever_way_they_are_said_to_go() {
    alone(&[], || {
        let (memory, stream) = (device_memory(64), stream());
        write(
            memory,
            &std::array::from_fn::<u8, 64, _>(|index| index as u8),
        );
        let copy = |to, to_stride, from, from_stride, kind| {
            hipMemcpy2DAsync(to, to_stride, from, from_stride, 2, 3, kind, stream)
        };
        for kind in [3, 4] {
            ok(copy(memory + 32, 5, memory, 4, kind));
            ok(symmem_fake_hip::streams::hipStreamSynchronize(stream));
            assert_eq!(read(memory + 32, 5), [0, 1, 34, 35, 36]);
            assert_eq!(read(memory + 37, 6), [4, 5, 39, 40, 41, 8]);
        }
        clean();
        assert_eq!(copy(memory, 4, memory, 4, 9), 21, "no such direction");
        assert_eq!(copy(memory + 32, 1, memory, 4, 4), 1);
        violated("1 bytes apart");
        assert_eq!(copy(memory + 32, 5, memory, 4, 1), 1);
        violated("passed as host memory");
    });
}
