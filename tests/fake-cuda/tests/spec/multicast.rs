//! Multicast objects in one process that has all devices.

use std::time::Duration;

use symmem_fake_cuda::contexts::*;
use symmem_fake_cuda::copies::*;
use symmem_fake_cuda::devices::{cuDeviceGetAttribute, cuInit};
use symmem_fake_cuda::driver::Kind;
use symmem_fake_cuda::multicast::*;
use symmem_fake_cuda::vmm::*;

use crate::multicast_support::*;
use crate::support::*;

/// Returns an object with both devices added.
#[track_caller]
fn complete() -> u64 {
    let object = object(2);
    ok(cuMulticastAddDevice(object, 0));
    ok(cuMulticastAddDevice(object, 1));
    object
}

/// Runs a test in its own process, on devices with a switch.
fn with_switch(body: impl FnOnce()) {
    alone(&[HARDWARE], || {
        context(0);
        body();
    });
}

#[test]
fn without_a_switch_there_is_no_multicast() {
    alone(&[], || {
        ok(cuInit(0));
        let mut supported = -1;
        ok(cuDeviceGetAttribute(Some(&mut supported), 132, 0));
        assert_eq!(supported, 0);
        let properties = object_properties(2, UNIT);
        let mut handle = 0;
        assert_eq!(cuMulticastCreate(Some(&mut handle), Some(&properties)), 801);
        assert_eq!(
            cuMulticastGetGranularity(Some(&mut 0), Some(&properties), 0),
            801
        );
        assert_eq!(cuMulticastAddDevice(1, 0), 801);
        clean();
    });
}

#[test]
fn a_whole_life() {
    with_switch(|| {
        let mut supported = -1;
        ok(cuDeviceGetAttribute(Some(&mut supported), 132, 0));
        assert_eq!(supported, 1);
        let object = complete();
        let parts = [memory(0, 2), memory(1, 2)];
        for part in parts {
            ok(cuMulticastBindMem(object, UNIT, part, UNIT, UNIT, 0));
        }
        let base = mapped(object, 4, 0);
        assert_eq!(live(Kind::MulticastHandle), 1);
        assert_eq!(live(Kind::MulticastBinding), 2);
        unmapped(base, 4);
        for device in 0..2 {
            ok(cuMulticastUnbind(object, device, UNIT, UNIT));
        }
        ok(cuMemRelease(object));
        for part in parts {
            ok(cuMemRelease(part));
        }
        assert_eq!(live(Kind::MulticastHandle), 0);
        assert_eq!(live(Kind::MulticastBinding), 0);
        assert_eq!(live(Kind::AllocationHandle), 0);
        clean();
    });
}

#[test]
fn the_two_granularities_differ_and_the_smaller_is_required() {
    with_switch(|| {
        let mut found = [0; 2];
        let properties = object_properties(2, UNIT);
        for (option, found) in (0..).zip(&mut found) {
            ok(cuMulticastGetGranularity(
                Some(found),
                Some(&properties),
                option,
            ));
        }
        assert_eq!(found, [UNIT, 8 * UNIT]);
        assert_eq!(
            cuMulticastGetGranularity(Some(&mut 0), Some(&properties), 2),
            1
        );
        let uneven = object_properties(2, UNIT + 4096);
        assert_eq!(cuMulticastCreate(Some(&mut 0), Some(&uneven)), 1);
        violated("a size of 2101248 is not a multiple of a multicast object's granularity");
        let object = complete();
        let part = memory(0, 2);
        for (offset, memory_offset, bytes) in [(4096, 0, UNIT), (0, 4096, UNIT), (0, 0, 4096)] {
            assert_eq!(
                cuMulticastBindMem(object, offset, part, memory_offset, bytes, 0),
                1
            );
            violated("of 4096 is not a multiple");
        }
    });
}

#[test]
fn the_granularity_can_be_larger_than_that_of_memory() {
    alone(
        &[HARDWARE, ("FAKE_CUDA_MULTICAST_MINIMUM", "4194304")],
        || {
            context(0);
            let properties = object_properties(2, UNIT);
            assert_eq!(cuMulticastCreate(Some(&mut 0), Some(&properties)), 1);
            violated("not a multiple");
            let object = complete();
            let (part, mut base) = (memory(0, 2), 0);
            ok(cuMulticastBindMem(object, 0, part, 0, 2 * UNIT, 0));
            ok(cuMemAddressReserve(
                Some(&mut base),
                8 * UNIT,
                2 * UNIT,
                0,
                0,
            ));
            assert_eq!(cuMemMap(base, UNIT, 0, object, 0), 1);
            assert_eq!(cuMemMap(base + UNIT as u64, 2 * UNIT, 0, object, 0), 1);
            ok(cuMemMap(base, 4 * UNIT, 0, object, 0));
        },
    );
}

