//! The measurement of all-gather + GEMM, from the options to the report.

use super::options::Options;
use super::rounds::ShapeResults;
use super::run::Run;
use super::torch::Torch;
use crate::by_caller::is_by_caller;
use crate::common::SharedLimits;
use crate::gemm::element::MatrixFloat;
use crate::gemm::nccl;
use crate::progress::Progress;
use crate::report::Report;
use crate::report::ag_gemm::{AgGemmResults, GemmProblem, MatrixElement};
use crate::report::collectives::BaselineState;
use crate::{BenchError, Result};
use symmem::tuning::StoredGemmRow;
use symmem::{Communicator, F8E4M3};

/// Results that are not in the report.
#[derive(Clone, Debug, Default)]
pub struct UnreportedResults {
    /// Each rank's plans, if requested.
    pub plans: Vec<String>,
    /// The tuning row of symmem's fastest algorithm for each shape that was timed, for [`symmem::tuning::Table`].
    pub rows: Vec<StoredGemmRow>,
}

/// Measures all-gather + GEMM and adds the results to `report`. Collective; blocks. Every rank gets the whole report,
/// and its own tuning rows. `progress` is used at rank 0 only.
///
/// # Errors
/// [`BenchError::World`] with fewer than 2 ranks; any error of the backend or a peer, for example out of memory. An
/// absent library or algorithm and wrong elements are not errors: the report contains them.
pub fn add(
    communicator: &Communicator,
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<UnreportedResults> {
    let rank = communicator.rank();
    if communicator.world_size() < 2 {
        return Err(BenchError::World {
            rank,
            message: "all-gather + GEMM needs 2 ranks or more; ask for them with --ranks 2".into(),
        });
    }
    let on_host = is_by_caller(communicator);
    report.environment.devices = SharedLimits::agree(communicator)?.devices;
    let mut section = AgGemmResults {
        world: communicator.world_size() as u32,
        ..AgGemmResults::default()
    };
    if options.runs() {
        // The algorithm `Baseline` gathers by it.
        section.baselines.push(nccl::open(communicator)?);
    }
    let mut torch = None;
    if options.benchmark && options.torch.unwrap_or(!on_host) {
        let started = Torch::start(communicator)?;
        section.baselines.push(BaselineState {
            name: "pytorch".into(),
            version: started.as_ref().ok().map(|torch| torch.version.clone()),
            absent: started.as_ref().err().cloned(),
        });
        torch = started.ok();
    }
    let beside = torch.is_some();
    let f16 = Run::<half::f16>::new(communicator, options)?;
    let bf16 = Run::<half::bf16>::new(communicator, options)?;
    let f32 = Run::<f32>::new(communicator, options)?;
    let f8e4m3 = Run::<F8E4M3>::new(communicator, options)?;
    let mut told = UnreportedResults::default();
    let problems = options.problems(on_host);
    for (done, problem) in problems.iter().enumerate() {
        progress(Progress {
            done,
            total: problems.len(),
            what: format!(
                "all-gather + GEMM {} {}",
                problem.shape(),
                problem.dtype.name()
            ),
        });
        let found = match problem.dtype {
            MatrixElement::F16 => one(&f16, problem, &mut torch)?,
            MatrixElement::Bf16 => one(&bf16, problem, &mut torch)?,
            MatrixElement::F32 => one(&f32, problem, &mut torch)?,
            MatrixElement::F8E4M3 => one(&f8e4m3, problem, &mut torch)?,
        };
        section.products.push(found.measured);
        told.plans.extend(found.plans);
        told.rows.extend(found.row);
    }
    if beside && torch.is_none() {
        report
            .notes
            .push("baseline pytorch failed; the shapes after that are without it".into());
    }
    section.worst_choice = section.find_worst_choice();
    report.ag_gemm = options.runs().then_some(section);
    Ok(told)
}

fn one<T: MatrixFloat>(
    run: &Run<'_, T>,
    problem: &GemmProblem,
    torch: &mut Option<Torch>,
) -> Result<ShapeResults> {
    debug_assert_eq!(problem.dtype, T::NAME);
    run.problem(problem, torch)
}
