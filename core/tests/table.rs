//! The plugin table, called as a program calls a plugin: every value goes through `extern "C"` functions.
//!
//! `cargo +nightly miri test -p symmem-core --test table` looks for undefined behavior in it.

mod tiny;

use std::any::Any;
use std::sync::Mutex;
use symmem_core::backend::abi::*;
use symmem_core::backend::{
    ABI_MAJOR, ABI_MINOR, BackendTable, CollectiveKernels, Device, DeviceTable, Gemm, Multicast,
    NcclCollectives, PluginBackend, RemoteAccess, Signals, SignalsTable, SymmetricMemory,
    TableError, Tables,
};
use tiny::{PANICKING_DEVICE, TOO_MANY_BYTES, Tiny};

static TABLE: BackendTable = BackendTable::of::<Tiny>();

/// Stands for an older minor version, whose tables may be shorter: ABI 1.0 has none.
const OTHER_MINOR: u32 = ABI_MINOR + 1;

fn options(ordinal: u32) -> OpenOptions {
    OpenOptions {
        size: size_of::<OpenOptions>() as u32,
        ordinal,
        rank: 0,
        local_world: 1,
        services: std::ptr::null(),
    }
}

fn read(table: &'static BackendTable) -> Result<Tables, TableError> {
    // SAFETY: the table is whole and lives as long as the program.
    unsafe { Tables::read(table) }
}

/// Keeps a value for the life of the program, reachable for leak detection.
fn keep<T: Any + Send + Sync>(value: T) -> &'static T {
    static KEPT: Mutex<Vec<&'static (dyn Any + Send + Sync)>> = Mutex::new(Vec::new());
    let value: &'static T = Box::leak(Box::new(value));
    KEPT.lock().expect("no panic under it").push(value);
    value
}

/// Returns a copy of [`TABLE`] with a change.
fn changed(change: impl FnOnce(&mut BackendTable)) -> &'static BackendTable {
    let mut table = TABLE;
    change(&mut table);
    keep(table)
}

fn open() -> PluginBackend {
    read(&TABLE)
        .expect("a good table")
        .open(&options(2))
        .expect("device 2 opens")
}

