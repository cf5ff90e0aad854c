//! Allocations, addresses and mappings.

use symmem_fake_cuda::allocations::*;
use symmem_fake_cuda::contexts::*;
use symmem_fake_cuda::copies::*;
use symmem_fake_cuda::driver::Kind;
use symmem_fake_cuda::report;
use symmem_fake_cuda::vmm::*;

use crate::support::*;

const MIB2: usize = GRANULARITY as usize;

fn properties(device: i32) -> Properties {
    let location = Location {
        kind: 1,
        id: device,
    };
    Properties {
        kind: 1,
        handle_types: 1,
        location,
        ..Default::default()
    }
}

fn mapped(device: i32) -> (u64, u64) {
    let (mut handle, mut base) = (0, 0);
    ok(cuMemCreate(
        Some(&mut handle),
        MIB2,
        Some(&properties(device)),
        0,
    ));
    ok(cuMemAddressReserve(Some(&mut base), MIB2, 0, 0, 0));
    ok(cuMemMap(base, MIB2, 0, handle, 0));
    (handle, base)
}

fn give_access(base: u64, device: i32) -> i32 {
    let access = Access {
        location: Location {
            kind: 1,
            id: device,
        },
        flags: 3,
    };
    // SAFETY: the array has one descriptor.
    unsafe { cuMemSetAccess(base, MIB2, &access, 1) }
}

#[test]
fn what_is_written_is_read_back() {
    alone(&[], || {
        context(0);
        let memory = device_memory(1000);
        write(memory + 100, b"bytes");
        assert_eq!(read(memory + 99, 7), b"\0bytes\0");
        ok(cuMemFree_v2(memory));
        clean();
        assert_eq!(live(Kind::Allocation), 0);
        assert!(
            report::text().contains("live: contexts 1"),
            "{}",
            report::text()
        );
    });
}

#[test]
fn memory_is_freed_once_by_its_base() {
    alone(&[], || {
        context(0);
        let memory = device_memory(1000);
        assert_eq!(cuMemFree_v2(memory + 8), 1);
        violated("8 bytes inside an allocation");
        ok(cuMemFree_v2(memory));
        assert_eq!(cuMemFree_v2(memory), 1);
        violated("is not, or no longer, one of the allocations");
    });
}

#[test]
fn access_past_the_end_or_after_free_is_refused() {
    alone(&[], || {
        context(0);
        let memory = device_memory(1000);
        assert_eq!(cuMemsetD8_v2(memory + 1, 0, 1000), 1);
        violated("runs out of its memory after 999 bytes");
        ok(cuMemFree_v2(memory));
        assert_eq!(cuMemsetD8_v2(memory, 0, 1), 1);
        violated("not memory that the driver knows");
        assert_eq!(cuMemsetD8_v2(0, 0, 1), 1);
        report::fake_device_clear_violations();
    });
}

#[test]
fn a_device_has_only_so_much_memory() {
    alone(&[("FAKE_DEVICE_MEMORY_BYTES", "1000000")], || {
        context(0);
        let memory = device_memory(600_000);
        let (mut free, mut total, mut other) = (0, 0, 0);
        ok(cuMemGetInfo_v2(Some(&mut free), Some(&mut total)));
        assert_eq!((free, total), (400_000, 1_000_000));
        assert_eq!(cuMemAlloc_v2(Some(&mut other), 500_000), 2);
        ok(cuMemFree_v2(memory));
        ok(cuMemAlloc_v2(Some(&mut other), 500_000));
        clean();
    });
}

#[test]
fn a_mapping_needs_access_before_it_is_used() {
    alone(&[], || {
        context(0);
        let (handle, base) = mapped(0);
        assert_eq!(cuMemsetD8_v2(base, 1, 16), 1);
        violated("no access has been set for device 0");
        ok(give_access(base, 0));
        write(base, b"mapped");
        ok(cuMemRelease(handle));
        assert_eq!(read(base, 6), b"mapped", "mapped memory stays alive");
        ok(cuMemUnmap(base, MIB2));
        ok(cuMemAddressFree(base, MIB2));
        clean();
        for kind in [Kind::AllocationHandle, Kind::Mapping, Kind::Reservation] {
            assert_eq!(live(kind), 0, "{kind:?}");
        }
    });
}

#[test]
fn mappings_are_undone_in_order_and_once() {
    alone(&[], || {
        context(0);
        let (handle, base) = mapped(0);
        assert_eq!(cuMemAddressFree(base, MIB2), 1);
        violated("still has mappings");
        assert_eq!(cuMemMap(base, MIB2, 0, handle, 0), 208);
        violated("are mapped already");
        ok(cuMemUnmap(base, MIB2));
        assert_eq!(cuMemUnmap(base, MIB2), 1);
        violated("are not whole mappings");
        ok(cuMemRelease(handle));
        assert_eq!(cuMemRelease(handle), 1);
        violated("was destroyed before");
        assert_eq!(cuMemAddressFree(base, MIB2 * 2), 1);
        violated("not a whole reservation");
        ok(cuMemAddressFree(base, MIB2));
        assert_eq!(cuMemMap(base, MIB2, 0, handle, 0), 1);
        violated("was destroyed before");
    });
}

