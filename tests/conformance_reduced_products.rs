//! GEMM + reduce-scatter and GEMM + all-reduce do what their definitions say, by every algorithm and transport: the conformance
//! suite's cases over worlds of one to eight ranks on the host backend, and of one to four over the fake runtimes and libraries.
//!
//! By default the tests run a seeded sample; with `SYMMEM_TESTS=all`, all cases (`cargo xtask conformance --full`).

#[allow(dead_code, reason = "these tests need fewer fakes than others")]
mod support;

use rstest::rstest;
use std::process::ExitCode;
use std::sync::OnceLock;
use support::divided::{Divided, part};
use support::worlds::{Backend, Part, RANK};
use symmem_conformance::{rank_main, reduced_products};

static CASES: Divided = Divided {
    name: "reduced-products",
    sample: reduced_products::sample,
    full: |seed| reduced_products::full(seed).collect(),
    full_count: reduced_products::full_count,
    samples: [const { OnceLock::new() }; 2],
};

#[rstest]
fn on_the_host(#[values(1, 2, 3, 4, 5, 6, 7, 8)] world: u32) {
    CASES.check(part(Backend::Host, world));
}

#[test]
fn of_threads_of_one_process() {
    CASES.check(Part {
        threads: true,
        ..part(Backend::Host, 3)
    });
}

#[rstest]
fn on_cuda(#[values(1, 2, 3, 4)] world: u32) {
    CASES.check(part(Backend::Linked, world));
}

#[rstest]
fn on_hip(#[values(1, 2, 3, 4)] world: u32) {
    CASES.check(part(Backend::HipLinked, world));
}

#[test]
fn hip_does_every_case_that_cuda_does() {
    CASES.hold_hip_against_cuda();
}

/// Not a test: the main function of a process of this file that was started as a rank.
#[test]
fn rank_process() {
    if std::env::var_os(RANK).is_some() && rank_main() != ExitCode::SUCCESS {
        std::process::exit(1);
    }
}
