//! Multicast where one rank has none: all do without, and nothing else of them changes.

use crate::built::{self, permitted};
use crate::support::{Plan, Setting};

/// Ranks over the fake driver, on devices behind a switch, that ask for multicast.
fn plan() -> Plan {
    let libraries = built::fake_driver();
    assert!(
        libraries.join("libcuda.so.1").exists(),
        "never another driver"
    );
    Plan::new("multicast/open", 3, Setting::Cuda)
        .env("SYMMEM_LIBRARY_PATH", libraries.display())
        .env("FAKE_CUDA_MULTICAST_HARDWARE", 1)
        .env("SYMMEM_MULTICAST", 1)
}

/// What all say of it, where rank 1 has this in its environment.
#[track_caller]
fn status(name: &'static str, value: &str) -> String {
    let mut world = plan().env_of(1, name, value).start();
    let told = world.expect("status");
    assert!(told.iter().all(|status| *status == told[0]), "{told:?}");
    let status = told[0].clone();
    for finalized in world.expect("finalized") {
        assert_eq!(finalized, "ok");
    }
    world.ends_well();
    status
}

#[test]
fn a_rank_on_which_it_is_forbidden_has_all_do_without_and_is_named() {
    if !permitted() {
        return;
    }
    for (name, value) in [("NCCL_NVLS_ENABLE", "0"), ("NVSHMEM_DISABLE_NVLS", "1")] {
        let status = status(name, value);
        let told = format!("{name} forbids it");
        assert!(
            status.starts_with("NONE: rank 1") && status.contains(&told),
            "{status}"
        );
    }
}
