//! Measures one shape with every contender: check, timed rounds, and collection of the ranks' results.

use super::calls::ContenderKind;
use super::contender::Contender;
use super::lineup::row;
use super::reference::reference;
use super::run::{DDLB, Run};
use super::session::Session;
use super::torch::Torch;
use crate::Result;
use crate::gemm::element::MatrixFloat;
use crate::gemm::samples::Samples;
use crate::gemm::turn::{REPLAYED_ROWS, Turn, budget, each_ns, entries};
use crate::report::ag_gemm::{GemmProblem, Measured};
use crate::sizes::fewer_rounds;
use symmem::tuning::StoredGemmRow;

/// The results of one shape.
pub(super) struct ShapeResults {
    pub(super) measured: Measured,
    /// Each rank's plans, if requested.
    pub(super) plans: Vec<String>,
    /// Tuning row of symmem's fastest algorithm, if it was timed.
    pub(super) row: Option<StoredGemmRow>,
}

impl<'a, T: MatrixFloat> Run<'a, T> {
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
        let all = contenders.iter();
        let all = all.map(|one| (one.name, one.how.as_str(), &one.turn));
        let mut measured = Measured {
            problem: *problem,
            chosen,
            choice: None,
            entries: entries(self.communicator, all)?,
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
            contender
                .turn
                .seen
                .count(session.wrong(&reference, stream)?);
        }
        Ok(())
    }

    /// Fills this rank's shard of A for a pass, and returns the expected C.
    fn another(&self, session: &Session<'a, T>, pass: u64) -> Result<Samples> {
        session.fill(&self.table, pass, &self.stream)?;
        let ranks = (self.communicator.rank(), self.communicator.world_size());
        Ok(reference(&self.table, &session.problem, pass, ranks))
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
                .for_each(|contender| contender.turn.replays = false);
            return Ok(());
        }
        let stream = &self.stream;
        for contender in contenders.iter_mut() {
            if let ContenderKind::Torch(_) = contender.by {
                continue;
            }
            let Contender { turn, by, .. } = contender;
            turn.capture(self.communicator, |on| session.issue(on, by))?;
        }
        if !self.options.validate {
            return Ok(());
        }
        let reference = self.another(session, 2)?;
        for contender in contenders.iter_mut().filter(|one| one.by.is_checked()) {
            if let Some(graph) = &contender.turn.graph {
                self.set_whole(session, 2, &contender.by)?;
                session.run(stream, || Ok(stream.launch_graph(graph)?))?;
                contender
                    .turn
                    .seen
                    .count(session.wrong(&reference, stream)?);
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
            let times = || self.times(session, contender, torch);
            let each = each_ns(self.communicator, times)?;
            contender
                .turn
                .pace(each, budget(self.communicator) / f64::from(wanted));
            longest = longest.max(each);
        }
        Ok(fewer_rounds(wanted, longest, budget(self.communicator)).min(wanted))
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
                contender.turn.seen.times.extend(times);
                self.replay(contender, torch)?;
            }
        }
        if self.options.ddlb {
            for contender in contenders {
                contender.turn.seen.ddlb = self.looped(session, contender, torch)?;
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
            let calls = contender.turn.calls;
            return Ok(self
                .ask(torch, |torch| torch.time(method, calls))?
                .unwrap_or_default());
        }
        let work = || session.issue(&self.stream, &contender.by);
        work()?;
        self.clock
            .each(&self.stream, contender.turn.calls, true, &work)
    }

    /// Times one round of graph replays, if the contender has them. Collective.
    fn replay(&self, contender: &mut Contender<'a, T>, torch: &mut Option<Torch>) -> Result<()> {
        let Turn {
            captured, launches, ..
        } = contender.turn;
        if !contender.turn.replays {
            return Ok(());
        }
        let times = match contender.by {
            ContenderKind::Torch(method) => {
                self.ask(torch, |torch| torch.replay(method, captured, launches))?
            }
            _ => {
                let replayed = contender.turn.replay(&self.clock, &self.stream)?;
                replayed.map(|ns| vec![ns]).ok_or_else(String::new)
            }
        };
        // A contender that cannot be replayed is not asked again; all ranks get the same answer.
        contender.turn.replays = times.is_ok();
        contender.turn.seen.graph.extend(times.unwrap_or_default());
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
}
