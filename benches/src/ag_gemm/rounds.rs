//! Measures one shape with every contender: check, timed rounds, and collection of the ranks' results.

use super::calls::ContenderKind;
use super::contender::{Contender, Seen, entry};
use super::element::MatrixFloat;
use super::lineup::row;
use super::reference::Reference;
use super::run::{DDLB, REPLAYED_ROWS, Run, SINGLE};
use super::session::Session;
use super::torch::Torch;
use crate::by_caller::is_by_caller;
use crate::report::ag_gemm::{Entry, GemmProblem, Measured};
use crate::sizes::fewer_rounds;
use crate::{Result, exchange};
use symmem::tuning::StoredGemmRow;

/// Maximum number of calls in a graph.
const CALLS: u32 = 20;
/// Maximum number of graph launches per round, back to back.
const LAUNCHES: u32 = 5;
/// Time budget for all rounds of one contender.
const SERIES_NS: f64 = 200e6;
/// The same on the host backend, so that a whole run takes seconds.
const SERIES_NS_ON_HOST: f64 = 6e6;

/// The results of one shape.
pub(super) struct ShapeResults {
    pub(super) measured: Measured,
    /// Each rank's plans, if requested.
    pub(super) plans: Vec<String>,
    /// Tuning row of symmem's fastest algorithm, if it was timed.
    pub(super) row: Option<StoredGemmRow>,
}

impl<'a, T: MatrixFloat> Run<'a, T> {
    fn budget(&self) -> f64 {
        match is_by_caller(self.communicator) {
            true => SERIES_NS_ON_HOST,
            false => SERIES_NS,
        }
    }

    /// Measures one shape with every contender. Collective.
    pub(super) fn problem(
        &self,
        problem: &GemmProblem,
        torch: &mut Option<Torch>,
    ) -> Result<ShapeResults> {
        let session = Session::new(self.communicator, *problem, &self.table, &self.stream)?;
        let mut absent = Vec::new();
        let mut plans = Vec::new();
        let mut contenders = self.ours(problem, &mut absent, &mut plans)?;
        let mut chosen = None;
        let mut rounds = 0;
        if self.options.runs() {
            let (name, other) = self.chosen(problem, &contenders)?;
            chosen = name;
            contenders.extend(other);
            session.fill(&self.table, 0, &self.stream)?;
        }
        if self.options.benchmark {
            contenders.splice(0..0, self.parts(&session, problem, &mut absent)?);
        }
        if self.options.runs() {
            self.check(&session, &mut contenders)?;
        }
        if self.options.benchmark {
            if torch.is_some() {
                contenders.extend(self.beside(torch, problem, &mut absent)?);
            }
            rounds = self.pace(&session, &mut contenders, torch)?;
            self.capture(&session, &mut contenders)?;
            self.rounds(&session, &mut contenders, torch, rounds)?;
        }
        let mut measured = Measured {
            problem: *problem,
            chosen,
            choice: None,
            entries: self.put_together(&contenders)?,
            rounds,
            derived: Vec::new(),
        };
        measured.entries.extend(absent);
        measured.derived = measured.derive_all();
        measured.choice = measured.choose();
        let row = measured.best().and_then(|best| row(best, &contenders));
        // Drop graphs and operations first, since they use the buffers.
        drop(contenders);
        session.finish()?;
        Ok(ShapeResults {
            measured,
            plans,
            row,
        })
    }

