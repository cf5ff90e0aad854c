//! Tests of NCCL through the backend's table, over the fake library: all operations, and all failures.

use crate::support::{self, Outcome, run};

/// Runs a role over the fake library, told not to use multicast.
fn vendor(role: &str, environment: &[(&str, &str)]) -> Outcome {
    vendor_of(support::nccl_directory(), role, environment)
}

fn vendor_of(directory: &std::path::Path, role: &str, environment: &[(&str, &str)]) -> Outcome {
    let directory = directory.to_str().expect("a path of this test");
    let mut all = vec![
        ("SYMMEM_LIBRARY_PATH", directory),
        ("NCCL_NVLS_ENABLE", "0"),
        ("FAKE_DEVICE_COUNT", "4"),
    ];
    all.extend(environment);
    run(&format!("vendor {role}"), &all)
}

#[test]
fn every_call_of_the_vendors_library_gives_what_it_should_in_worlds_of_one_to_four() {
    for world in 1..=4 {
        vendor(&format!("everything {world}"), &[]).assert_clean();
    }
}

#[test]
fn a_missing_library_is_a_missing_capability_and_nothing_else() {
    let outcome = run(
        "vendor describe",
        &[("LD_LIBRARY_PATH", ""), ("NCCL_NVLS_ENABLE", "0")],
    );
    if !outcome.get("version").is_empty() {
        eprintln!("skipped: NCCL is installed here");
        return;
    }
    assert_eq!(
        outcome.get("status"),
        "LIBRARY_MISSING",
        "{:?}",
        outcome.lines
    );
    assert!(outcome.get("message").contains("libnccl.so.2"));
    assert!(outcome.get("message").contains("SYMMEM_LIBRARY_PATH"));
    assert_eq!(outcome.report, [""; 0]);
}

#[test]
fn a_library_without_windows_lacks_windows_only() {
    let old = support::nccl_without(&["ncclCommWindowRegister"]);
    let outcome = vendor_of(&old, "describe", &[("FAKE_NCCL_VERSION", "22604")]);
    outcome.assert_clean();
    assert_eq!(outcome.get("windows"), "false");
    assert_eq!(outcome.get("all-to-all"), "true");
    assert_eq!(outcome.get("version"), "22604");
    let outcome = vendor_of(&old, "register", &[]);
    assert_eq!(outcome.get("status"), "UNSUPPORTED", "{:?}", outcome.lines);
    assert!(outcome.get("message").contains("windows"));
    assert_eq!(outcome.report, [""; 0]);
}

#[test]
fn a_library_without_an_all_to_all_is_given_sends_and_receives() {
    // The fake has RCCL's spelling, too.
    let old = support::nccl_without(&["ncclAlltoAll", "ncclAllToAll"]);
    vendor_of(&old, "all-to-all", &[]).assert_clean();
    let outcome = vendor_of(&old, "describe", &[]);
    assert_eq!(outcome.get("all-to-all"), "false");
}

#[test]
fn a_library_that_cannot_do_is_told_with_symbol_or_version() {
    let without = support::nccl_without(&["ncclCommFinalize"]);
    for (outcome, word) in [
        (vendor_of(&without, "describe", &[]), "ncclCommFinalize"),
        (
            vendor("describe", &[("FAKE_NCCL_VERSION", "21706")]),
            "2.17.6",
        ),
    ] {
        assert_eq!(
            outcome.get("status"),
            "LIBRARY_MISSING",
            "{:?}",
            outcome.lines
        );
        assert!(outcome.get("message").contains(word), "{:?}", outcome.lines);
    }
}

#[test]
fn no_communicator_is_made_that_might_use_multicast() {
    for (environment, word) in [
        (("NCCL_NVLS_ENABLE", ""), "SYMMEM_MULTICAST=1"),
        (("NCCL_NVLS_ENABLE", "1"), "SYMMEM_MULTICAST=1"),
    ] {
        let outcome = vendor("describe", &[environment]);
        assert_eq!(outcome.get("status"), "UNSUPPORTED", "{:?}", outcome.lines);
        assert!(outcome.get("message").contains(word), "{:?}", outcome.lines);
        assert!(outcome.get("message").contains("NCCL_NVLS_ENABLE=0"));
    }
    vendor(
        "describe",
        &[("NCCL_NVLS_ENABLE", ""), ("SYMMEM_MULTICAST", "1")],
    )
    .assert_clean();
}

#[test]
fn a_failing_call_is_named_with_the_librarys_words() {
    for symbol in [
        "ncclGetUniqueId",
        "ncclCommInitRankConfig",
        "ncclCommGetAsyncError",
        "ncclAllReduce",
        "ncclGroupStart",
        "ncclCommWindowRegister",
        "ncclCommWindowDeregister",
        "ncclCommFinalize",
    ] {
        let outcome = vendor("everything 1", &[("FAKE_NCCL_FAIL", symbol)]);
        assert_eq!(outcome.get("call"), symbol, "{:?}", outcome.lines);
        assert_eq!(outcome.get("code"), "2");
        for word in ["unhandled system error", "said by the fake", "NCCL_DEBUG"] {
            assert!(outcome.get("message").contains(word), "{:?}", outcome.lines);
        }
    }
}

#[test]
fn what_fails_after_a_call_has_returned_is_told_by_the_next_look() {
    for symbol in [
        "ncclCommInitRankConfig",
        "ncclAllReduce",
        "ncclCommWindowRegister",
    ] {
        let outcome = vendor("everything 1", &[("FAKE_NCCL_ASYNC", symbol)]);
        assert_eq!(
            outcome.get("call"),
            "ncclCommGetAsyncError",
            "{:?}",
            outcome.lines
        );
        assert_eq!(outcome.get("code"), "6");
        assert!(outcome.get("message").contains("another rank failed"));
    }
}

#[test]
fn a_join_that_nobody_else_comes_to_is_not_ready_and_can_be_aborted() {
    let outcome = vendor("never-joined", &[]);
    outcome.assert_clean();
    assert_eq!(outcome.get("ready"), "false");
    assert!(outcome.get("late").contains("aborted"));
}

#[test]
fn an_abort_from_another_thread_ends_a_call_that_never_would() {
    let hang = [("FAKE_NCCL_HANG", "ncclAllReduce:1")];
    vendor("abort-a-call", &hang).assert_clean();
}

#[test]
fn an_abort_releases_a_stream_that_waits_for_a_peer() {
    let outcome = vendor("abort-a-stream", &[]);
    outcome.assert_clean();
    assert_eq!(outcome.get("waits"), "true");
}

#[test]
fn an_end_that_a_peer_does_not_come_to_becomes_an_abort() {
    let hang = [("FAKE_NCCL_HANG", "ncclCommFinalize:0")];
    vendor("everything 1", &hang).assert_clean();
}

#[test]
fn a_communicator_that_nobody_gives_up_ends_with_the_instance() {
    vendor("leave-to-close", &[]).assert_clean();
}