#[test]
fn table_gives_what_the_backend_gives() {
    let tables = read(&TABLE).expect("a good table");
    assert_eq!(
        (tables.name().as_str(), tables.build().as_str()),
        ("tiny", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(tables.device_count(), Ok(PANICKING_DEVICE + 1));
    assert_eq!(tables.describe_device(3).expect("described").uuid, [3; 16]);
    assert_eq!(tables.describe_libraries().as_deref(), Ok("tiny=none\n"));
    let row = tables.selector_row(0).expect("read").expect("a row");
    assert_eq!((row.world, row.blocks), (2, 3));
    assert_eq!(tables.selector_row(1), Ok(None));
    let backend = open();
    assert_eq!(backend.description().expect("described").ordinal, 2);
    assert_eq!(backend.memory_information().expect("known").free, 1 << 20);
}

#[test]
fn table_moves_bytes_and_gives_signals() {
    let backend = open();
    let kind = ShareKindCode::SAME_PROCESS;
    let (one, other) = (
        backend.allocate(kind, 64).unwrap(),
        backend.allocate(kind, 256).unwrap(),
    );
    let stream = backend.stream_create().unwrap();
    let (word, epoch) = (
        DeviceAddress(other.address.0 + 128),
        DeviceAddress(other.address.0 + 192),
    );
    let transfer = Transfer {
        destination: other.address,
        source: one.address,
        bytes: 64,
        signal: SignalTarget {
            word,
            epoch,
            ..SignalTarget::default()
        },
        ..Transfer::default()
    };
    let wait = |value| SignalWait {
        word,
        value,
        ..SignalWait::default()
    };
    // SAFETY: all memory used here is live and was allocated above.
    unsafe {
        backend.memory_set(one.address, 0xab, 64, stream).unwrap();
        let early = backend
            .signal_wait(&wait(1), SignalPlacementCode::DEVICE, stream)
            .unwrap_err();
        assert_eq!(
            (early.status, early.call.as_str()),
            (Status::CALL_FAILED, "tiny_wait")
        );
        backend.transfer(&transfer, stream).unwrap();
        backend
            .signal_wait(&wait(1), SignalPlacementCode::DEVICE, stream)
            .unwrap();
        backend
            .signal_give(&transfer.signal, SignalPlacementCode::DEVICE, stream)
            .unwrap();
        backend
            .signal_wait(&wait(2), SignalPlacementCode::DEVICE, stream)
            .unwrap();
        let seen: *const u8 = std::ptr::with_exposed_provenance(other.address.0 as usize);
        assert_eq!(
            (seen.read(), seen.add(63).read(), seen.add(64).read()),
            (0xab, 0xab, 0)
        );
        let exported = backend.export(one.handle).unwrap();
        assert_eq!(exported.descriptor, -1);
        let mapped = backend.import(&exported).unwrap();
        assert_eq!(mapped.address, one.address);
        backend.unmap(mapped.handle).unwrap();
        let barrier = Barrier {
            watch: Watch::default(),
            epoch,
            own: word,
            peers: [DeviceAddress::NULL; MAX_RANKS],
            world: 2,
            slot: 0,
        };
        assert_eq!(
            backend.barrier(&barrier, stream).unwrap_err().status,
            Status::UNSUPPORTED
        );
        backend.free(one.handle).unwrap();
        let twice = backend.free(one.handle).unwrap_err();
        assert_eq!(
            (twice.status, twice.call.as_str()),
            (Status::INVALID_ARGUMENT, "tiny_free")
        );
        backend.stream_destroy(stream).unwrap();
    }
    // Closing the backend frees the other allocation; Miri reports a leak if it does not.
}

#[test]
fn table_carries_a_failure_whole_and_once() {
    let backend = open();
    let failure = backend
        .allocate(ShareKindCode::SAME_PROCESS, TOO_MANY_BYTES)
        .unwrap_err();
    assert_eq!(
        (failure.status, failure.vendor_code),
        (Status::OUT_OF_MEMORY, 12)
    );
    assert_eq!(failure.call, "tiny_alloc");
    assert_eq!(
        failure.message,
        format!("{TOO_MANY_BYTES} bytes are too many")
    );
    assert!(backend.allocate(ShareKindCode::SAME_PROCESS, 1).is_ok());
}

#[test]
fn table_turns_a_panic_into_a_failure() {
    let tables = read(&TABLE).expect("a good table");
    let failure = tables
        .open(&options(PANICKING_DEVICE))
        .map(drop)
        .unwrap_err();
    assert_eq!(failure.status, Status::PANICKED);
    assert!(
        failure.message.contains("unlucky") && failure.message.contains("bug"),
        "{failure}"
    );
    // The next call must not be affected.
    assert!(tables.open(&options(0)).is_ok());
}

#[test]
fn table_of_another_kind_or_version_is_refused_with_both_numbers() {
    // SAFETY: null is allowed.
    let none = unsafe { Tables::read(std::ptr::null()) };
    assert!(matches!(none, Err(TableError::Null)));
    let other = read(changed(|table| table.magic = *b"symmemA\0"));
    assert!(matches!(other, Err(TableError::WrongMagic { found }) if &found == b"symmemA\0"));
    let newer = read(changed(|table| table.abi_major = ABI_MAJOR + 1))
        .map(drop)
        .unwrap_err();
    assert!(matches!(newer, TableError::WrongMajor { .. }));
    let text = newer.to_string();
    assert!(text.contains(&ABI_MAJOR.to_string()) && text.contains(&(ABI_MAJOR + 1).to_string()));
    let short = read(changed(|table| table.size = 100))
        .map(drop)
        .unwrap_err();
    assert!(
        matches!(short, TableError::Truncated { found: 100, .. }),
        "{short}"
    );
}

#[test]
fn table_without_an_entry_says_that_the_plugin_is_older() {
    let older = read(changed(|table| {
        table.abi_minor = OTHER_MINOR;
        table.describe_libraries = None;
        table.selector_row = None;
        // SAFETY: the pointer is to a whole table.
        let mut device: DeviceTable = unsafe { *table.device };
        device.size = std::mem::offset_of!(DeviceTable, launch) as u64;
        table.device = keep(device);
        table.signals = std::ptr::null::<SignalsTable>();
    }));
    let tables = older.expect("older, and good");
    let failure = tables.describe_libraries().unwrap_err();
    assert_eq!(
        (failure.status, failure.call.as_str()),
        (Status::UNSUPPORTED, "describe_libraries")
    );
    let failure = tables.selector_row(0).unwrap_err();
    assert_eq!(
        (failure.status, failure.call.as_str()),
        (Status::UNSUPPORTED, "selector_row")
    );
    let backend = tables.open(&options(0)).expect("opens");
    let stream = backend.stream_create().expect("an entry that is there");
    // SAFETY: the table has neither entry, so the arguments are not used.
    let (launch, give) = unsafe {
        (
            backend.launch(RawFunction(1), &Geometry::default(), &[], stream),
            backend.signal_give(
                &SignalTarget::default(),
                SignalPlacementCode::DEVICE,
                stream,
            ),
        )
    };
    for failure in [launch.unwrap_err(), give.unwrap_err()] {
        assert_eq!(failure.status, Status::UNSUPPORTED);
        assert!(
            failure.message.contains("older than this program"),
            "{failure}"
        );
    }
}

#[test]
fn table_without_a_part_says_that_the_plugin_is_older_at_each_of_its_calls() {
    let older = read(changed(|table| {
        table.nccl_collectives = std::ptr::null();
        table.gemm = std::ptr::null();
        table.multicast = std::ptr::null();
    }));
    let backend = older
        .expect("a good table")
        .open(&options(0))
        .expect("opens");
    for failure in [
        backend.nccl_description().map(drop).unwrap_err(),
        backend.gemm_library().map(drop).unwrap_err(),
        backend.multicast_support().map(drop).unwrap_err(),
    ] {
        assert_eq!(failure.status, Status::UNSUPPORTED);
        assert!(
            failure.message.contains("older than this program"),
            "{failure}"
        );
    }
    // A backend that has the entry but not the feature gives its own reason.
    assert_eq!(open().multicast_support(), Ok(MulticastSupportCode::NONE));
    let failure = open().nccl_description().map(drop).unwrap_err();
    assert_eq!(failure.message, "this backend is small");
}

#[test]
fn table_shorter_than_that_of_the_first_release_is_refused() {
    let short = read(changed(|table| table.size -= 8))
        .map(drop)
        .unwrap_err();
    assert!(matches!(short, TableError::Truncated { .. }), "{short}");
}

#[test]
fn table_of_a_size_that_no_build_of_its_version_has_is_refused_with_both_sizes() {
    let whole = size_of::<BackendTable>() as u64;
    let longer = read(changed(|table| table.size += 8))
        .map(drop)
        .unwrap_err();
    let expected = TableError::OtherSize {
        part: "backend",
        found: whole + 8,
        expected: whole,
    };
    assert_eq!(longer, expected);
    // A newer minor version may have more entries, which this program does not read.
    let newer = changed(|table| {
        table.abi_minor = OTHER_MINOR;
        table.size += 8;
    });
    assert!(read(newer).is_ok());
}

#[test]
fn table_of_a_trait_with_another_size_is_refused_by_its_name() {
    let with = |minor: u32, size: u64| {
        read(changed(|table| {
            table.abi_minor = minor;
            // SAFETY: the pointer is to a whole table.
            let mut device: DeviceTable = unsafe { *table.device };
            device.size = size;
            table.device = keep(device);
        }))
        .map(drop)
    };
    let whole = size_of::<DeviceTable>() as u64;
    let truncated = TableError::Truncated {
        part: "device",
        found: 7,
        least: 8,
    };
    assert_eq!(with(OTHER_MINOR, 7), Err(truncated));
    // Half an entry is in no version.
    for (minor, size) in [
        (ABI_MINOR, whole - 8),
        (ABI_MINOR, whole + 8),
        (OTHER_MINOR, whole - 4),
    ] {
        let other = TableError::OtherSize {
            part: "device",
            found: size,
            expected: whole,
        };
        assert_eq!(with(minor, size), Err(other));
    }
    assert_eq!(with(ABI_MINOR, whole), Ok(()));
    assert_eq!(with(OTHER_MINOR, whole - 8), Ok(()));
}

#[test]
fn table_is_not_opened_by_a_program_whose_options_are_too_short() {
    let older = OpenOptions {
        size: size_of::<OpenOptions>() as u32 - 8,
        ..options(0)
    };
    let opened = read(&TABLE).expect("a good table").open(&older).map(drop);
    let failure = opened.unwrap_err();
    assert_eq!(failure.status, Status::INVALID_ARGUMENT);
    assert!(failure.message.contains("older"), "{failure}");
}

#[test]
fn table_can_be_used_from_any_thread_and_each_has_its_own_failure() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Tables>();
    is_send_and_sync::<PluginBackend>();
    let backend = open();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let backend = &backend;
            scope.spawn(move || {
                for round in 0..8 {
                    let bytes = TOO_MANY_BYTES + thread * 100 + round;
                    let failure = backend
                        .allocate(ShareKindCode::SAME_PROCESS, bytes)
                        .unwrap_err();
                    assert!(failure.message.starts_with(&bytes.to_string()), "{failure}");
                    let memory = backend.host_allocate(64).unwrap();
                    // SAFETY: the memory was allocated above, and nothing uses it.
                    unsafe { backend.host_free(memory).unwrap() };
                }
            });
        }
    });
}