#[test]
fn an_object_is_for_devices_that_there_are() {
    with_switch(|| {
        for properties in [
            object_properties(0, UNIT),
            object_properties(3, UNIT),
            object_properties(2, 0),
            ObjectProperties {
                flags: 1,
                ..object_properties(2, UNIT)
            },
        ] {
            assert_eq!(cuMulticastCreate(Some(&mut 0), Some(&properties)), 1);
        }
        let fabric = ObjectProperties {
            handle_types: 8,
            ..object_properties(2, UNIT)
        };
        assert_eq!(cuMulticastCreate(Some(&mut 0), Some(&fabric)), 801);
        let object = object(1);
        assert_eq!(cuMulticastAddDevice(object, 2), 101);
        clean();
    });
}

#[test]
fn a_device_is_added_once_and_no_more_than_were_announced() {
    with_switch(|| {
        let (two, one) = (object(2), object(1));
        ok(cuMulticastAddDevice(two, 0));
        assert_eq!(cuMulticastAddDevice(two, 0), 1);
        violated("device 0 was added before");
        ok(cuMulticastAddDevice(two, 1));
        ok(cuMulticastAddDevice(one, 1));
        assert_eq!(cuMulticastAddDevice(one, 0), 1);
        violated("all 1 devices were added before");
    });
}

#[test]
fn binding_and_mapping_wait_for_all_devices() {
    with_switch(|| {
        let object = object(2);
        let (part, mut base) = (memory(0, 1), 0);
        ok(cuMulticastAddDevice(object, 0));
        ok(cuMemAddressReserve(Some(&mut base), 4 * UNIT, UNIT, 0, 0));
        std::thread::scope(|scope| {
            let calls = [
                scope.spawn(|| ok(cuMulticastBindMem(object, 0, part, 0, UNIT, 0))),
                scope.spawn(|| ok(cuMemMap(base, 4 * UNIT, 0, object, 0))),
            ];
            std::thread::sleep(Duration::from_millis(100));
            assert!(calls.iter().all(|call| !call.is_finished()));
            // Blocked calls hold nothing that others need.
            ok(cuMemRelease(memory(0, 1)));
            ok(cuMulticastAddDevice(object, 1));
        });
        assert_eq!(live(Kind::MulticastBinding), 1);
        assert_eq!(live(Kind::Mapping), 1);
        clean();
    });
}

