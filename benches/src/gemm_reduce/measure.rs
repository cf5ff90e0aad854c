//! The measurement of GEMM + reduce-scatter or GEMM + all-reduce, from the options to the report.

use super::options::Options;
use super::rounds::{Run, ShapeResults};
use crate::common::SharedLimits;
use crate::gemm::element::MatrixFloat;
use crate::gemm::nccl;
use crate::progress::Progress;
use crate::report::Report;
use crate::report::ag_gemm::MatrixElement;
use crate::report::gemm_reduce::{GemmCollective, GemmReduceProblem, GemmReduceResults};
use crate::{BenchError, Result};
use symmem::tuning::StoredGemmReduceRow;
use symmem::{Communicator, F8E4M3};

/// What the report does not contain.
#[derive(Debug, Default)]
pub struct UnreportedReduceResults {
    /// Each rank's plans, if requested.
    pub plans: Vec<String>,
    /// The tuning row of symmem's fastest algorithm for each shape that was timed, for [`symmem::tuning::Table`].
    pub rows: Vec<StoredGemmReduceRow>,
}

/// Measures GEMM + reduce-scatter or GEMM + all-reduce and adds the results to `report`. Collective; blocks. Every rank gets
/// the whole report. `progress` is used at rank 0 only. Returns what the report does not contain.
///
/// # Errors
/// [`BenchError::World`] with fewer than 2 ranks, or if a reduce-scatter's rows cannot be divided among the ranks; any error
/// of the backend or a peer, for example out of memory. An absent library or algorithm and wrong elements are not errors:
/// the report contains them.
pub fn add(
    communicator: &Communicator,
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<UnreportedReduceResults> {
    check(communicator, options)?;
    report.environment.devices = SharedLimits::agree(communicator)?.devices;
    let mut section = GemmReduceResults {
        collective: options.collective,
        world: communicator.world_size() as u32,
        worst_choice: None,
        baselines: Vec::new(),
        products: Vec::new(),
    };
    let mut opened = Err("nothing is timed".into());
    if options.benchmark {
        let library = nccl::open(communicator)?;
        opened = library.absent.clone().map_or(Ok(()), Err);
        section.baselines.push(library);
    }
    let f16 = Run::<half::f16>::new(communicator, options, opened.clone())?;
    let bf16 = Run::<half::bf16>::new(communicator, options, opened.clone())?;
    let f32 = Run::<f32>::new(communicator, options, opened.clone())?;
    let f8e4m3 = Run::<F8E4M3>::new(communicator, options, opened)?;
    let mut told = UnreportedReduceResults::default();
    for (done, problem) in options.problems.iter().enumerate() {
        progress(Progress {
            done,
            total: options.problems.len(),
            what: format!(
                "GEMM + {} {} {}",
                options.collective.label(),
                problem.shape(),
                problem.dtype.name()
            ),
        });
        let found = match problem.dtype {
            MatrixElement::F16 => one(&f16, problem)?,
            MatrixElement::Bf16 => one(&bf16, problem)?,
            // `shapes::check` refuses these two; here every algorithm is absent, with the library's reason.
            MatrixElement::F32 => one(&f32, problem)?,
            MatrixElement::F8E4M3 => one(&f8e4m3, problem)?,
        };
        section.products.push(found.measured);
        told.plans.extend(found.plans);
        told.rows.extend(found.row);
    }
    section.worst_choice = section.find_worst_choice();
    report.gemm_reduce = options.runs().then_some(section);
    Ok(told)
}

fn one<T: MatrixFloat>(run: &Run<'_, T>, problem: &GemmReduceProblem) -> Result<ShapeResults> {
    debug_assert_eq!(problem.dtype, T::NAME);
    run.problem(problem)
}

/// Checks that the ranks are enough, and that they can divide the rows.
fn check(communicator: &Communicator, options: &Options) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let (label, command) = (options.collective.label(), options.collective.command());
    let refused = |message| Err(BenchError::World { rank, message });
    if world < 2 {
        return refused(format!(
            "GEMM + {label} needs 2 ranks or more; ask for them with --ranks 2"
        ));
    }
    let is_uneven = |problem: &&GemmReduceProblem| !problem.m.is_multiple_of(world);
    let uneven = options.problems.iter().find(is_uneven);
    match (options.collective, uneven) {
        (GemmCollective::ReduceScatter, Some(problem)) => refused(format!(
            "{command} {}: {} rows cannot be divided among {world} ranks equally; use an -m that is a multiple of {world}",
            problem.shape(),
            problem.m
        )),
        _ => Ok(()),
    }
}
