//! Collectives of worlds that span nodes: ranks of one machine pose as nodes by `SYMMEM_NODE`, and UCX carries what goes
//! between them over TCP.

mod checks;
mod rank;
mod support;
mod times;
mod world;

use rstest::rstest;
use world::{Backend, check, run};

/// Runs a rank, in a process that [`world::check`] has started. A test like any other to the harness.
#[test]
fn rank() {
    rank::run_if_asked();
}

/// Prints how long an all-reduce takes. To run it: `cargo test --release -p symmem-library-tests --test node_collectives
/// times_of_an_all_reduce -- --ignored --nocapture`.
#[test]
#[ignore = "it measures"]
fn times_of_an_all_reduce() {
    run(Backend::Host, &[0, 0, 1, 1], "time");
}

#[rstest]
fn four_nodes_of_one_rank(#[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend) {
    check(backend, &[0, 1, 2, 3]);
}

#[rstest]
fn two_nodes_of_two_ranks(#[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend) {
    check(backend, &[0, 0, 1, 1]);
}

#[rstest]
fn two_nodes_whose_ranks_alternate(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
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
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    check(backend, &[0, 1, 0, 2, 1]);
}

#[rstest]
fn three_nodes_of_two_ranks_in_any_order(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    check(backend, &[0, 1, 2, 2, 0, 1]);
}
