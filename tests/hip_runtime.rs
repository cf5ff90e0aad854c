//! Known faults of AMD's runtime, and how the backend handles them, over the fake runtime, which has a variable for
//! each fault.

#[allow(dead_code, reason = "these tests use the fake HIP runtime only")]
mod support;

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::hip::{Release, fake_hip};
use symmem::backend::SymmetricMemory;
use symmem::backends::Selection;
use symmem::{Builder, DeviceChoice, Error, ErrorKind, LaunchEnvironment, ShareKind};

/// Runs a role below in a child process with these variables, asserts that it broke no rule of the runtime, and returns
/// what it did not free.
#[track_caller]
fn role(role: &str, libraries: &Path, variables: &[(&str, &str)]) -> String {
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join(support::job(role));
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            &format!("roles::{role}"),
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("FAKE_DEVICE_REPORT", &report)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{variables:?}: {text}");
    let found = std::fs::read_to_string(&report).unwrap();
    assert!(!found.contains("violation: "), "{variables:?}: {found}");
    std::fs::remove_file(report).unwrap();
    let live = found.lines().filter(|line| line.starts_with("live: "));
    live.collect::<Vec<_>>().join(", ")
}

/// Returns the builder of a world of one rank on the first device.
fn alone(kinds: &[ShareKind]) -> Builder {
    Builder::new()
        .launch(LaunchEnvironment::local(0, 1, support::job("hip-runtime")).unwrap())
        .backend(Selection::Named("hip".into()))
        .share_kinds(kinds)
}

#[test]
fn memory_that_the_runtime_says_it_mapped_and_did_not_is_an_error_and_not_handed_out() {
    let faulty = [("FAKE_HIP_MAPS_NOTHING", "1")];
    assert_eq!(role("mapping", fake_hip(Release::Six), &faulty), "");
}

#[test]
fn memory_that_begins_where_a_mapping_ends_is_not_taken_for_a_part_of_it() {
    let side_by_side = [("FAKE_DEVICE_GAP_BYTES", "0")];
    assert_eq!(
        role("neighbors", fake_hip(Release::Seven), &side_by_side),
        ""
    );
}

#[test]
fn a_unit_of_memory_that_the_runtime_does_not_tell_is_an_error() {
    let failing = [("FAKE_DEVICE_FAIL", "hipMemGetAllocationGranularity:1:1")];
    assert_eq!(role("no_unit", fake_hip(Release::Seven), &failing), "");
}

#[test]
fn partitions_with_one_uuid_are_devices_of_their_own() {
    let cut = [("FAKE_HIP_PARTITIONS", "2")];
    assert_eq!(role("partitions", fake_hip(Release::Seven), &cut), "");
}

#[test]
fn memory_that_is_not_ready_to_be_shared_is_shared_once_it_is() {
    let export = "hipMemExportToShareableHandle";
    let rules: Vec<String> = (1..=3).map(|n| format!("{export}:{n}:600")).collect();
    let late = [("FAKE_DEVICE_FAIL", rules.join(","))];
    let late = late.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(role("ready_later", fake_hip(Release::Seven), &late), "");
}

#[test]
fn memory_that_never_gets_ready_to_be_shared_is_an_error_before_the_deadline() {
    let never = [("FAKE_DEVICE_FAIL", "hipMemExportToShareableHandle:0:600")];
    assert_eq!(role("never_ready", fake_hip(Release::Seven), &never), "");
}

#[test]
fn memory_is_shared_by_the_dma_bufs_of_address_ranges_from_7_0_on() {
    assert_eq!(role("address_ranges", fake_hip(Release::Seven), &[]), "");
    assert_eq!(role("no_address_ranges", fake_hip(Release::Six), &[]), "");
}

/// MI200 signals need uncached memory, which VMM can allocate from release 7.2 on.
#[test]
fn on_mi200_virtual_memory_is_offered_from_the_release_on_that_can_make_signals_of_it() {
    for (release, offered) in [("6.4", "no"), ("7.1", "no"), ("7.2", "yes")] {
        let mi200 = [
            ("FAKE_HIP_ARCHITECTURE", "gfx90a"),
            ("FAKE_HIP_RELEASE", release),
            ("OFFERED", offered),
        ];
        assert_eq!(role("mi200", fake_hip(Release::Seven), &mi200), "");
    }
}

/// The rank that does not come may still map this rank's memory, so that memory is not freed before the process ends.
#[test]
fn a_rank_that_does_not_come_holds_a_rebuild_up_to_the_deadline_and_not_once_more_for_its_memory() {
    let left = role("held_up", fake_hip(Release::Seven), &[]);
    assert!(left.contains("allocations"), "{left}");
}