#[test]
fn memory_of_a_device_out_of_reach_cannot_be_opened_up() {
    alone(&[("FAKE_DEVICE_NO_PEER", "1")], || {
        let one = context(1);
        context(0);
        let (_handle, base) = mapped(1);
        assert_eq!(give_access(base, 0), 101);
        ok(give_access(base, 1));
        assert_eq!(cuCtxEnablePeerAccess(one, 0), 217);
        clean();
    });
}

#[test]
fn only_memory_made_for_it_is_exported() {
    alone(&[], || {
        context(0);
        let (mut handle, mut descriptor) = (0, -1);
        let private = Properties {
            handle_types: 0,
            ..properties(0)
        };
        ok(cuMemCreate(Some(&mut handle), MIB2, Some(&private), 0));
        assert_eq!(
            cuMemExportToShareableHandle(Some(&mut descriptor), handle, 1, 0),
            1
        );
        violated("created without this handle type");
        assert_eq!(cuMemCreate(Some(&mut handle), 4096, Some(&private), 0), 1);
        violated("not a multiple of the granularity");
        // SAFETY: standard input stays open, and is not memory.
        let imported =
            unsafe { cuMemImportFromShareableHandle(Some(&mut handle), std::ptr::null_mut(), 1) };
        assert_eq!(imported, 1);
        violated("does not refer to exported memory");
    });
}

#[test]
fn host_memory_is_registered_once_and_while_it_exists() {
    alone(&[], || {
        context(0);
        let mut bytes = vec![7u8; 10000];
        let pointer = bytes.as_mut_ptr().cast();
        // SAFETY: the vector outlives the registration.
        unsafe {
            ok(cuMemHostRegister_v2(pointer, 10000, 0));
            assert_eq!(cuMemHostRegister_v2(pointer, 10, 0), 712);
        }
        let mut kind = 0u32;
        // SAFETY: the attribute is a 32-bit number.
        ok(unsafe { cuPointerGetAttribute((&raw mut kind).cast(), 2, pointer as u64) });
        assert_eq!(kind, 1);
        let mut device = 0;
        ok(cuMemHostGetDevicePointer_v2(
            Some(&mut device),
            pointer as u64 + 5,
            0,
        ));
        assert_eq!(device, pointer as u64 + 5);
        ok(cuMemHostUnregister(pointer as u64));
        assert_eq!(cuMemHostUnregister(pointer as u64), 713);
        violated("one of the host registrations");
        // SAFETY: the call only checks whether anything is mapped there, and nothing is.
        assert_eq!(unsafe { cuMemHostRegister_v2(4096 as *mut _, 4096, 0) }, 1);
        violated("not mapped in this process");
    });
}

#[test]
fn what_is_left_in_a_context_is_reported_when_it_goes() {
    alone(&[], || {
        context(0);
        device_memory(10);
        stream();
        ok(cuDevicePrimaryCtxRelease_v2(0));
        violated("went with 1 streams, 1 allocations in it");
        assert_eq!(cuCtxSynchronize(), 709, "the context is gone");
        violated("was destroyed before");
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 201);
        violated("was not retained");
    });
}

/// Returns a copy of `rows` rows of `bytes` bytes. `to` and `from` give device address and stride.
fn rows(to: (u64, usize), from: (u64, usize), bytes: usize, rows: usize) -> RowsCopy {
    let half = |(device, stride)| Rows {
        x_bytes: 0,
        y: 0,
        // CU_MEMORYTYPE_UNIFIED
        memory_type: 4,
        host: std::ptr::null(),
        device,
        array: std::ptr::null(),
        stride,
    };
    RowsCopy {
        source: half(from),
        destination: half(to),
        bytes,
        rows,
    }
}

#[test]
fn rows_are_copied_between_strides_and_stay_within_memory() {
    alone(&[], || {
        context(0);
        let (memory, stream) = (device_memory(64), stream());
        write(
            memory,
            &std::array::from_fn::<u8, 64, _>(|index| index as u8),
        );
        let copy = |copy: &RowsCopy| cuMemcpy2DAsync_v2(Some(copy), stream);
        // Three rows of two bytes, four bytes apart in the source and five in the destination.
        let good = rows((memory + 32, 5), (memory, 4), 2, 3);
        ok(copy(&good));
        ok(symmem_fake_cuda::streams::cuStreamSynchronize(stream));
        let expected = [0, 1, 34, 35, 36, 4, 5, 39, 40, 41, 8, 9, 44];
        assert_eq!(read(memory + 32, 13), expected);
        ok(copy(&rows((0, 0), (0, 0), 0, 3)));
        ok(copy(&rows((0, 0), (0, 0), 2, 0)));
        clean();

        assert_eq!(copy(&rows((memory + 32, 1), (memory, 4), 2, 3)), 1);
        violated("1 bytes apart");
        // The last row ends one byte past the allocation.
        assert_eq!(copy(&rows((memory + 53, 5), (memory, 4), 2, 3)), 1);
        violated("0x");
        let mut host = good;
        // CU_MEMORYTYPE_HOST
        host.source.memory_type = 1;
        assert_eq!(copy(&host), 1);
        assert_eq!(cuMemcpy2DAsync_v2(None, stream), 1);
        let place = [0_u8; 8].as_ptr() as u64;
        assert_eq!(copy(&rows((memory, 4), (place, 4), 2, 2)), 1);
        violated("not memory that the driver knows");
    });
}
