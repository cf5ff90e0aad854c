//! Puts the parts together: the cost of a kernel's loop.

use std::collections::HashMap;

use serde::Serialize;

use super::devices::{Device, PASS, SIMDS};
use super::families::{Family, Route, Work, routes};
use super::loops;
use super::mca::Analyzer;
use super::steps::{Step, Unit};
use super::waves::{self, Occupancy, Steady};
use crate::error::Result;
use crate::kernels::hip::isa::Function;
use crate::kernels::hip::object::Kernel;

/// The clocks of accesses to shared memory that an interpreter counted, by offset from the kernel's first instruction.
pub type SharedClocks = HashMap<u64, u64>;

/// The cost of a kernel's loop on one route.
#[derive(Debug, Serialize)]
pub struct Cost {
    pub kernel: String,
    pub target: String,
    /// Where the data is: `hbm`, `xgmi`, or `cache` for operands of a GEMM.
    pub route: String,
    /// The loop, by the offset of its first instruction.
    pub offset: String,
    pub instructions: usize,
    /// Instructions of one iteration by unit.
    pub scalar: usize,
    pub vector: usize,
    pub matrix: usize,
    pub shared: usize,
    pub memory: usize,
    pub waves: u32,
    pub blocks_per_unit: u32,
    /// Clocks of an iteration: of one wave alone by llvm-mca, and of all waves of a compute unit by the model.
    pub mca_clocks: f64,
    pub clocks: f64,
    /// The least clocks that each unit alone would take.
    pub least: Vec<(String, f64)>,
    pub matrix_busy: f64,
    pub shared_busy: f64,
    pub vector_busy: f64,
    /// Clocks of shared memory in an iteration of a wave beyond those without conflicts; `null` if nobody counted.
    pub conflict_clocks: Option<u64>,
    /// Bytes in flight of a compute unit at most, and those that its share of the route needs.
    pub in_flight: u64,
    pub needed: u64,
    /// TFLOP/s of all compute units at the highest clock, and at the clock of a dense GEMM.
    pub tflops_at_peak_clock: Option<f64>,
    pub tflops: Option<f64>,
    /// GB/s that all blocks load and store together, each byte counted once in its direction; and the route's rate.
    pub gigabytes: Option<f64>,
    pub route_gigabytes: f64,
}

/// A kernel's code and launch.
pub struct Subject<'a> {
    pub device: &'a Device,
    pub kernel: &'a Kernel,
    pub function: &'a Function,
    pub family: Family,
    pub shared: Option<&'a SharedClocks>,
}

/// Returns the cost of the kernel's loop on each route; nothing for a kernel without such a loop.
pub fn costs(analyzer: &Analyzer, subject: &Subject<'_>) -> Result<Vec<Cost>> {
    let Subject {
        device, function, ..
    } = *subject;
    let Some(found) = loops::hottest(function) else {
        return Ok(Vec::new());
    };
    let start = function.instructions[0].address;
    let path = || {
        found
            .path
            .iter()
            .map(|&index| &function.instructions[index])
    };
    let analysis = analyzer.analyze(device.target, path())?;
    let steps_with = |counts: Option<&SharedClocks>| -> Vec<Step> {
        let both = path().zip(&analysis.instructions);
        let followed = found.path.iter().zip(found.path.iter().cycle().skip(1));
        both.zip(followed)
            .map(|((instruction, scheduled), (at, then))| {
                let counted = counts.and_then(|counts| counts.get(&(instruction.address - start)));
                let mut step = Step::of(device, instruction, scheduled, counted.copied());
                if step.unit == Unit::Branch && at + 1 == *then {
                    // Not taken.
                    step.clocks = PASS;
                }
                step
            })
            .collect()
    };
    let steps = steps_with(subject.shared);
    let of_shared = |steps: &[Step]| -> u64 {
        let shared = steps.iter().filter(|step| step.unit == Unit::Shared);
        shared.map(|step| step.clocks).sum()
    };
    let conflicts = subject
        .shared
        .map(|_| of_shared(&steps).saturating_sub(of_shared(&steps_with(None))));
    let family = &subject.family;
    let shared_bytes = subject.kernel.shared_bytes as u32 + family.shared_bytes;
    let registers = subject.kernel.registers as u32;
    let threads = family.threads.unwrap_or(subject.kernel.threads as u32);
    let room = device.blocks(threads, registers, shared_bytes).max(1);
    // Movers and copies have a block on each compute unit; a GEMM's grid has one for each as well.
    let blocks = room.min(1);
    let mut costs = Vec::new();
    for route in routes(device, family) {
        let occupancy = Occupancy {
            blocks,
            threads,
            staggered: found.staggered,
            shared_latency: device.shared_latency,
            loads: route.loads,
            stores: route.stores,
            one_memory: route.one_memory,
        };
        let Some(steady) = waves::run(&steps, occupancy) else {
            continue;
        };
        let waves = blocks * threads.div_ceil(super::devices::LANES);
        let count = |unit: Unit| steps.iter().filter(|step| step.unit == unit).count();
        costs.push(Cost {
            kernel: subject.kernel.name.clone(),
            target: device.target.to_owned(),
            route: route.name.to_owned(),
            offset: format!(
                "{:#x}",
                function.instructions[found.path[0]].address - start
            ),
            instructions: steps.len(),
            scalar: count(Unit::Scalar),
            vector: count(Unit::Vector),
            matrix: count(Unit::Matrix),
            shared: count(Unit::Shared),
            memory: count(Unit::Memory),
            waves,
            blocks_per_unit: room,
            mca_clocks: analysis.clocks,
            clocks: steady.clocks,
            least: least(&steps, waves, &route),
            matrix_busy: steady.matrix,
            shared_busy: steady.shared,
            vector_busy: steady.vector,
            conflict_clocks: conflicts,
            in_flight: in_flight(family.work, &route, &steady),
            needed: route.needed as u64,
            tflops_at_peak_clock: tflops(device, &steps, waves, steady.clocks, device.peak_mhz),
            tflops: tflops(device, &steps, waves, steady.clocks, device.gemm_mhz),
            gigabytes: gigabytes(device, &steps, waves, &steady, &route, family.work),
            route_gigabytes: route.rate / 1e9,
        });
    }
    Ok(costs)
}

