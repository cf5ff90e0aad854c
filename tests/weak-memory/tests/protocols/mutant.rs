//! Runs the scenarios with kernels of a given code object, for `cargo xtask kernels mutate`.

use std::path::PathBuf;

use symmem_kernels_hip::Target;
use symmem_weak_memory::Error;
use symmem_weak_memory::program::has_kernel;

use crate::scenarios::{Kernels, SCENARIOS, Scenario, alone, covered, interrupted};

/// Runs every scenario that has a kernel of the code object in `SYMMEM_TEST_KERNELS`, a path that ends in
/// `.<target>.co`, under the first `SYMMEM_TEST_SEEDS` schedules, and prints the first fault in a line that begins with
/// `found:`, or the number of scenarios in a line that begins with `holds:`.
#[test]
#[ignore = "for the code object that cargo xtask kernels mutate names"]
fn the_named_kernels_are_judged() {
    let path = PathBuf::from(std::env::var_os("SYMMEM_TEST_KERNELS").unwrap());
    let seeds: u64 = std::env::var("SYMMEM_TEST_SEEDS").unwrap().parse().unwrap();
    let name = path.file_name().unwrap().to_string_lossy();
    let target = Target::ALL
        .into_iter()
        .find(|target| name.ends_with(&format!(".{}.co", target.name())))
        .unwrap();
    let object = std::fs::read(&path).unwrap();
    let is_concerned = |scenario: &&Scenario| {
        let is_gemm = |kernel: &&&str| kernel.contains("_gemm_");
        // A GEMM takes as long as all others, and its copies and barriers have scenarios of their own.
        let has_gemm = scenario.kernels.iter().any(|kernel| is_gemm(&kernel));
        let mut kernels = scenario
            .kernels
            .iter()
            .filter(|kernel| !has_gemm || is_gemm(kernel));
        kernels.any(|kernel| has_kernel(&object, kernel))
    };
    let all = SCENARIOS.iter().chain(&covered::SCENARIOS);
    let scenarios: Vec<&Scenario> = all.filter(is_concerned).collect();
    for scenario in &scenarios {
        match judge(scenario, target, &object, seeds) {
            Ok(()) => {}
            Err(found @ (Error::Violation(_) | Error::Hang { .. })) => {
                println!("\nfound: {}: {found}", scenario.name);
                return;
            }
            // An instruction that is not modeled says nothing about the protocol.
            Err(other) => {
                println!("\nunknown: {}: {other}", scenario.name);
                return;
            }
        }
    }
    println!("\nholds: {}", scenarios.len());
}

fn judge(scenario: &Scenario, target: Target, object: &[u8], seeds: u64) -> Result<(), Error> {
    let kernels = Kernels::load_with(scenario, target, object)?;
    (0..seeds).try_for_each(|seed| (scenario.run)(&kernels, seed))?;
    (0..seeds).try_for_each(|seed| interrupted(scenario, &kernels, seed))?;
    (0..seeds.div_ceil(4)).try_for_each(|seed| alone(scenario, &kernels, seed))
}
