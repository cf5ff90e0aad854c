//! Enqueued work keeps the memory that it uses, whatever a safe program does.
//!
//! Each file has one way in which a safe program could free memory under enqueued work. Such a program ends in a
//! segmentation fault, so it runs in a child process: the test binary starts itself again with the program's name in an
//! environment variable. A program passes if it exits with code 0 and reports either correct outputs, checked element
//! by element, or a typed error. A signal, a panic or a violation reported by a fake runtime fails the test.
//!
//! A host copy inside a capture does not compile: `tests/compile-fail` has the program.
//!
//! `program` wraps every call of the public API that the programs make. `child` starts a program and checks how it
//! ended.
//!
//! `.ci/run sanitizer` runs the host programs under AddressSanitizer; the step says what that adds.

#[path = "../backend.rs"]
mod backend;
mod child;
mod drop_beside_a_wait;
#[path = "../../support/fakes.rs"]
#[allow(dead_code, reason = "these tests need the fake runtimes only")]
mod fakes;
#[path = "../../support/hip.rs"]
#[allow(dead_code, reason = "as above")]
mod hip;
#[path = "../../support/job.rs"]
mod job;
mod nested_graph;
mod program;
mod receive_during_reclaim;
mod swapped_exchanges;

/// Runs the program that the environment variable names. Does nothing if the variable is not set.
#[test]
fn program() {
    let Some(name) = child::requested() else {
        return;
    };
    child::report(match name.as_str() {
        "nested graph" => nested_graph::run(),
        "drop beside a wait" => drop_beside_a_wait::run(),
        "free beside a wait" => drop_beside_a_wait::run_freed(),
        "swapped exchanges" => swapped_exchanges::run(),
        "receive during reclaim" => receive_during_reclaim::run(),
        _ => panic!("no such program: {name}"),
    });
}
