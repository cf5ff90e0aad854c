//! Multicast objects: two ranks of one process, over a fake driver with a switch.
//!
//! If the environment forbids multicast, these tests do not ask for it.

use std::os::fd::{FromRawFd, OwnedFd};

use crate::support::{Outcome, run, tell, tell_result};
use crate::world::{World, options, tables};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, CollectiveKernels, Multicast, SymmetricMemory};

const KIND: ShareKindCode = ShareKindCode::VMM_FILE_DESCRIPTOR;
const BYTES: u64 = 4 << 20;

/// Entry point of a started child.
pub fn role(words: &[&str]) {
    match words {
        ["objects"] => tell_result(objects()),
        ["leave"] => tell_result(leave_all_to_close()),
        ["misuse"] => misuse(),
        ["off"] => off(),
        ["opens"] => opens(),
        _ => panic!("no such role: {words:?}"),
    }
}

/// Environment of a machine with a switch, which asks for multicast.
const ASKED: [(&str, &str); 2] = [
    ("FAKE_CUDA_MULTICAST_HARDWARE", "1"),
    ("SYMMEM_MULTICAST", "1"),
];

fn asking(role: &str, more: &[(&str, &str)]) -> Outcome {
    run(&format!("multicast {role}"), &[&ASKED, more].concat())
}

/// Returns whether children may ask for multicast; if not, prints why.
fn permitted() -> bool {
    let found = symmem_cuda::multicast_switches();
    let found = found.into_iter().find(|switch| switch.forbids);
    if let Some(switch) = &found {
        let name = switch.name;
        eprintln!("skipped: multicast over the fake driver, since {name} forbids it");
    }
    found.is_none()
}

/// Creates an object that the second rank has imported and both ranks have joined.
fn joined(world: &World) -> CallResult<[RawMulticast; 2]> {
    let (one, other) = (&world.ranks[0], &world.ranks[1]);
    let created = one.multicast_create(2, 3 * BYTES)?;
    // SAFETY: the object is live, and this function owns the descriptor and closes it.
    unsafe {
        let exported = one.multicast_export(created)?;
        assert!(exported.bytes >= 3 * BYTES);
        let imported = other.multicast_import(&exported);
        drop(OwnedFd::from_raw_fd(exported.descriptor));
        let imported = imported?;
        one.multicast_join(created)?;
        other.multicast_join(imported)?;
        Ok([created, imported])
    }
}

fn objects() -> CallResult<()> {
    let mut world = World::open(0..2)?;
    let result = steps(&mut world);
    let given = world.give_back();
    // Closing releases what a failure left behind, while the memory still exists.
    result.and(given)
}

fn steps(world: &mut World) -> CallResult<()> {
    let granularity = world.ranks[0].multicast_granularity(2, BYTES)?;
    assert!(BYTES.is_multiple_of(granularity));
    let objects = joined(world)?;
    let backends = &world.ranks;
    let memory = [0, 1].map(|rank: usize| backends[rank].allocate(KIND, BYTES));
    let [one, other] = memory;
    let memory = [one?, other?];
    for (rank, &object) in objects.iter().enumerate() {
        // SAFETY: all handles are live, and both devices have joined.
        unsafe { backends[rank].multicast_bind(object, BYTES, memory[rank].handle, BYTES) }?;
    }
    let mut addresses = Vec::new();
    for (rank, &object) in objects.iter().enumerate() {
        // SAFETY: the object is live, and this rank has not mapped it.
        addresses.push(unsafe { backends[rank].multicast_map(object) }?);
    }
    assert!(
        addresses
            .iter()
            .all(|address| address.0.is_multiple_of(granularity))
    );
    for (rank, &object) in objects.iter().enumerate() {
        // SAFETY: no work uses the object.
        unsafe {
            backends[rank].multicast_unmap(object)?;
            backends[rank].multicast_unbind(object, BYTES, BYTES)?;
            backends[rank].multicast_release(object)?;
            backends[rank].free(memory[rank].handle)?;
        }
    }
    Ok(())
}

/// Closes the devices while everything is mapped and bound.
fn leave_all_to_close() -> CallResult<()> {
    let world = World::open(0..2)?;
    let objects = joined(&world)?;
    for (rank, &object) in objects.iter().enumerate() {
        let memory = world.ranks[rank].allocate(KIND, BYTES)?;
        // SAFETY: both devices have joined the live object, and the allocation is live.
        unsafe {
            world.ranks[rank].multicast_bind(object, 0, memory.handle, BYTES)?;
            world.ranks[rank].multicast_map(object)?;
        }
    }
    Ok(())
}

