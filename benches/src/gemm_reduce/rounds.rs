//! Measures one shape with every contender: check, timed rounds, and collection of the ranks' results.

use super::calls::{Contender, row};
use super::options::Options;
use super::session::Session;
use crate::Result;
use crate::clock::Clock;
use crate::gemm::data::Table;
use crate::gemm::element::MatrixFloat;
use crate::gemm::turn::{REPLAYED_ROWS, SINGLE, budget, each_ns, entries};
use crate::outcome::Outcome;
use crate::report::gemm_reduce::{GemmReduceProblem, MeasuredReduce};
use crate::sizes::fewer_rounds;
use symmem::tuning::StoredGemmReduceRow;
use symmem::{Communicator, Stream};

/// State shared by all shapes of one element type.
pub(super) struct Run<'a, T> {
    pub(super) communicator: &'a Communicator,
    pub(super) options: &'a Options,
    pub(super) stream: Stream,
    pub(super) clock: Clock<'a>,
    table: Table<T>,
    /// The reason if NCCL or RCCL could not be opened.
    pub(super) nccl: Outcome<()>,
}

/// The results of one shape.
pub(super) struct ShapeResults {
    pub(super) measured: MeasuredReduce,
    /// Each rank's plans, if requested.
    pub(super) plans: Vec<String>,
    /// Tuning row of symmem's fastest algorithm, if it was timed.
    pub(super) row: Option<StoredGemmReduceRow>,
}

impl<'a, T: MatrixFloat> Run<'a, T> {
    pub(super) fn new(
        communicator: &'a Communicator,
        options: &'a Options,
        nccl: Outcome<()>,
    ) -> Result<Self> {
        Ok(Self {
            communicator,
            options,
            stream: communicator.stream()?,
            clock: Clock::new(communicator, SINGLE)?,
            table: Table::new(),
            nccl,
        })
    }

    /// Measures one shape with every contender. Collective.
    pub(super) fn problem(&self, problem: &GemmReduceProblem) -> Result<ShapeResults> {
        let shape = (*problem, self.options.collective);
        let session = Session::new(self.communicator, shape, &self.table, &self.stream)?;
        let (mut absent, mut plans) = (Vec::new(), Vec::new());
        let mut contenders = self.ours(problem, &mut absent, &mut plans)?;
        let (mut chosen, mut rounds) = (None, 0);
        if self.options.runs() {
            chosen = self.chosen(problem, &contenders)?;
            session.fill(&self.table, 0, &self.stream)?;
        }
        if self.options.benchmark {
            contenders.splice(0..0, self.parts(&session, &mut absent)?);
        }
        if self.options.runs() {
            self.check(&session, &mut contenders)?;
        }
        if self.options.benchmark {
            rounds = self.pace(&session, &mut contenders)?;
            if problem.m <= REPLAYED_ROWS {
                self.capture(&session, &mut contenders)?;
            }
            self.rounds(&session, &mut contenders, rounds)?;
        }
        let all = contenders.iter();
        let all = all.map(|one| (one.name.as_str(), one.how.as_str(), &one.turn));
        let mut measured = MeasuredReduce {
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

    /// Calls every contender that can be checked once with one A; with `validate`, once more with another A, and compares C
    /// with the reference. Collective.
    fn check(&self, session: &Session<'a, T>, contenders: &mut [Contender<'a, T>]) -> Result<()> {
        let stream = &self.stream;
        for contender in contenders.iter().filter(|one| one.is_checked()) {
            session.run(stream, || session.issue(stream, &contender.by))?;
        }
        if !self.options.validate {
            return Ok(());
        }
        session.fill(&self.table, 1, stream)?;
        let expected = session.expected(&self.table, 1);
        for contender in contenders.iter_mut().filter(|one| one.is_checked()) {
            session.run(stream, || session.issue(stream, &contender.by))?;
            let same_bits = contender.has_same_bits(session.collective);
            let found = session.wrong(&expected, same_bits, stream)?;
            contender.turn.seen.count(found);
        }
        Ok(())
    }

    /// Captures the contenders' calls, and checks a replay of each. Collective.
    fn capture(&self, session: &Session<'a, T>, contenders: &mut [Contender<'a, T>]) -> Result<()> {
        let stream = &self.stream;
        for contender in contenders.iter_mut() {
            let Contender { turn, by, .. } = contender;
            turn.capture(self.communicator, |on| session.issue(on, by))?;
        }
        if !self.options.validate {
            return Ok(());
        }
        session.fill(&self.table, 2, stream)?;
        let expected = session.expected(&self.table, 2);
        for contender in contenders.iter_mut().filter(|one| one.is_checked()) {
            if let Some(graph) = &contender.turn.graph {
                session.run(stream, || Ok(stream.launch_graph(graph)?))?;
                let same_bits = contender.has_same_bits(session.collective);
                let found = session.wrong(&expected, same_bits, stream)?;
                contender.turn.seen.count(found);
            }
        }
        Ok(())
    }

    /// Determines the number of calls per round for each contender; returns the number of rounds. Collective.
    fn pace(&self, session: &Session<'a, T>, contenders: &mut [Contender<'a, T>]) -> Result<u32> {
        let options = self.options;
        let wanted = options.rounds.unwrap_or(options.effort.rounds()).max(1);
        let budget = budget(self.communicator);
        let mut longest = 1.0_f64;
        for contender in contenders {
            let each = each_ns(self.communicator, || self.times(session, contender))?;
            contender.turn.pace(each, budget / f64::from(wanted));
            longest = longest.max(each);
        }
        Ok(fewer_rounds(wanted, longest, budget).min(wanted))
    }

    /// Runs the rounds, in which all contenders take turns. Collective.
    fn rounds(
        &self,
        session: &Session<'a, T>,
        contenders: &mut [Contender<'a, T>],
        rounds: u32,
    ) -> Result<()> {
        for _ in 0..rounds {
            for contender in contenders.iter_mut() {
                let times = self.times(session, contender)?;
                let replayed = contender.turn.replay(&self.clock, &self.stream)?;
                let seen = &mut contender.turn.seen;
                seen.times.extend(times);
                seen.graph.extend(replayed);
            }
        }
        Ok(())
    }

    /// Times a contender's single calls, each after a barrier, in nanoseconds. Collective.
    fn times(&self, session: &Session<'a, T>, contender: &Contender<'a, T>) -> Result<Vec<f64>> {
        let work = || session.issue(&self.stream, &contender.by);
        work()?;
        (self.clock).each(&self.stream, contender.turn.calls, true, &work)
    }
}