/// For example, PyTorch brings the release that it was built for.
#[test]
fn of_two_releases_the_one_that_the_program_has_loaded_is_used() {
    let both = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-hip-releases");
    std::fs::create_dir_all(&both).unwrap();
    for (release, name) in [
        (Release::Seven, "libamdhip64.so.7"),
        (Release::Six, "libamdhip64.so.6"),
    ] {
        let link = both.join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(fake_hip(release).join(name), link).unwrap();
    }
    let both = both.to_str().unwrap();
    let found_by = [("SYMMEM_LIBRARY_PATH", ""), ("LD_LIBRARY_PATH", both)];
    assert_eq!(role("two_releases", Path::new(""), &found_by), "");
}

/// The roles that the tests above run.
mod roles {
    use super::*;

    #[test]
    #[ignore = "run in a child process by the tests above"]
    fn mapping() {
        let opened = alone(&[ShareKind::VmmFileDescriptor]).build();
        let error = opened.expect_err("nothing is mapped").to_string();
        for word in ["hipMemMap", "reported success and mapped nothing"] {
            assert!(error.contains(word), "{word}: {error}");
        }
        // The other way to share memory needs no mapping.
        let communicator = alone(&[ShareKind::LegacyIpc]).build().unwrap();
        communicator.allocate::<u8>(&[16]).unwrap().free().unwrap();
        assert!(communicator.finalize().unwrap().is_empty());
    }

    #[test]
    #[ignore = "run in a child process by the tests above"]
    fn ready_later() {
        let communicator = alone(&[ShareKind::VmmFileDescriptor]).build().unwrap();
        communicator.allocate::<u8>(&[16]).unwrap().free().unwrap();
        assert!(communicator.finalize().unwrap().is_empty());
    }