fn misuse() {
    let backend = tables().open(&options(0)).expect("device 0");
    let tell_status = |name: &str, result: CallResult<()>| {
        let failure = result.expect_err(name);
        tell(name, failure.status.name());
        assert!(!failure.message.is_empty());
    };
    let plain = backend
        .allocate(ShareKindCode::LEGACY_IPC, BYTES)
        .expect("memory");
    let vmm = backend.allocate(KIND, BYTES).expect("memory");
    let object = backend.multicast_create(1, BYTES).expect("an object");
    let exported = |bytes, granularity: u64| {
        let mut opaque = [0; 64];
        opaque[..8].copy_from_slice(&granularity.to_le_bytes());
        ExportedHandle {
            kind: KIND,
            device: 0,
            offset: 0,
            bytes,
            address: 0,
            opaque,
            descriptor: -1,
            reserved: 0,
        }
    };
    // SAFETY: invalid arguments are refused before the driver sees them.
    unsafe {
        backend.multicast_join(object).expect("joined");
        tell_status("dead", backend.multicast_join(RawMulticast(99)));
        tell_status(
            "outside",
            backend.multicast_bind(object, 1 << 40, vmm.handle, BYTES),
        );
        tell_status("nothing", backend.multicast_bind(object, 0, vmm.handle, 0));
        tell_status(
            "too-much",
            backend.multicast_bind(object, 0, vmm.handle, 2 * BYTES),
        );
        tell_status(
            "plain",
            backend.multicast_bind(object, 0, plain.handle, BYTES),
        );
        tell_status(
            "freed",
            backend.multicast_bind(object, 0, RawAllocation(99), BYTES),
        );
        tell_status("unmapped", backend.multicast_unmap(object));
        for (name, handle) in [
            ("no-bytes", exported(0, 1)),
            ("no-unit", exported(8, 0)),
            ("odd", exported(8, 3)),
        ] {
            tell_status(name, backend.multicast_import(&handle).map(drop));
        }
        backend.multicast_release(object).expect("released");
        tell_status("released", backend.multicast_release(object));
        backend.free(plain.handle).expect("freed");
        backend.free(vmm.handle).expect("freed");
    }
}

/// Reports what a backend says that may not use multicast, or cannot.
fn off() {
    let backend = tables().open(&options(0)).expect("device 0");
    tell(
        "support",
        backend.multicast_support().expect("known").name(),
    );
    let failure = backend.multicast_granularity(2, BYTES).expect_err("off");
    tell("status", failure.status.name());
    tell("why", &failure.message);
    let kernels = [
        CollectiveKernel::MULTICAST_MOVE,
        CollectiveKernel::MULTICAST_REDUCE,
    ];
    let resident =
        kernels.map(|kernel| backend.resident_blocks(kernel, ElementTypeCode::BF16, 512));
    tell(
        "kernels",
        resident
            .iter()
            .all(|blocks| blocks.as_ref().is_ok_and(|&blocks| blocks > 0)),
    );
    let missing =
        backend.resident_blocks(CollectiveKernel::MULTICAST_REDUCE, ElementTypeCode::I8, 512);
    tell("others", missing.expect("known"));
}

/// Reports whether a device opens, and which multicast support it has then.
fn opens() {
    let Ok(backend) = tables().open(&options(0)) else {
        return;
    };
    tell(
        "support",
        backend.multicast_support().expect("known").name(),
    );
    for element in [
        ElementTypeCode::BF16,
        ElementTypeCode::F8_E4M3,
        ElementTypeCode::F8_E5M2,
    ] {
        let blocks = backend.resident_blocks(CollectiveKernel::MULTICAST_REDUCE, element, 512);
        tell(&element.name().to_lowercase(), blocks.expect("known") > 0);
    }
    if let Err(failure) = backend.multicast_granularity(1, BYTES) {
        tell("why", &failure.message);
    }
}

#[test]
fn an_object_is_shared_bound_mapped_and_given_back() {
    if !permitted() {
        return;
    }
    // The memory's granularity, and a larger one.
    for minimum in ["2097152", "4194304"] {
        asking("objects", &[("FAKE_CUDA_MULTICAST_MINIMUM", minimum)]).assert_clean();
    }
}

#[test]
fn closing_gives_an_object_back_in_order() {
    if permitted() {
        asking("leave", &[]).assert_clean();
    }
}

#[test]
fn every_call_of_multicast_that_fails_is_named_and_leaks_nothing() {
    if !permitted() {
        return;
    }
    let clean = asking("objects", &[]);
    clean.assert_clean();
    let first = |symbol: &str| clean.calls.iter().position(|call| call == symbol);
    let start = first("cuMulticastGetGranularity").expect("it is asked");
    let end = clean
        .calls
        .iter()
        .rposition(|call| call == "cuMulticastUnbind")
        .expect("unbound");
    let mut failed = std::collections::BTreeSet::new();
    for number in start + 1..=end + 1 {
        let fail = format!("#{number}");
        let outcome = asking("objects", &[("FAKE_DEVICE_FAIL", &fail)]);
        let symbol = outcome.calls[number - 1].as_str();
        assert_eq!(outcome.report, [""; 0], "{symbol} {number}");
        // Two failures cannot be reported: restoring the caller's context, and the query that only serves an advice.
        if ["cuCtxSetCurrent", "cuMemGetInfo"].contains(&symbol) {
            continue;
        }
        assert_eq!(outcome.get("call"), symbol, "{number}: {:?}", outcome.lines);
        assert_eq!(outcome.get("code"), "999");
        failed.insert(symbol.to_owned());
    }
    let own = failed
        .iter()
        .filter(|symbol| symbol.starts_with("cuMulticast"));
    assert_eq!(own.count(), 5, "{failed:?}");
}

