//! Measures one size with every library: check, timed rounds, and collection of the ranks' results.

use super::call::{Call, Work};
use super::contender::{Contender, Implementation};
use super::external::{External, Program, what};
use super::how::{CallChoice, algorithm};
use super::options::Options;
use super::session::Session;
use super::shape::{ROOT, Shape};
use crate::by_caller::is_by_caller;
use crate::outcome::{Outcome, agree, no_vendor_here, not_here};
use crate::report::collectives::BetweenInProgram;
use crate::report::{Collective, CollectivePoint, Placement, PlacementResults, SingleShot, Time};
use crate::sizes::{fewer_rounds, samples, slowest};
use crate::{Result, exchange, wire};
use serde::{Deserialize, Serialize};
use symmem::{Algorithm, Communicator, Graph, NcclLibrary, Provider};

/// Maximum number of calls back to back in a round, and of calls in a graph: nccl-tests' default.
const CALLS: f64 = 20.0;
/// Maximum number of graph launches in a round, back to back, to spread the host time of the first.
const LAUNCHES: f64 = 5.0;
/// Time budget for all rounds of one library in one placement, looped or replayed.
const SERIES_NS: f64 = 100e6;
/// The same on the host backend, so that a whole run takes seconds.
const SERIES_NS_ON_HOST: f64 = 6e6;
/// The same in a world of several nodes, whose times vary more.
const SERIES_NS_BETWEEN_NODES: f64 = 40e6;

/// State of a run at one rank.
pub(super) struct Run<'a> {
    pub session: Session<'a>,
    pub contenders: Vec<Contender>,
    pub externals: Vec<(Program, External)>,
    /// Notes on contenders that were left out or failed.
    pub notes: Vec<String>,
    rounds: u32,
    pub algorithm: Option<Algorithm>,
    concurrent: Option<u32>,
    pub by_caller: bool,
    plain: bool,
    /// The command that starts Open MPI's ranks, if it is named.
    pub mpirun: Option<String>,
}

/// One library in one placement during the measurement.
struct Series {
    contender: Contender,
    placement: Placement,
    graph: Option<Graph>,
    replays: bool,
    calls: u32,
    launches: u32,
    each_ns: f64,
    measured: Measured,
}

/// One rank's measurements of a series.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Measured {
    looped: Vec<f64>,
    graph: Vec<f64>,
    single: Vec<f64>,
    /// Bytes that this rank's host sent in each call of a loop.
    wire: Vec<f64>,
    wrong: u64,
    checked: u64,
}

impl<'a> Run<'a> {
    /// Allocates buffers for sizes of at most `largest` bytes. Collective.
    pub(super) fn new(
        communicator: &'a Communicator,
        options: &Options,
        largest: u64,
    ) -> Result<Self> {
        let mut session = Session::new(communicator, options.element(communicator), largest)?;
        if let Some(between) = options.between {
            session.put_between(between)?;
        }
        Ok(Self {
            session,
            contenders: Vec::new(),
            externals: Vec::new(),
            notes: Vec::new(),
            rounds: options.rounds.unwrap_or(options.effort.rounds()).max(1),
            algorithm: options.algorithm.as_deref().and_then(algorithm),
            concurrent: options.concurrent,
            by_caller: is_by_caller(communicator),
            plain: options.plain,
            mpirun: options.mpirun.clone(),
        })
    }

