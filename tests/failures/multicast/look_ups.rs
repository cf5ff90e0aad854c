//! Multicast functions are not looked up if anything forbids multicast.

use super::*;

/// Returns the names that the ranks looked up in the dynamic loader, then those they asked the driver for.
fn look_ups(plan: Plan) -> Vec<String> {
    let fresh = |what| Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh_name(what));
    let (record, trace) = (fresh("look-ups"), fresh("trace"));
    let recorded = plan
        .env("LD_PRELOAD", built::look_ups().display())
        .env("SYMMEM_TEST_LOOK_UPS", record.display())
        .env("FAKE_DEVICE_TRACE", trace.display());
    works(recorded);
    let mut names = built::looked_up(&record);
    assert!(names.iter().any(|name| name == "cuInit"), "{names:?}");
    let calls = std::fs::read_to_string(&trace).expect("a trace");
    assert!(calls.contains(" cuInit = 0"), "{calls}");
    // process thread looked up name
    let asked = calls
        .lines()
        .filter_map(|line| line.split_once(" looked up "));
    names.extend(asked.map(|(_, name)| name.to_owned()));
    for file in [record, trace] {
        let _ = std::fs::remove_file(file);
    }
    names
}

fn of_multicast(names: &[String]) -> BTreeMap<&str, usize> {
    let mut found = BTreeMap::new();
    for name in names.iter().filter(|name| name.contains("Multicast")) {
        *found.entry(name.as_str()).or_default() += 1;
    }
    found
}

/// Without a request for multicast, or with any of the switches that forbid it, not even the names are looked up.
#[rstest]
#[case::nobody_asks(&[("SYMMEM_MULTICAST", "")])]
#[case::something_else_is_said(&[("SYMMEM_MULTICAST", "maybe")])]
#[case::ours(&[("SYMMEM_MULTICAST", "0")])]
#[case::nccl(&[("NCCL_NVLS_ENABLE", "0")])]
#[case::nvshmem(&[("NVSHMEM_DISABLE_NVLS", "1")])]
#[case::torch(&[("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")])]
#[case::emulated(&[("SYMMEM_MULTICAST", "emulate")])]
#[case::emulated_where_it_is_forbidden(&[("SYMMEM_MULTICAST", "emulate"), ("NCCL_NVLS_ENABLE", "0")])]
fn not_one_function_is_looked_up_where_anything_forbids_it(#[case] variables: &[(&str, &str)]) {
    let mut quiet = plan_of("multicast/use", 2);
    for (name, value) in variables {
        quiet = quiet.env(name, value);
    }
    assert_eq!(of_multicast(&look_ups(quiet)), BTreeMap::new());
}

/// Shows that the test above would see look-ups.
#[test]
fn functions_are_looked_up_once_by_each_rank_where_it_is_asked_for() {
    if !permitted() {
        return;
    }
    let names = look_ups(plan("multicast/use"));
    let once = [
        "cuMulticastAddDevice",
        "cuMulticastBindMem",
        "cuMulticastCreate",
        "cuMulticastGetGranularity",
        "cuMulticastUnbind",
    ];
    assert_eq!(
        of_multicast(&names),
        once.map(|name| (name, WORLD)).into_iter().collect()
    );
}
