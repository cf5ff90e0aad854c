//! The measurement of collectives, from the options to the report.

use super::contender::{Contender, Implementation, contenders, usual};
use super::external::{External, Program};
use super::options::Options;
use super::points::Run;
use crate::by_caller::is_by_caller;
use crate::common::{SharedLimits, network};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::report::collectives::{BaselineState, BetweenCalls};
use crate::report::{CollectiveResults, Environment, Report};
use crate::{BenchError, Result};
use symmem::Communicator;

/// Measures collectives. Collective; blocks. Every rank gets the whole report. `environment` and `progress`
/// are used at rank 0 only.
///
/// # Errors
/// [`BenchError::World`] with fewer than 2 ranks, an unsupported element type, or an algorithm that no
/// operation would use; any error of the backend or a peer. An absent or failed baseline and wrong elements
/// are not errors: the report contains them.
pub fn run(
    communicator: &Communicator,
    options: &Options,
    environment: Environment,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let mut report = Report::new(environment);
    add(communicator, options, &mut report, progress)?;
    Ok(report)
}

/// Like [`run`], but adds to an existing report.
///
/// # Errors
/// Those of [`run`].
pub fn add(
    communicator: &Communicator,
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let rank = communicator.rank();
    let impossible = |message: String| Err(BenchError::World { rank, message });
    if communicator.world_size() < 2 {
        return impossible("collectives need 2 ranks or more; ask for them with --ranks 2".into());
    }
    let common = SharedLimits::agree(communicator)?;
    let sizes = options.sizes(rank, common.limit)?;
    let largest = sizes.last().copied().unwrap_or_default();
    report.environment.devices = common.devices;
    report.environment.network = network(communicator);
    let names: Vec<&str> = match &options.baselines {
        Some(names) => names.iter().map(String::as_str).collect(),
        None => usual(is_by_caller(communicator)).into(),
    };
    let mut section = CollectiveResults {
        world: communicator.world_size() as u32,
        nodes: (communicator.nodes() > 1).then(|| communicator.nodes() as u32),
        plain: options.plain,
        ..CollectiveResults::default()
    };
    let mut run = Run::new(communicator, options, largest)?;
    // Without multicast, the library would use another algorithm under multicast's name.
    if let Some(why) = run.without_multicast(Implementation::Us) {
        return impossible(format!("cannot measure multicast: {why}"));
    }
    if let Some(why) = run.why_unused(&options.collectives, largest)? {
        let named = options.algorithm.as_deref().unwrap_or_default();
        return impossible(format!("no operation would use {named}: {why}"));
    }
    for contender in contenders(&names, &report.environment.backend) {
        let outcome = match left_out(&contender, options) {
            Some(why) => Err(why.into()),
            None => join(&mut run, &contender, largest)?,
        };
        if contender.by != Implementation::Us {
            section.baselines.push(BaselineState {
                name: contender.name.into(),
                version: outcome.as_ref().ok().cloned(),
                absent: outcome.as_ref().err().cloned(),
            });
        }
        if outcome.is_ok() {
            run.contenders.push(contender);
        }
    }
    let total = options.collectives.len() * sizes.len();
    let cases = (options.collectives.iter())
        .flat_map(|&collective| sizes.iter().map(move |&bytes| (collective, bytes)));
    for (done, (collective, bytes)) in cases.enumerate() {
        progress(Progress {
            done,
            total,
            what: format!("{} {} KiB", collective.name(), bytes >> 10),
        });
        section.points.extend(run.points(collective, bytes)?);
    }
    section.barrier = Some(run.barrier()?);
    if let Some(between) = options.between {
        let (alone, in_programs) = run.between()?;
        section.between = Some(BetweenCalls {
            kernel: between.describe(),
            alone,
            in_programs,
        });
    }
    if options.plain {
        report.notes.push(PLAIN.into());
    }
    report.notes.extend(run.finish()?);
    section.summary = section.summarize();
    report.collectives = Some(section);
    Ok(())
}

/// Names the launch mode of `--plain` in a report.
const PLAIN: &str = "launch mode plain: symmem and FlashInfer launch collectives without programmatic dependent launch";

/// Returns why the options leave a contender out, if they do.
fn left_out(contender: &Contender, options: &Options) -> Option<&'static str> {
    match contender.by {
        Implementation::Program(Program::FlashInfer, "one-shot" | "one-shot-late")
            if options.plain =>
        {
            Some("--plain makes it the same as flashinfer one-shot plain")
        }
        Implementation::Program(Program::FlashInfer, _) => None,
        Implementation::Program(..) if options.between.is_some() => {
            Some("--between leaves out programs that do not have its kernels")
        }
        _ => None,
    }
}

/// Prepares a library; returns its version, or the reason why it is absent. Collective.
fn join(run: &mut Run<'_>, contender: &Contender, largest: u64) -> Result<Outcome<String>> {
    match contender.by {
        by @ (Implementation::Us | Implementation::Own(_) | Implementation::OwnMemory) => {
            Ok(match run.without_multicast(by) {
                Some(why) => Err(why),
                None => Ok(env!("CARGO_PKG_VERSION").into()),
            })
        }
        Implementation::Nccl { windows } => run.open_nccl(windows),
        Implementation::Program(program, _) => {
            if let Some(external) = run.externals.iter().find(|(known, _)| *known == program) {
                return Ok(Ok(external.1.version.clone()));
            }
            let started = External::start(
                run.communicator(),
                program,
                run.session.element.name,
                largest,
                &run.program_options(),
                run.mpirun.as_deref(),
            )?;
            Ok(started.map(|external| {
                let version = external.version.clone();
                run.externals.push((program, external));
                version
            }))
        }
    }
}
