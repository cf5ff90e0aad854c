//! All-gather + GEMM, and resources of GEMM + reduce-scatter and + all-reduce, in worlds of threads on the host backend.

mod allocations;
mod case;
mod checker;
mod counting;
mod failures;
mod graphs;
mod products;
mod reduced_products;
#[path = "../collectives_on_host/world.rs"]
#[allow(
    dead_code,
    reason = "only the tests of collectives use the input values"
)]
mod world;