#[test]
fn a_handle_stays_while_a_call_waits_on_it() {
    with_switch(|| {
        let object = object(2);
        let part = memory(0, 1);
        ok(cuMulticastAddDevice(object, 0));
        begun(move || cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
        ok(cuMemRelease(object));
        violated("is released while a call on it is under way");
    });
}

#[test]
fn memory_stays_while_a_call_that_binds_it_waits() {
    with_switch(|| {
        let object = object(2);
        let part = memory(0, 1);
        ok(cuMulticastAddDevice(object, 0));
        begun(move || cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
        let base = mapped(part, 1, 0);
        ok(cuMemRelease(part));
        clean();
        ok(cuMemUnmap(base, UNIT));
        violated("memory is freed while a call binds it to a multicast object");
    });
}

/// Runs a test in its own process, where the first call of `symbol` never returns.
fn with_a_call_that_never_returns(symbol: &str, body: impl FnOnce()) {
    let stall = format!("{symbol}:1:forever");
    alone(&[HARDWARE, ("FAKE_DEVICE_STALL", &stall)], || {
        context(0);
        body();
    });
}

/// Begins a call that does not return.
fn begun(call: impl FnOnce() -> i32 + Send + 'static) {
    let call = std::thread::spawn(call);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!call.is_finished());
}

#[test]
fn memory_stays_while_a_call_that_binds_it_never_returns() {
    with_a_call_that_never_returns("cuMulticastBindMem", || {
        let (object, part) = (complete(), memory(0, 1));
        begun(move || cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
        ok(cuMemRelease(part));
        violated("memory is freed while a call binds it");
        ok(cuMemRelease(object));
        violated("is released while a call on it is under way");
    });
}

#[test]
fn memory_stays_while_a_call_that_binds_its_address_never_returns() {
    with_a_call_that_never_returns("cuMulticastBindAddr", || {
        let (object, part) = (complete(), memory(0, 1));
        let base = mapped(part, 1, 0);
        begun(move || cuMulticastBindAddr(object, 0, base, UNIT, 0));
        ok(cuMemRelease(part));
        clean();
        ok(cuMemUnmap(base, UNIT));
        violated("memory is freed while a call binds it");
    });
}

#[test]
fn an_object_stays_while_a_call_that_maps_it_never_returns() {
    with_a_call_that_never_returns("cuMemMap", || {
        let (object, mut base) = (complete(), 0);
        ok(cuMemAddressReserve(Some(&mut base), 4 * UNIT, UNIT, 0, 0));
        begun(move || cuMemMap(base, 4 * UNIT, 0, object, 0));
        ok(cuMemRelease(object));
        violated("is released while a call on it is under way");
    });
}

#[test]
fn an_object_stays_while_a_call_that_adds_a_device_never_returns() {
    with_a_call_that_never_returns("cuMulticastAddDevice", || {
        let object = object(2);
        begun(move || cuMulticastAddDevice(object, 0));
        ok(cuMemRelease(object));
        violated("is released while a call on it is under way");
    });
}

#[test]
fn a_call_that_fails_undone_gives_nothing_back() {
    let fail = ("FAKE_DEVICE_FAIL", "cuMulticastUnbind:1:401:undone");
    alone(&[HARDWARE, fail], || {
        context(0);
        let (object, part) = (complete(), memory(0, 1));
        ok(cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
        assert_eq!(cuMulticastUnbind(object, 0, 0, UNIT), 401);
        assert_eq!(live(Kind::MulticastBinding), 1);
        ok(cuMulticastUnbind(object, 0, 0, UNIT));
        assert_eq!(live(Kind::MulticastBinding), 0);
        clean();
    });
}

#[test]
fn a_device_is_added_before_its_memory_is_bound_or_the_object_mapped() {
    with_switch(|| {
        let object = object(2);
        let (part, mut base) = (memory(0, 1), 0);
        ok(cuMemAddressReserve(Some(&mut base), 4 * UNIT, UNIT, 0, 0));
        assert_eq!(cuMemMap(base, 4 * UNIT, 0, object, 0), 1);
        violated("mapped before this process has added a device");
        ok(cuMulticastAddDevice(object, 1));
        assert_eq!(cuMulticastBindMem(object, 0, part, 0, UNIT, 0), 101);
        violated("memory of device 0 is bound before that device was added");
    });
}

#[test]
fn what_is_bound_lies_in_the_object_and_in_its_memory_and_nothing_is_bound_over_it() {
    with_switch(|| {
        let object = complete();
        let part = memory(0, 2);
        for (offset, memory_offset, what) in [
            (3 * UNIT, 0, "do not lie in the object of"),
            (0, UNIT, "do not lie in the memory of"),
            (usize::MAX - UNIT + 1, 0, "do not lie in the object of"),
        ] {
            let bind = cuMulticastBindMem(object, offset, part, memory_offset, 2 * UNIT, 0);
            assert_eq!(bind, 1);
            violated(what);
        }
        assert_eq!(cuMulticastBindMem(object, 0, part, 0, 0, 0), 1);
        assert_eq!(cuMulticastBindMem(object, 0, part, 0, UNIT, 1), 1);
        clean();
        ok(cuMulticastBindMem(object, UNIT, part, 0, 2 * UNIT, 0));
        let other = memory(0, 1);
        assert_eq!(cuMulticastBindMem(object, 2 * UNIT, other, 0, UNIT, 0), 1);
        violated("of device 0 are bound already");
        ok(cuMulticastBindMem(object, 3 * UNIT, other, 0, UNIT, 0));
        let peers = memory(1, 1);
        ok(cuMulticastBindMem(object, 2 * UNIT, peers, 0, UNIT, 0));
        clean();
    });
}

#[test]
fn an_object_that_can_be_shared_takes_memory_that_can_be_exported() {
    with_switch(|| {
        let shared = complete();
        let private_memory = memory_for(0, 1, 0);
        assert_eq!(cuMulticastBindMem(shared, 0, private_memory, 0, UNIT, 0), 1);
        violated("takes only exportable memory");
        let mut private = 0;
        let properties = ObjectProperties {
            handle_types: 0,
            ..object_properties(1, UNIT)
        };
        ok(cuMulticastCreate(Some(&mut private), Some(&properties)));
        ok(cuMulticastAddDevice(private, 0));
        ok(cuMulticastBindMem(private, 0, private_memory, 0, UNIT, 0));
        assert_eq!(cuMemExportToShareableHandle(Some(&mut 0), private, 1, 0), 1);
        violated("the multicast object was created without this handle type");
    });
}

#[test]
fn memory_is_bound_by_its_address_too_if_it_was_mapped_there() {
    with_switch(|| {
        let object = complete();
        let part = memory(0, 2);
        let base = mapped(part, 2, 0);
        let second = base + UNIT as u64;
        assert_eq!(cuMulticastBindAddr(object, 0, second, 2 * UNIT, 0), 1);
        violated("do not lie in the memory of");
        ok(cuMulticastBindAddr(object, 0, second, UNIT, 0));
        ok(cuMulticastUnbind(object, 0, 0, UNIT));
        assert_eq!(
            cuMulticastBindAddr(object, 0, device_memory(UNIT), UNIT, 0),
            1
        );
        violated("is not memory that was mapped at reserved addresses");
    });
}

#[test]
fn what_is_unbound_is_exactly_what_was_bound() {
    with_switch(|| {
        let object = complete();
        let part = memory(0, 2);
        ok(cuMulticastBindMem(object, 0, part, 0, 2 * UNIT, 0));
        for (device, offset, bytes) in [(0, 0, UNIT), (0, UNIT, UNIT), (1, 0, 2 * UNIT)] {
            assert_eq!(cuMulticastUnbind(object, device, offset, bytes), 1);
            violated("are not what this process bound");
        }
        ok(cuMulticastUnbind(object, 0, 0, 2 * UNIT));
        assert_eq!(cuMulticastUnbind(object, 0, 0, 2 * UNIT), 1);
        violated("are not what this process bound");
        ok(cuMulticastBindMem(object, 0, part, 0, 2 * UNIT, 0));
    });
}

#[test]
fn memory_is_unbound_before_it_is_freed() {
    with_switch(|| {
        let object = complete();
        let part = memory(0, 1);
        ok(cuMulticastBindMem(object, UNIT, part, 0, UNIT, 0));
        let base = mapped(part, 1, 0);
        ok(cuMemRelease(part));
        clean();
        ok(cuMemUnmap(base, UNIT));
        violated("freed while it is bound at 2097152");
        let other = memory(1, 1);
        ok(cuMulticastBindMem(object, 0, other, 0, UNIT, 0));
        ok(cuMemRelease(other));
        violated("freed while it is bound at 0");
    });
}

#[test]
fn a_released_object_serves_its_mappings_and_nothing_else() {
    with_switch(|| {
        let object = complete();
        let part = memory(0, 1);
        ok(cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
        let base = mapped(object, 4, 0);
        ok(cuMemRelease(object));
        clean();
        for call in [
            cuMulticastBindMem(object, UNIT, part, 0, UNIT, 0),
            cuMulticastUnbind(object, 0, 0, UNIT),
            cuMulticastAddDevice(object, 0),
            cuMemRelease(object),
            cuMemExportToShareableHandle(Some(&mut 0), object, 1, 0),
        ] {
            assert_eq!(call, 1);
        }
        let text = symmem_fake_cuda::report::text();
        assert_eq!(text.matches("was destroyed before").count(), 5, "{text}");
        symmem_fake_cuda::report::fake_device_clear_violations();
        // The handle can be retained again from an address where the object is mapped.
        let mut again = 0;
        ok(cuMemRetainAllocationHandle(Some(&mut again), base));
        ok(cuMulticastUnbind(again, 0, 0, UNIT));
        ok(cuMulticastBindMem(again, 0, part, 0, UNIT, 0));
        ok(cuMemRelease(again));
        clean();
        ok(cuMemUnmap(base, 4 * UNIT));
        violated("is released while 1 ranges of this process are bound");
    });
}

#[test]
fn memory_is_no_object_and_an_object_no_memory() {
    with_switch(|| {
        let (object, part) = (complete(), memory(0, 1));
        assert_eq!(cuMulticastAddDevice(part, 0), 1);
        violated("is memory, not a multicast object");
        assert_eq!(cuMulticastBindMem(object, 0, object, 0, UNIT, 0), 1);
        violated("is a multicast object, not memory");
        let mut properties = Properties::default();
        assert_eq!(
            cuMemGetAllocationPropertiesFromHandle(Some(&mut properties), object),
            1
        );
    });
}

#[test]
fn objects_with_memory_bound_take_slots_of_the_switch() {
    alone(&[HARDWARE, ("FAKE_CUDA_MULTICAST_SLOTS", "2")], || {
        context(0);
        let objects = [(); 3].map(|()| complete());
        let part = memory(0, 1);
        let bind = |object, offset| cuMulticastBindMem(object, offset, part, 0, UNIT, 0);
        ok(bind(objects[0], 0));
        ok(bind(objects[0], UNIT));
        ok(bind(objects[1], 0));
        assert_eq!(bind(objects[2], 0), 2, "out of memory");
        ok(cuMulticastUnbind(objects[1], 0, 0, UNIT));
        assert_eq!(bind(objects[2], 0), 2, "an object keeps its slot");
        ok(cuMemRelease(objects[1]));
        ok(bind(objects[2], 0));
        clean();
    });
}

#[test]
fn a_multicast_address_is_for_multimem_operations_alone() {
    with_switch(|| {
        let object = complete();
        for device in 0..2 {
            let part = memory(device, 4);
            ok(cuMulticastBindMem(object, 0, part, 0, 4 * UNIT, 0));
        }
        let base = mapped(object, 4, 0);
        assert_eq!(cuMemsetD32_v2(base, 1, 1), 1);
        violated("is a multicast address, which only multimem operations may access");
        let mut word = [0u8; 4];
        // SAFETY: the buffer has four bytes.
        let copied = unsafe { cuMemcpyDtoH_v2(word.as_mut_ptr() as u64, base, 4) };
        assert_eq!(copied, 1);
        violated("which only multimem operations may access");
    });
}

#[test]
fn the_host_cannot_load_from_a_multicast_address() {
    with_switch(|| {
        let object = complete();
        let base = mapped(object, 4, 0);
        // The host has no access there; a load would raise a signal.
        let mut readable = false;
        for line in std::fs::read_to_string("/proc/self/maps")
            .expect("this process's memory")
            .lines()
        {
            let (range, rest) = line.split_once(' ').expect("a range");
            let (start, end) = range.split_once('-').expect("two addresses");
            let number = |text| u64::from_str_radix(text, 16).expect("an address");
            if (number(start)..number(end)).contains(&base) {
                assert!(rest.starts_with("---p"), "{line}");
                readable = true;
            }
        }
        assert!(readable, "the address is reserved");
    });
}

#[test]
fn access_is_set_for_members() {
    alone(&[HARDWARE, ("FAKE_DEVICE_COUNT", "3")], || {
        context(0);
        let object = complete();
        let base = mapped(object, 4, 1);
        let access = Access {
            location: Location { kind: 1, id: 2 },
            flags: 3,
        };
        // SAFETY: the array has one descriptor.
        assert_eq!(unsafe { cuMemSetAccess(base, 4 * UNIT, &access, 1) }, 101);
        let mut flags = 9;
        for (device, expected) in [(0, 0), (1, 3)] {
            let location = Location {
                kind: 1,
                id: device,
            };
            ok(cuMemGetAccess(Some(&mut flags), Some(&location), base));
            assert_eq!(flags, expected, "device {device}");
        }
        ok(cuCtxSynchronize());
        clean();
    });
}

#[test]
fn the_arguments_are_the_drivers() {
    use cudarc::driver::sys::{CUmulticastGranularity_flags as Option, CUmulticastObjectProp};
    let driver = CUmulticastObjectProp {
        numDevices: 3,
        size: 4,
        handleTypes: 5,
        flags: 6,
    };
    assert_eq!(
        size_of::<ObjectProperties>(),
        size_of::<CUmulticastObjectProp>()
    );
    // SAFETY: both are C structs of integers of one size.
    let ours: ObjectProperties = unsafe { std::mem::transmute(driver) };
    assert_eq!(
        (ours.devices, ours.bytes, ours.handle_types, ours.flags),
        (3, 4, 5, 6)
    );
    assert_eq!(Option::CU_MULTICAST_GRANULARITY_MINIMUM as u32, 0);
    assert_eq!(Option::CU_MULTICAST_GRANULARITY_RECOMMENDED as u32, 1);
}