#[test]
fn what_is_no_object_no_memory_or_no_place_is_refused() {
    if !permitted() {
        return;
    }
    let outcome = asking("misuse", &[]);
    for name in [
        "dead", "outside", "nothing", "too-much", "plain", "freed", "unmapped", "no-bytes",
        "no-unit", "odd", "released",
    ] {
        assert_eq!(
            outcome.get(name),
            "INVALID_ARGUMENT",
            "{name}: {:?}",
            outcome.lines
        );
    }
    assert_eq!(outcome.report, [""; 0]);
}

#[test]
fn a_backend_that_may_not_says_why_and_has_its_kernels_only_where_they_are_emulated() {
    let hardware = ("FAKE_CUDA_MULTICAST_HARDWARE", "1");
    let ask = |text| ("SYMMEM_MULTICAST", text);
    for (environment, support, why) in [
        (&[hardware, ask("")][..], "NONE", "nothing asks for it"),
        (
            &[hardware, ask("yes")],
            "NONE",
            "SYMMEM_MULTICAST=yes (not understood",
        ),
        (&[hardware, ask("0")], "NONE", "SYMMEM_MULTICAST forbids"),
        (
            &[hardware, ask("1"), ("NCCL_NVLS_ENABLE", "0")],
            "NONE",
            "NCCL_NVLS_ENABLE forbids",
        ),
        (
            &[hardware, ask("1"), ("NVSHMEM_DISABLE_NVLS", "1")],
            "NONE",
            "NVSHMEM_DISABLE_NVLS",
        ),
        (
            &[hardware, ask("emulate")],
            "EMULATED",
            "runs the multicast kernels over peer addresses",
        ),
        (
            &[ask("emulate"), ("NCCL_NVLS_ENABLE", "0")],
            "EMULATED",
            "over peer addresses",
        ),
    ] {
        let outcome = run("multicast off", environment);
        assert_eq!(outcome.get("support"), support, "{environment:?}");
        assert_eq!(outcome.get("status"), "UNSUPPORTED");
        // The environment of the tests may forbid multicast, too.
        let reason = outcome.get("why");
        assert!(
            reason.contains(why) || reason.contains("forbids it"),
            "{environment:?}: {reason}"
        );
        assert_eq!(outcome.get("kernels"), (support == "EMULATED").to_string());
        assert_eq!(outcome.get("others"), "0");
        let called = |call: &&String| call.starts_with("cuMulticast");
        assert_eq!(outcome.calls.iter().find(called), None);
    }
    if permitted() {
        // A device without a switch.
        let outcome = run("multicast off", &[ask("1")]);
        assert_eq!(outcome.get("support"), "NONE");
        assert!(
            outcome.get("why").contains("has no multicast"),
            "{}",
            outcome.get("why")
        );
    }
}

#[test]
fn a_device_that_cannot_be_asked_works_without() {
    if !permitted() {
        return;
    }
    let clean = asking("opens", &[]);
    assert_eq!(clean.get("support"), "HARDWARE");
    let attribute = |call: &&String| *call == "cuDeviceGetAttribute";
    let asked = clean.calls.iter().filter(attribute).count();
    let mut without = 0;
    for number in 1..=asked {
        let fail = format!("cuDeviceGetAttribute:{number}");
        let outcome = asking("opens", &[("FAKE_DEVICE_FAIL", &fail)]);
        assert_eq!(outcome.report, [""; 0], "{fail}");
        if outcome.get("support") == "NONE" {
            let why = outcome.get("why");
            assert!(why.contains("cuDeviceGetAttribute"), "{why}");
            without += 1;
        }
    }
    assert_eq!(
        without, 1,
        "the one question of {asked} that is about multicast"
    );
}

#[test]
fn floats_of_8_bits_have_kernels_on_the_architecture_whose_switch_sums_them() {
    if !permitted() {
        return;
    }
    for (architecture, emulate, f8) in [
        ("90", false, "false"),
        ("100", false, "true"),
        ("103", false, "false"),
        ("100", true, "false"),
    ] {
        let mut environment = vec![("FAKE_CUDA_ARCHITECTURE", architecture)];
        if emulate {
            environment.push(("SYMMEM_MULTICAST", "emulate"));
        }
        let outcome = asking("opens", &environment);
        assert_eq!(
            outcome.get("bf16"),
            "true",
            "{environment:?}: {:?}",
            outcome.lines
        );
        for element in ["f8_e4m3", "f8_e5m2"] {
            assert_eq!(outcome.get(element), f8, "{environment:?} {element}");
        }
    }
}