    #[test]
    #[ignore = "run in a child process by the tests above"]
    fn never_ready() {
        const SETUP: Duration = Duration::from_secs(4);
        let opened = alone(&[ShareKind::VmmFileDescriptor])
            .setup_deadline(SETUP)
            .build();
        let error = opened.expect_err("nothing can be shared");
        let Error::ShareTimeout {
            rank: 0,
            bytes,
            waited,
            failure,
            ..
        } = &error
        else {
            panic!("{error:#?}");
        };
        // The peers, which wait for the whole deadline, get the reason.
        assert!((SETUP / 2..SETUP).contains(waited), "{waited:?}");
        assert_eq!(failure.call, "hipMemExportToShareableHandle");
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let text = error.to_string();
        for word in [
            &format!("{bytes} bytes"),
            "rank 0",
            &failure.call,
            "hipErrorNotReady",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        // The other way to share memory does not make this call.
        let communicator = alone(&[ShareKind::LegacyIpc]).build().unwrap();
        assert!(communicator.finalize().unwrap().is_empty());
    }

    #[test]
    #[ignore = "run in a child process by the tests above"]
    fn address_ranges() {
        let job = support::job("address-ranges");
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let job = job.clone();
                scope.spawn(move || {
                    let launch = LaunchEnvironment::local(rank, 2, job).unwrap();
                    let communicator = alone(&[ShareKind::AddressRange]).launch(launch).build();
                    let communicator = communicator.unwrap();
                    let listed = communicator.capabilities().share_kinds;
                    assert_eq!(listed.last(), Some(&ShareKind::AddressRange.into()));
                    let stream = communicator.stream().unwrap();
                    let buffer = communicator.allocate::<u32>(&[4]).unwrap();
                    let peer = 1 - rank as usize;
                    let at = buffer.peer(peer).unwrap().address();
                    assert_ne!(at, buffer.local().address(), "the peer's copy is mapped");
                    stream.barrier().unwrap();
                    stream.synchronize().unwrap();
                    buffer.free().unwrap();
                    assert!(communicator.finalize().unwrap().is_empty());
                });
            }
        });
    }

    #[test]
    #[ignore = "run in a child process by the tests above"]
    fn no_address_ranges() {
        let opened = alone(&[ShareKind::AddressRange]).build();
        let error = opened.expect_err("6.4 has none").to_string();
        let text = error.to_lowercase();
        assert!(text.contains("requested: address_range"), "{error}");
    }

    #[test]
    #[ignore = "run in a child process by the tests above"]
    fn two_releases() {
        // SAFETY: this is the fake runtime, whose initializers do nothing.
        let older = unsafe { libloading::Library::new("libamdhip64.so.6") }.unwrap();
        let communicator = alone(&[]).build().unwrap();
        let version = communicator.capabilities().driver_version;
        assert_eq!(version / 100_000, 604, "6.4, not 7.1");
        assert!(communicator.finalize().unwrap().is_empty());
        drop(older);
    }

    #[test]
    #[ignore = "run in a child process by the tests above"]
    fn neighbors() {
        const BYTES: u64 = 2 << 20;
        let communicator = alone(&[]).build().unwrap();
        // SAFETY: what is made is freed below, and nothing of the communicator is touched.
        let backend = unsafe { communicator.backend() };
        let [ipc, vmm] = [ShareKind::LegacyIpc, ShareKind::VmmFileDescriptor];
        let mapped = backend.allocate(vmm.into(), BYTES).unwrap();
        let plain = backend.allocate(ipc.into(), BYTES).unwrap();
        assert_eq!(plain.address.0, mapped.address.0 + BYTES);
        // SAFETY: the memory was allocated above and is freed only below.
        let registered = |kind, address| unsafe { backend.register(kind, address, BYTES) };
        let neighbor = registered(ipc.into(), plain.address).expect("it has a handle of its own");
        let failure = registered(vmm.into(), plain.address).expect_err("it is not virtual memory");
        assert!(failure.message.contains("not created with hipMemCreate"));
        let own = registered(vmm.into(), mapped.address).expect("it is");
        for allocation in [neighbor, own, mapped, plain] {
            // SAFETY: nothing uses the allocation any more.
            unsafe { backend.free(allocation.handle) }.unwrap();
        }
        assert!(communicator.finalize().unwrap().is_empty());
    }

    #[test]
    #[ignore = "run in a child process by the tests above"]
    fn no_unit() {
        let error = alone(&[]).build().expect_err("it fails").to_string();
        assert!(error.contains("hipMemGetAllocationGranularity"), "{error}");
    }

    #[test]
    #[ignore = "run in a child process by the tests above"]
    fn partitions() {
        let job = support::job("partitions");
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let job = job.clone();
                scope.spawn(move || {
                    let launch = LaunchEnvironment::local(rank, 2, job).unwrap();
                    let communicator = alone(&[]).launch(launch).build().unwrap();
                    let [one, other] = communicator.peers() else {
                        panic!("two ranks");
                    };
                    assert_eq!(one.uuid, other.uuid);
                    assert_ne!(one.bus, other.bus);
                    assert!(!communicator.shares_device());
                    assert!(communicator.finalize().unwrap().is_empty());
                });
            }
        });
        let choice = DeviceChoice::Uuid(*b"fa00ce5ca1ab1e00");
        let error = alone(&[])
            .device(choice)
            .build()
            .expect_err("two devices have this UUID");
        assert!(
            error.to_string().contains("devices [0, 1] all have"),
            "{error}"
        );
    }

    #[test]
    #[ignore = "run in a child process by the tests above"]
    fn mi200() {
        const BYTES: u64 = 2 << 20;
        let offered = std::env::var("OFFERED").as_deref() == Ok("yes");
        let vmm = ShareKind::VmmFileDescriptor;
        match alone(&[vmm]).build() {
            Ok(communicator) => {
                assert!(offered);
                assert!(communicator.finalize().unwrap().is_empty());
            }
            Err(error) => {
                assert!(!offered, "{error}");
                assert!(
                    error.to_string().contains("no sharing strategy in common"),
                    "{error}"
                );
            }
        }
        let communicator = alone(&[]).build().unwrap();
        let kinds = communicator.capabilities().share_kinds;
        assert_eq!(kinds.contains(&vmm.into()), offered, "{kinds:?}");
        // SAFETY: an allocation affects nothing of the communicator.
        let backend = unsafe { communicator.backend() };
        assert_eq!(backend.allocate(vmm.into(), BYTES).is_ok(), offered);
        assert!(communicator.finalize().unwrap().is_empty());
    }

    #[test]
    #[ignore = "run in a child process by the tests above"]
    fn held_up() {
        const LIMIT: Duration = Duration::from_secs(5);
        let world = |rank, job: &str| {
            let launch = LaunchEnvironment::local(rank, 2, job.to_owned()).unwrap();
            let communicator = alone(&[])
                .launch(launch)
                .setup_deadline(LIMIT)
                .build()
                .unwrap();
            let buffer = communicator.allocate::<u8>(&[16]).unwrap();
            (communicator, buffer)
        };
        let job = support::job("held-up");
        // A rank that fails hangs up, so that the other does not wait for it.
        let (came, comes) = mpsc::channel();
        let (given_up, gives_up) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (world, job) = (&world, &job);
            scope.spawn(move || {
                let held = world(1, job);
                came.send(()).unwrap();
                // This rank keeps its communicator and does nothing with it.
                let _ = gives_up.recv();
                drop(held);
            });
            let (communicator, buffer) = world(0, job);
            // A rebuild is a failure to a peer whose own call has not returned.
            comes.recv().unwrap();
            let start = Instant::now();
            drop(buffer);
            let rebuilt = communicator.rebuild();
            let waited = start.elapsed();
            drop(given_up);
            let error = rebuilt.expect_err("no other rank arrives").to_string();
            assert!(error.contains("rank 1 did not arrive"), "{error}");
            assert!(waited < LIMIT + Duration::from_secs(10), "{waited:?}");
        });
    }
}