    pub(super) fn communicator(&self) -> &'a Communicator {
        self.session.communicator
    }

    /// Opens NCCL or RCCL; returns its version, or the reason why it cannot be used. Collective.
    pub(super) fn open_nccl(&mut self, windows: bool) -> Result<Outcome<String>> {
        let opened = self.communicator().open_nccl(windows).and_then(|opened| {
            if windows {
                self.session.register()?;
            }
            Ok(opened)
        });
        let version = |found: NcclLibrary| {
            let (major, minor) = (found.version / 10_000, found.version / 100 % 100);
            format!("{} {major}.{minor}.{}", found.name, found.version % 100)
        };
        Ok(no_vendor_here(opened.map_err(Into::into))?.map(version))
    }

    /// Ends the programs, frees the buffers and returns the notes. Collective.
    pub(super) fn finish(self) -> Result<Vec<String>> {
        drop(self.externals);
        self.session.finish()?;
        Ok(self.notes)
    }

    fn budget(&self) -> f64 {
        match (self.spans_nodes(), self.by_caller) {
            (true, _) => SERIES_NS_BETWEEN_NODES,
            (_, true) => SERIES_NS_ON_HOST,
            (_, false) => SERIES_NS,
        }
    }

    fn spans_nodes(&self) -> bool {
        self.communicator().nodes() > 1
    }

    /// Measures every library at one size; returns nothing if the size is too small for the world. Collective.
    pub(super) fn points(
        &mut self,
        collective: Collective,
        bytes: u64,
    ) -> Result<Vec<CollectivePoint>> {
        let communicator = self.communicator();
        let size = self.session.element.size;
        let Some(shape) = Shape::new(collective, bytes, size, communicator.world_size()) else {
            return Ok(Vec::new());
        };
        // The shape's size, after rounding, so that every library moves the same.
        let bytes = (shape.whole * size) as u64;
        let mut series = Vec::new();
        for contender in self.contenders.clone() {
            let (before, mut strayed) = (series.len(), None);
            for placement in Placement::ALL.into_iter().filter(|p| shape.has(*p)) {
                match self.strays(&shape, contender.by, placement)? {
                    Some(resolved) => strayed = strayed.or(Some(resolved)),
                    None => series.extend(self.prepare(&shape, bytes, &contender, placement)?),
                }
            }
            if let Some(resolved) = strayed.filter(|_| series.len() == before) {
                self.leave_out(&contender, collective, &resolved);
            }
        }
        let slowest = series.iter().map(|one| one.each_ns).fold(1.0, f64::max);
        let rounds = fewer_rounds(self.rounds, slowest, self.budget()).min(self.rounds);
        for _ in 0..rounds {
            for one in &mut series {
                self.round(&shape, bytes, one)?;
            }
        }
        for one in &mut series {
            self.single(&shape, bytes, one)?;
        }
        self.put_together(&shape, bytes, rounds, series)
    }

    /// Measures barriers. Collective.
    pub(super) fn barrier(&self) -> Result<PlacementResults> {
        let session = &self.session;
        let mut measured = Measured::default();
        let graph = session.graph(Work::Barrier, CALLS as u32)?;
        for _ in 0..self.rounds {
            let looped = session.looped(Work::Barrier, CALLS as u32)?;
            measured.looped.push(looped);
            let replayed = session.replayed(&graph, CALLS as u32, LAUNCHES as u32)?;
            measured.graph.push(replayed);
        }
        measured.single = session.single(Work::Barrier, samples(1e5, self.budget() / 4.0))?;
        let all = exchange::all_gather(self.communicator(), &measured)?;
        Ok(placed(&all.iter().collect::<Vec<_>>()))
    }

    /// Measures the kernel between calls alone, in loops like theirs: symmem's, and in turn FlashInfer's if it takes
    /// part. Collective.
    pub(super) fn between(&mut self) -> Result<(PlacementResults, Vec<BetweenInProgram>)> {
        let (mut measured, mut in_program) = (Measured::default(), Measured::default());
        let is_flashinfer =
            |one: &&Contender| matches!(one.by, Implementation::Program(Program::FlashInfer, _));
        let flashinfer = self.contenders.iter().find(is_flashinfer).cloned();
        let calls = CALLS as u32;
        let graph = self.session.graph(Work::Between, calls)?;
        for _ in 0..self.rounds {
            let looped = self.session.looped(Work::Between, calls)?;
            measured.looped.push(looped);
            let replayed = self.session.replayed(&graph, calls, 1)?;
            measured.graph.push(replayed);
            if let Some(contender) = &flashinfer {
                let mut time = |replay| {
                    self.beside(contender, Program::FlashInfer, |external| {
                        external.between(replay, calls, 1)
                    })
                };
                in_program.looped.extend(time(false)?);
                in_program.graph.extend(time(true)?);
            }
        }
        let all = exchange::all_gather(self.communicator(), &[measured, in_program])?;
        let of = |index: usize| placed(&all.iter().map(|rank| &rank[index]).collect::<Vec<_>>());
        let in_programs = flashinfer.map(|_| BetweenInProgram {
            program: "flashinfer".into(),
            alone: of(1),
        });
        Ok((of(0), in_programs.into_iter().collect()))
    }

    /// Returns the options of FlashInfer's program.
    pub(super) fn program_options(&self) -> Vec<String> {
        let plain = self.plain.then(|| "--plain".to_owned());
        let between = self.session.between_options();
        plain.into_iter().chain(between).collect()
    }

    pub(super) fn call(&self, shape: &Shape, by: Implementation, placement: Placement) -> Call {
        let how = match by {
            Implementation::Us => CallChoice {
                provider: Provider::Symmem,
                algorithm: self.algorithm,
                concurrent: self.concurrent,
                plain: self.plain,
                ..CallChoice::default()
            },
            Implementation::Own(algorithm) => CallChoice {
                provider: Provider::Symmem,
                algorithm: Some(algorithm),
                plain: self.plain,
                ..CallChoice::default()
            },
            Implementation::OwnMemory => CallChoice {
                provider: Provider::Symmem,
                own_memory: true,
                plain: self.plain,
                ..CallChoice::default()
            },
            Implementation::Nccl { windows: true } => CallChoice {
                provider: Provider::NcclWindows,
                ..CallChoice::default()
            },
            Implementation::Nccl { windows: false } | Implementation::Program(..) => CallChoice {
                provider: Provider::Nccl,
                ..CallChoice::default()
            },
        };
        Call::new(*shape, placement, how)
    }

    fn external(&mut self, program: Program) -> Option<&mut External> {
        let found = self
            .externals
            .iter_mut()
            .find(|(known, _)| *known == program);
        found.map(|(_, external)| external)
    }

    /// Formats a request to a program.
    fn what(&self, library: &str, shape: &Shape, bytes: u64, placement: Placement) -> String {
        what(library, shape, self.session.element.name, bytes, placement)
    }

    /// Checks a library in one placement and determines its number of calls per round; `None` if it does
    /// not support the call. Collective.
    fn prepare(
        &mut self,
        shape: &Shape,
        bytes: u64,
        contender: &Contender,
        placement: Placement,
    ) -> Result<Option<Series>> {
        let communicator = self.communicator();
        let mut measured = Measured::default();
        let checked = match contender.by {
            Implementation::Program(program, library) => {
                let what = self.what(library, shape, bytes, placement);
                communicator.host_barrier()?;
                match self.external(program) {
                    Some(external) => external.check(&what),
                    None => Ok(Err("it failed earlier in this run".into())),
                }
            }
            by => {
                let call = self.call(shape, by, placement);
                not_here(self.session.check(&call))
            }
        };
        let checked = self.hold(contender, checked)?;
        let Ok((wrong, looked_at)) = agree(communicator, checked)? else {
            return Ok(None);
        };
        (measured.wrong, measured.checked) = (wrong, looked_at);
        let mut series = Series {
            contender: contender.clone(),
            placement,
            graph: None,
            replays: true,
            calls: 2,
            launches: 1,
            each_ns: 0.0,
            measured,
        };
        // The first calls touch pages and warm caches, so the faster of two tries counts.
        let first = self.looped(shape, bytes, &mut series)?;
        let second = self.looped(shape, bytes, &mut series)?;
        let faster = first.zip(second).map(|(first, second)| first.min(second));
        let firsts = exchange::all_gather(communicator, &faster)?;
        series.each_ns = firsts.into_iter().flatten().fold(1.0, f64::max);
        let in_round = self.budget() / f64::from(self.rounds) / series.each_ns;
        series.calls = in_round.clamp(1.0, CALLS) as u32;
        series.launches = (in_round / CALLS).clamp(1.0, LAUNCHES) as u32;
        if !matches!(contender.by, Implementation::Program(..)) {
            self.capture(shape, &mut series)?;
        }
        Ok(Some(series))
    }

    /// Captures the calls of a series and checks a replay. Collective.
    fn capture(&self, shape: &Shape, series: &mut Series) -> Result<()> {
        let call = self.call(shape, series.contender.by, series.placement);
        let graph = self.session.graph(Work::Call(&call), series.calls)?;
        // In place, a second call mostly reads the first one's result; then a graph of one call is checked.
        let (wrong, checked) = match shape.is_idempotent(series.placement) {
            true => self.session.check_replay(&call, &graph)?,
            false => {
                let one = self.session.graph(Work::Call(&call), 1)?;
                self.session.check_replay(&call, &one)?
            }
        };
        series.measured.wrong += wrong;
        series.measured.checked += checked;
        series.graph = Some(graph);
        Ok(())
    }

    /// Turns a program's failure into a note, so that it ends the program's part but not the run.
    fn hold<V>(&mut self, contender: &Contender, result: Result<Outcome<V>>) -> Result<Outcome<V>> {
        match (result, contender.by) {
            (Err(error), Implementation::Program(program, _)) => {
                let reason = error.to_string();
                self.externals.retain(|(known, _)| *known != program);
                let name = contender.name;
                (self.notes).push(format!("baseline {name} failed: {reason}"));
                Ok(Err(reason))
            }
            (result, _) => result,
        }
    }

    fn looped(&mut self, shape: &Shape, bytes: u64, series: &mut Series) -> Result<Option<f64>> {
        match series.contender.by {
            Implementation::Program(program, library) => {
                let what = self.what(library, shape, bytes, series.placement);
                let calls = series.calls;
                self.beside(&series.contender, program, |external| {
                    external.time(&what, false, calls, 1)
                })
            }
            by => {
                let call = self.call(shape, by, series.placement);
                Ok(Some(self.session.looped(Work::Call(&call), series.calls)?))
            }
        }
    }

    /// Lets a program work while all ranks are idle. Collective.
    fn beside<V>(
        &mut self,
        contender: &Contender,
        program: Program,
        work: impl FnOnce(&mut External) -> Result<Option<V>>,
    ) -> Result<Option<V>> {
        let communicator = self.communicator();
        // The barriers keep the program's kernels and symmem's from running at the same time.
        communicator.host_barrier()?;
        let outcome = match self.external(program) {
            Some(external) => work(external).map(|done| done.ok_or_else(String::new)),
            None => Ok(Err(String::new())),
        };
        let outcome = self.hold(contender, outcome)?;
        communicator.host_barrier()?;
        Ok(outcome.ok())
    }

    /// Measures one round of a series. Collective.
    fn round(&mut self, shape: &Shape, bytes: u64, series: &mut Series) -> Result<()> {
        let before = self.sent()?;
        let looped = self.looped(shape, bytes, series)?;
        if let (Some(before), Some(after)) = (before, self.sent()?) {
            // With the untimed call in front of them.
            let each = after.saturating_sub(before) as f64 / f64::from(series.calls + 1);
            series.measured.wire.push(each);
        }
        series.measured.looped.extend(looped);
        let replayed = match (series.contender.by, &series.graph) {
            (Implementation::Program(program, library), _) if series.replays => {
                let what = self.what(library, shape, bytes, series.placement);
                let (calls, launches) = (series.calls, series.launches);
                self.beside(&series.contender, program, |external| {
                    external.time(&what, true, calls, launches)
                })?
            }
            (_, Some(graph)) => {
                let (calls, launches) = (series.calls, series.launches);
                Some(self.session.replayed(graph, calls, launches)?)
            }
            _ => None,
        };
        // A program that cannot replay is asked once. All ranks must agree on that.
        if series.measured.looped.len() == 1 {
            let all = exchange::all_gather(self.communicator(), &replayed.is_some())?;
            series.replays = all.into_iter().all(|replays| replays);
        }
        series.measured.graph.extend(replayed);
        Ok(())
    }

    /// Returns what this rank's host has sent to other nodes so far, when all ranks are idle. Collective.
    fn sent(&self) -> Result<Option<u64>> {
        if !self.spans_nodes() {
            return Ok(None);
        }
        self.communicator().host_barrier()?;
        Ok(wire::sent())
    }

    /// Times single calls of a series. Collective.
    fn single(&mut self, shape: &Shape, bytes: u64, series: &mut Series) -> Result<()> {
        // A barrier, a launch and a wait add about 40 µs on a GPU.
        let overhead = if self.by_caller { 2e3 } else { 4e4 };
        let samples = samples(series.each_ns + overhead, self.budget() / 4.0);
        series.measured.single = match series.contender.by {
            Implementation::Program(program, library) => {
                let what = self.what(library, shape, bytes, series.placement);
                let times = self.beside(&series.contender, program, |external| {
                    external.single(&what, samples).map(Some)
                })?;
                times.unwrap_or_default()
            }
            by => {
                let call = self.call(shape, by, series.placement);
                self.session.single(Work::Call(&call), samples)?
            }
        };
        Ok(())
    }

    /// Combines the ranks' measurements into points, one per library with both placements. Collective.
    fn put_together(
        &self,
        shape: &Shape,
        bytes: u64,
        rounds: u32,
        series: Vec<Series>,
    ) -> Result<Vec<CollectivePoint>> {
        let own: Vec<&Measured> = series.iter().map(|one| &one.measured).collect();
        let own: Vec<Measured> = own.into_iter().cloned().collect();
        let all = exchange::all_gather(self.communicator(), &own)?;
        let mut points: Vec<CollectivePoint> = Vec::new();
        for (index, one) in series.iter().enumerate() {
            let ranks: Vec<&Measured> = all.iter().filter_map(|rank| rank.get(index)).collect();
            let placed = placed(&ranks);
            let name = one.contender.name;
            let (algorithm, blocks, threads) = self.how(one.contender.by, shape, one.placement)?;
            if points.last().is_none_or(|point| point.by != name) {
                points.push(CollectivePoint {
                    collective: shape.collective,
                    bytes,
                    count: shape.part as u64,
                    element: self.session.element.name.into(),
                    root: shape.collective.has_root().then_some(ROOT as u32),
                    by: name.into(),
                    algorithm: algorithm.clone(),
                    blocks,
                    threads,
                    in_place_algorithm: String::new(),
                    out_of_place: None,
                    in_place: None,
                    rounds,
                });
            }
            if let Some(point) = points.last_mut() {
                if point.algorithm != algorithm {
                    point.in_place_algorithm = algorithm;
                }
                match one.placement {
                    Placement::OutOfPlace => point.out_of_place = Some(placed),
                    Placement::InPlace => point.in_place = Some(placed),
                }
            }
        }
        Ok(points)
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Combines the ranks' measurements of a series: the slowest rank's time of each round, and sums of element counts.
fn placed(ranks: &[&Measured]) -> PlacementResults {
    let single = slowest(ranks.iter().map(|rank| &rank.single));
    PlacementResults {
        looped: Time::from_rounds(&slowest(ranks.iter().map(|rank| &rank.looped))),
        graph: Time::from_rounds(&slowest(ranks.iter().map(|rank| &rank.graph))),
        single: SingleShot::from_samples(&single),
        wire_bytes: ranks.first().and_then(|rank| median(&rank.wire)),
        wrong: ranks.iter().map(|rank| rank.wrong).sum(),
        checked: ranks.iter().map(|rank| rank.checked).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_round_the_slowest_rank_counts_and_wrong_elements_add_up() {
        let rank = |looped: &[f64], single: &[f64], wrong| Measured {
            looped: looped.to_vec(),
            single: single.to_vec(),
            wrong,
            checked: 100,
            ..Measured::default()
        };
        let ranks = [
            rank(&[1.0, 5.0, 2.0], &[7.0, 1.0, 1.0], 1),
            rank(&[3.0, 4.0, 2.0], &[], 2),
        ];
        let placed = placed(&ranks.iter().collect::<Vec<_>>());
        assert_eq!(placed.looped.unwrap().ns, 3.0);
        assert_eq!(placed.graph, None);
        assert_eq!(
            placed.single.unwrap().p99_ns,
            7.0,
            "of the rank that has samples"
        );
        assert_eq!((placed.wrong, placed.checked), (3, 200));
    }
}
