//! Collectives of worlds that span nodes: ranks of one machine pose as nodes by `SYMMEM_NODE`, and UCX carries what goes
//! between them over TCP.

#[allow(dead_code, reason = "only samples are drawn here")]
#[path = "../../support/amount.rs"]
mod amount;
#[path = "../backend.rs"]
mod backend;
mod checks;
mod crowded;
mod dying;
mod events;
mod explained;
mod failing;
mod named;
mod rank;
mod support;
mod times;
mod world;

use amount::sampled_out;
use backend::Backend;
use rstest::rstest;
use world::{Expected, check, run};

/// Runs a rank, in a process that [`world::check`] has started. A test like any other to the harness.
#[test]
fn rank() {
    rank::run_if_asked();
}

/// Prints how long collectives take. To run it: `cargo test --release -p symmem-library-tests --test node_collectives
/// times_of_collectives -- --ignored --nocapture`.
#[test]
#[ignore = "it measures"]
fn times_of_collectives() {
    run(Backend::Host, &[0, 0, 1, 1], "time", &Expected::default());
}

#[rstest]
fn four_nodes_of_one_rank(#[values(Backend::Host, Backend::Cuda)] backend: Backend) {
    check(backend, &[0, 1, 2, 3]);
}

#[rstest]
fn two_nodes_of_two_ranks(#[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend) {
    check(backend, &[0, 0, 1, 1]);
}

/// Above the driver HIP and CUDA are alike, so HIP has a part of the placements.
#[rstest]
fn two_nodes_whose_ranks_alternate(#[values(Backend::Host, Backend::Cuda)] backend: Backend) {
    check(backend, &[0, 1, 0, 1]);
}

#[rstest]
fn nodes_of_three_ranks_and_of_one(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    check(backend, &[0, 0, 0, 1]);
}

#[rstest]
fn nodes_of_one_rank_and_of_two_in_any_order(
    #[values(Backend::Host, Backend::Cuda)] backend: Backend,
) {
    check(backend, &[0, 1, 0, 2, 1]);
}

/// A rank of the smallest node holds parts of two ranks of each other node: more than the ranks by the smallest node's.
#[test]
fn nodes_of_three_ranks_and_of_two() {
    check(Backend::Host, &[0, 0, 0, 1, 1, 1, 2, 2]);
}

#[rstest]
fn three_nodes_of_two_ranks_in_any_order(#[values(Backend::Host, Backend::Cuda)] backend: Backend) {
    check(backend, &[0, 1, 2, 2, 0, 1]);
}

/// HIP has one placement, as above.
#[rstest]
#[case(Backend::Host, &[0, 0, 1, 1])]
#[case(Backend::Host, &[0, 0, 0, 1])]
#[case(Backend::Host, &[0, 1])]
#[case(Backend::Host, &[0, 1, 1, 2, 0])]
#[case(Backend::Cuda, &[0, 0, 1, 1])]
#[case(Backend::Cuda, &[0, 0, 0, 1])]
#[case(Backend::Cuda, &[0, 1])]
#[case(Backend::Hip, &[0, 0, 0, 1])]
fn calls_go_as_they_were_explained(#[case] backend: Backend, #[case] nodes: &[u32]) {
    if sampled_out(3) {
        return;
    }
    run(backend, nodes, "explained", &Expected::default());
}

#[rstest]
#[case(Backend::Cuda, &[0, 0, 1, 1])]
#[case(Backend::Cuda, &[0, 1, 2])]
#[case(Backend::Hip, &[0, 0, 1, 1])]
fn calls_with_nccl_open_go_as_they_were_explained(#[case] backend: Backend, #[case] nodes: &[u32]) {
    if sampled_out(3) {
        return;
    }
    run(backend, nodes, "explained with NCCL", &Expected::default());
}

#[rstest]
fn members_on_unlike_nodes_refuse_a_named_algorithm_alike(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
    #[values(&[0, 0, 0, 1], &[0, 1, 0])] nodes: &[u32],
) {
    if sampled_out(3) {
        return;
    }
    run(backend, nodes, "refused", &Expected::default());
}

/// Over fake NCCL and RCCL, whose communicators are of the rails. HIP has one placement, as above.
#[rstest]
#[case(Backend::Cuda, &[0, 0, 1, 1])]
#[case(Backend::Cuda, &[0, 1, 2, 0, 2, 1])]
#[case(Backend::Hip, &[0, 0, 1, 1])]
fn legs_by_nccl_have_the_results_of_all_others(#[case] backend: Backend, #[case] nodes: &[u32]) {
    if sampled_out(3) {
        return;
    }
    run(backend, nodes, "nccl", &Expected::default());
}

#[rstest]
fn a_call_that_names_nccl_is_carried_by_it_or_refused(
    #[values(Backend::Cuda, Backend::Hip)] backend: Backend,
    #[values(&[0, 0, 1, 1], &[0, 0, 0, 1])] nodes: &[u32],
) {
    if sampled_out(3) {
        return;
    }
    run(backend, nodes, "named", &Expected::default());
}

#[test]
fn a_named_grid_without_room_is_refused_within_a_node_and_made_smaller_over_nodes() {
    let expected = Expected {
        variables: &[("FAKE_DEVICE_COUNT", "1")],
        ..Expected::default()
    };
    run(Backend::Cuda, &[0, 0, 0, 1], "crowded", &expected);
}

/// So legs are made by NCCL, and not by something else that has the same results.
#[test]
fn a_failure_of_nccl_in_a_leg_is_the_error_of_the_call() {
    let expected = Expected {
        variables: &[("FAKE_NCCL_FAIL", "ncclAllReduce")],
        ..Expected::default()
    };
    run(Backend::Cuda, &[0, 0, 1, 1], "failing", &expected);
}

#[rstest]
fn ranks_whose_peer_dies_in_a_leg_get_its_rank_and_go_on_without_it(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    let expected = Expected {
        killed: Some(1),
        ..Expected::default()
    };
    run(backend, &[0, 0, 1, 1], "dying", &expected);
    if backend != Backend::Host {
        // The nodes that are left have the same number of ranks.
        run(backend, &[0, 1, 2], "dying in NCCL", &expected);
    }
}