/// Returns the clocks that each unit of a compute unit needs for one iteration of all waves.
fn least(steps: &[Step], waves: u32, route: &Route) -> Vec<(String, f64)> {
    let waves = f64::from(waves);
    let sum = |unit: Unit| -> f64 {
        let of_unit = steps.iter().filter(|step| step.unit == unit);
        of_unit.map(|step| step.clocks as f64).sum::<f64>() * waves
    };
    let direct: u64 = steps.iter().map(|step| step.direct).sum();
    let loaded: u64 = steps.iter().map(|step| step.loaded).sum();
    let stored: u64 = steps.iter().map(|step| step.stored).sum();
    let traffic = if route.one_memory {
        (loaded + stored) as f64 / route.loads.rate
    } else {
        (loaded as f64 / route.loads.rate).max(stored as f64 / route.stores.rate)
    };
    let simds = f64::from(SIMDS);
    [
        ("matrix", sum(Unit::Matrix) / simds),
        // A matrix instruction takes an issue of the vector unit.
        (
            "vector issue",
            (sum(Unit::Vector) + count(steps, Unit::Matrix) * PASS as f64 * waves) / simds,
        ),
        ("scalar", sum(Unit::Scalar) / simds),
        ("shared memory", sum(Unit::Shared) + direct as f64 * waves),
        ("vector memory", sum(Unit::Memory)),
        ("route", traffic * waves),
    ]
    .map(|(name, clocks)| (name.to_owned(), clocks))
    .to_vec()
}

fn count(steps: &[Step], unit: Unit) -> f64 {
    steps.iter().filter(|step| step.unit == unit).count() as f64
}

fn in_flight(work: Work, route: &Route, steady: &Steady) -> u64 {
    match (work, route.one_memory) {
        (_, true) => steady.loads_in_flight + steady.stores_in_flight,
        (Work::Push, false) => steady.stores_in_flight,
        _ => steady.loads_in_flight,
    }
}

fn tflops(device: &Device, steps: &[Step], waves: u32, clocks: f64, mhz: f64) -> Option<f64> {
    let flops: u64 = steps.iter().map(|step| step.flops).sum();
    let each = flops as f64 * f64::from(waves) / clocks;
    (flops > 0).then(|| each * f64::from(device.compute_units) * mhz / 1e6)
}

fn gigabytes(
    device: &Device,
    steps: &[Step],
    waves: u32,
    steady: &Steady,
    route: &Route,
    work: Work,
) -> Option<f64> {
    let loaded: u64 = steps.iter().map(|step| step.loaded).sum();
    let stored: u64 = steps.iter().map(|step| step.stored).sum();
    let bytes = match (work, route.one_memory) {
        (Work::Product, _) => return None,
        (_, true) => loaded + stored,
        (Work::Push, false) => stored,
        (Work::Pull, false) => loaded,
    };
    let each = bytes as f64 * f64::from(waves) / steady.clocks;
    Some(each * f64::from(route.units) * device.peak_mhz / 1e3)
}
