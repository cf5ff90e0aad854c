//! All-gather + GEMM in worlds of threads on the host backend.

mod allocations;
mod case;
mod checker;
mod counting;
mod failures;
mod graphs;
mod products;
#[path = "../collectives_on_host/world.rs"]
#[allow(dead_code, reason = "what collectives have before a call is theirs")]
mod world;
