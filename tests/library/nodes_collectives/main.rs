//! Collectives of worlds that span nodes: ranks of one machine pose as nodes by `SYMMEM_NODE`, and UCX carries what goes
//! between them over TCP.

mod checks;
mod rank;
mod times;
mod world;

use world::{check, run};

/// Runs a rank, in a process that [`world::check`] has started. A test like any other to the harness.
#[test]
fn rank() {
    rank::run_if_asked();
}

/// Prints how long an all-reduce takes. To run it: `cargo test --release -p symmem-library-tests --test nodes_collectives
/// times_of_an_all_reduce -- --ignored --nocapture`.
#[test]
#[ignore = "it measures"]
fn times_of_an_all_reduce() {
    run(&[0, 0, 1, 1], "time");
}

#[test]
fn four_nodes_of_one_rank() {
    check(&[0, 1, 2, 3]);
}

#[test]
fn two_nodes_of_two_ranks() {
    check(&[0, 0, 1, 1]);
}

#[test]
fn two_nodes_whose_ranks_alternate() {
    check(&[0, 1, 0, 1]);
}

#[test]
fn nodes_of_three_ranks_and_of_one() {
    check(&[0, 0, 0, 1]);
}

#[test]
fn nodes_of_one_rank_and_of_two_in_any_order() {
    check(&[0, 1, 0, 2, 1]);
}

#[test]
fn three_nodes_of_two_ranks_in_any_order() {
    check(&[0, 1, 2, 2, 0, 1]);
}