    /// Calls every contender of this process that can be checked once with one A; with `validate`, once more with
    /// another A, and compares C with the reference. Collective.
    fn check(&self, session: &Session<'a, T>, contenders: &mut [Contender<'a, T>]) -> Result<()> {
        let stream = &self.stream;
        for contender in contenders.iter().filter(|one| one.by.is_checked()) {
            session.run(stream, || session.issue(stream, &contender.by))?;
        }
        if !self.options.validate {
            return Ok(());
        }
        let reference = self.another(session, 1)?;
        for contender in contenders.iter_mut().filter(|one| one.by.is_checked()) {
            self.set_whole(session, 1, &contender.by)?;
            session.run(stream, || session.issue(stream, &contender.by))?;
            contender.seen.count(session.wrong(&reference, stream)?);
        }
        Ok(())
    }

    /// Fills this rank's shard of A for a pass, and returns the expected C.
    fn another(&self, session: &Session<'a, T>, pass: u64) -> Result<Reference> {
        session.fill(&self.table, pass, &self.stream)?;
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (processors / world).max(1);
        let problem = &session.problem;
        Ok(Reference::new(
            &self.table,
            problem,
            pass,
            (rank, world),
            threads,
        ))
    }

    /// Prepares the gathered A for a checked call: filled for a contender that does not gather, poisoned for one that
    /// gathers into it. Blocks.
    fn set_whole(
        &self,
        session: &Session<'a, T>,
        pass: u64,
        by: &ContenderKind<'a, T>,
    ) -> Result<()> {
        match by {
            ContenderKind::Own(_) => session.fill_whole(&self.table, pass, &self.stream),
            ContenderKind::Windows(_) => session.poison_whole(&self.stream),
            _ => Ok(()),
        }
    }

    /// For small M, captures the contenders' calls and checks a replay of each. Collective.
    fn capture(&self, session: &Session<'a, T>, contenders: &mut [Contender<'a, T>]) -> Result<()> {
        if session.problem.m > REPLAYED_ROWS {
            contenders
                .iter_mut()
                .for_each(|contender| contender.replays = false);
            return Ok(());
        }
        let stream = &self.stream;
        for contender in contenders.iter_mut() {
            if let ContenderKind::Torch(_) = contender.by {
                continue;
            }
            let mut outcome = Ok(());
            let graph = self.communicator.stream()?.capture(|on| {
                let mut calls = 0..contender.captured;
                outcome = calls.try_for_each(|_| session.issue(on, &contender.by));
                Ok(())
            });
            outcome?;
            contender.graph = Some(graph?);
        }
        if !self.options.validate {
            return Ok(());
        }
        let reference = self.another(session, 2)?;
        for contender in contenders.iter_mut().filter(|one| one.by.is_checked()) {
            if let Some(graph) = &contender.graph {
                self.set_whole(session, 2, &contender.by)?;
                session.run(stream, || Ok(stream.launch_graph(graph)?))?;
                contender.seen.count(session.wrong(&reference, stream)?);
            }
        }
        Ok(())
    }

    /// Determines the number of calls per round for each contender; returns the number of rounds. Collective.
    fn pace(
        &self,
        session: &Session<'a, T>,
        contenders: &mut [Contender<'a, T>],
        torch: &mut Option<Torch>,
    ) -> Result<u32> {
        let options = self.options;
        let wanted = options.rounds.unwrap_or(options.effort.rounds()).max(1);
        let mut longest = 1.0_f64;
        for contender in contenders {
            // The first calls touch pages and warm caches, so the faster of two tries counts.
            let mut least = f64::INFINITY;
            for _ in 0..2 {
                let times = self.times(session, contender, torch)?;
                least = times.into_iter().fold(least, f64::min);
            }
            let all =
                exchange::all_gather(self.communicator, &Some(least).filter(|ns| ns.is_finite()))?;
            let each = all.into_iter().flatten().fold(1.0, f64::max);
            let in_round = self.budget() / f64::from(wanted) / each;
            contender.calls = in_round.clamp(1.0, SINGLE.into()) as u32;
            contender.captured = in_round.clamp(1.0, CALLS.into()) as u32;
            let launches = in_round / f64::from(contender.captured);
            contender.launches = launches.clamp(1.0, LAUNCHES.into()) as u32;
            longest = longest.max(each);
        }
        Ok(fewer_rounds(wanted, longest, self.budget()).min(wanted))
    }

    /// Runs the rounds, in which all contenders take turns. Collective.
    fn rounds(
        &self,
        session: &Session<'a, T>,
        contenders: &mut [Contender<'a, T>],
        torch: &mut Option<Torch>,
        rounds: u32,
    ) -> Result<()> {
        for _ in 0..rounds {
            for contender in contenders.iter_mut() {
                let times = self.times(session, contender, torch)?;
                contender.seen.times.extend(times);
                self.replay(contender, torch)?;
            }
        }
        if self.options.ddlb {
            for contender in contenders {
                contender.seen.ddlb = self.looped(session, contender, torch)?;
            }
        }
        Ok(())
    }

    /// Times a contender's single calls, each after a barrier, in nanoseconds. Collective.
    fn times(
        &self,
        session: &Session<'a, T>,
        contender: &Contender<'a, T>,
        torch: &mut Option<Torch>,
    ) -> Result<Vec<f64>> {
        if let ContenderKind::Torch(method) = contender.by {
            let calls = contender.calls;
            return Ok(self
                .ask(torch, |torch| torch.time(method, calls))?
                .unwrap_or_default());
        }
        let work = || session.issue(&self.stream, &contender.by);
        work()?;
        self.clock.each(&self.stream, contender.calls, true, &work)
    }

    /// Times one round of graph replays, if the contender has them. Collective.
    fn replay(&self, contender: &mut Contender<'a, T>, torch: &mut Option<Torch>) -> Result<()> {
        let (captured, launches) = (contender.captured, contender.launches);
        if !contender.replays {
            return Ok(());
        }
        let times = match (&contender.by, &contender.graph) {
            (ContenderKind::Torch(method), _) => {
                self.ask(torch, |torch| torch.replay(method, captured, launches))?
            }
            (_, Some(graph)) => {
                let launch = || Ok(self.stream.launch_graph(graph)?);
                launch()?;
                let all = || (0..launches).try_for_each(|_| launch());
                let total = self.clock.timed(&self.stream, &all)?;
                Ok(vec![total / f64::from(captured * launches)])
            }
            _ => Err(String::new()),
        };
        // A contender that cannot be replayed is not asked again; all ranks get the same answer.
        contender.replays = times.is_ok();
        contender.seen.graph.extend(times.unwrap_or_default());
        Ok(())
    }

    /// Times a contender by DDLB's method; returns the mean at this rank in nanoseconds. Collective.
    fn looped(
        &self,
        session: &Session<'a, T>,
        contender: &Contender<'a, T>,
        torch: &mut Option<Torch>,
    ) -> Result<Option<f64>> {
        let (warm, calls) = DDLB;
        let times = match contender.by {
            ContenderKind::Torch(method) => {
                self.ask(torch, |torch| torch.looped(method, warm, calls))?
            }
            _ => {
                let work = || session.issue(&self.stream, &contender.by);
                (0..warm).try_for_each(|_| work())?;
                Ok(self.clock.each(&self.stream, calls, false, &work)?)
            }
        };
        self.communicator.host_barrier()?;
        let times = times.unwrap_or_default();
        Ok((!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64))
    }

    /// Combines all ranks' measurements of each contender. Collective.
    fn put_together(&self, contenders: &[Contender<'a, T>]) -> Result<Vec<Entry>> {
        let own: Vec<Seen> = contenders
            .iter()
            .map(|contender| contender.seen.clone())
            .collect();
        let all = exchange::all_gather(self.communicator, &own)?;
        let entry = |(index, contender): (usize, &Contender<'a, T>)| {
            let ranks: Vec<&Seen> = all.iter().filter_map(|rank| rank.get(index)).collect();
            Entry {
                by: contender.name.into(),
                how: contender.how.clone(),
                ..entry(&ranks)
            }
        };
        Ok(contenders.iter().enumerate().map(entry).collect())
    }
}
