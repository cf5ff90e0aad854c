//! A model of streams that runs all ranks' plans and finds violations of their rules.

use super::*;
use crate::gemm::stream_model::{StreamModel, Streams};
use std::collections::HashMap;

/// All ranks, and the signals among them.
pub(super) struct Model<'a> {
    problems: &'a [Problem],
    pub(super) streams: Streams<GemmStep>,
    /// `[rank]`: number of barriers reached.
    barriers: Vec<usize>,
    /// (to, from): number of signals, turns and messages given and taken.
    given: HashMap<(usize, usize, u8), [usize; 2]>,
    /// (rank, shard, chunk): the call in which it arrived in the gathered `A`.
    gathered: HashMap<(usize, usize, u32), usize>,
    arrived: HashMap<(usize, usize, u32), usize>,
    /// `[rank]`: the current call, from 1, and the number of calls begun.
    call: Vec<usize>,
    started: Vec<usize>,
    calls: usize,
}

impl<'a> Model<'a> {
    /// Makes the model of `calls` calls of all ranks; with `serial`, all work is on the callers' streams.
    pub(super) fn new(problems: &'a [Problem], calls: usize, serial: bool) -> Self {
        let mut model = Self {
            problems,
            streams: Streams::new(problems.len(), serial),
            barriers: vec![0; problems.len()],
            given: HashMap::new(),
            gathered: HashMap::new(),
            arrived: HashMap::new(),
            call: vec![0; problems.len()],
            started: vec![0; problems.len()],
            calls,
        };
        for rank in 0..problems.len() {
            model.begin(rank);
        }
        model
    }

    /// Fills a rank's streams with the plan of its next call.
    fn begin(&mut self, rank: usize) {
        self.call[rank] += 1;
        if self.call[rank] > self.calls {
            return;
        }
        let steps = self.problems[rank].steps();
        self.streams
            .fill(rank, self.call[rank], steps, GemmStep::on);
    }

    /// Signals another rank, once; a signal of a step that cannot complete is taken back before the step is
    /// tried again.
    fn tell(&mut self, to: usize, from: usize, what: u8) {
        self.given.entry((to, from, what)).or_default()[0] += 1;
    }

    fn told(&mut self, rank: usize, from: usize, what: u8) -> bool {
        let [given, taken] = self.given.entry((rank, from, what)).or_default();
        let told = *given > *taken;
        *taken += usize::from(told);
        told
    }

    /// Records a chunk's arrival at a rank, which must be in the same call: in an earlier one it might still
    /// read the chunk before.
    fn bring(&mut self, at: usize, shard: usize, chunk: u32, call: usize) {
        assert_eq!(
            self.started[at], call,
            "rank {at} is not ready for shard {shard}"
        );
        self.gathered.insert((at, shard, chunk), call);
    }

    fn chunks(&self, shard: usize) -> Vec<u32> {
        let problem = &self.problems[0];
        let whole = problem.algorithm == GemmAlgorithm::Pipeline;
        let chunks = if whole { 1 } else { problem.chunks };
        let rows = |chunk: &u32| whole || problem.chunk_rows(shard, *chunk).1 > 0;
        match problem.division.is_empty(shard) {
            true => Vec::new(),
            false => (0..chunks).filter(rows).collect(),
        }
    }

    /// Checks a read of a shard in its owner's memory: the owner must be in the same call.
    fn read_from(&self, owner: usize, call: usize) {
        assert_eq!(
            self.call[owner], call,
            "the shard of rank {owner} may have changed"
        );
    }

    fn does(&mut self, rank: usize, step: GemmStep) -> bool {
        let (world, call) = (self.problems.len(), self.call[rank]);
        match step {
            GemmStep::Start | GemmStep::End => {
                let number = self.barriers[rank] / 2;
                if self.barriers[rank].is_multiple_of(2) {
                    // Counts the arrival once.
                    self.barriers[rank] += 1;
                    if step == GemmStep::Start {
                        self.started[rank] = call;
                    }
                }
                let all = (0..world).all(|peer| self.barriers[peer].div_ceil(2) > number);
                self.barriers[rank] += usize::from(all);
                return all;
            }
            GemmStep::Keep { .. } => {
                self.started[rank] = call;
                for chunk in self.chunks(rank) {
                    self.bring(rank, rank, chunk, call);
                }
            }
            GemmStep::Get { peer, .. } => {
                self.read_from(peer, call);
                self.bring(rank, peer, 0, call);
            }
            GemmStep::Put { peer, chunk, .. } => self.bring(peer, rank, chunk, call),
            GemmStep::Arrive { peer, chunk, .. } => {
                assert_eq!(self.gathered[&(peer, rank, chunk)], call);
                self.arrived.insert((peer, rank, chunk), call);
            }
            GemmStep::Give { peer, .. } => self.tell(peer, rank, 0),
            GemmStep::Receive { peer, .. } => return self.told(rank, peer, 0),
            GemmStep::Turn { to, from, .. } => {
                // One signal for each of this rank's turns, however often the step is tried.
                let key = (rank, rank, 9);
                let [mine, done] = *self.given.entry(key).or_default();
                if mine == done {
                    self.given.entry(key).or_default()[0] += 1;
                    self.tell(to, rank, 1);
                }
                let told = self.told(rank, from, 1);
                self.given.entry(key).or_default()[1] += usize::from(told);
                return told;
            }
            GemmStep::Exchange { to, from, .. } => {
                let key = (rank, rank, 8);
                let [mine, done] = *self.given.entry(key).or_default();
                if mine == done {
                    self.given.entry(key).or_default()[0] += 1;
                    if !self.problems[0].division.is_empty(rank) {
                        self.tell(to, rank, 2);
                    }
                }
                let expected = !self.problems[0].division.is_empty(from);
                let told = !expected || self.told(rank, from, 2);
                self.given.entry(key).or_default()[1] += usize::from(told);
                if told && expected {
                    self.bring(rank, from, 0, call);
                }
                return told;
            }
            GemmStep::Gather => {
                // A collective of its own, with barriers of its own.
                let number = self.barriers[rank];
                self.barriers[rank] = number.max(2 * call - 1);
                let all = self
                    .barriers
                    .iter()
                    .all(|&barriers| barriers >= 2 * call - 1);
                if all {
                    self.barriers[rank] = 2 * call;
                    self.started[rank] = call;
                    for shard in 0..world {
                        for chunk in self.chunks(shard) {
                            self.bring(rank, shard, chunk, call);
                        }
                    }
                }
                return all;
            }
            GemmStep::Multiply { part, .. } => {
                let shards: Vec<usize> = match part {
                    GemmPart::Own => Vec::new(),
                    GemmPart::Shard(shard) => vec![shard],
                    GemmPart::Whole => (0..world).collect(),
                };
                for shard in shards {
                    for chunk in self.chunks(shard) {
                        let here = self.gathered.get(&(rank, shard, chunk));
                        assert_eq!(here, Some(&call), "shard {shard} at rank {rank}");
                    }
                }
            }
            GemmStep::Gathered { mode } => {
                let peers = || (0..world).filter(move |&peer| peer != rank);
                let at_once = mode == GatherMode::PUSH_AT_ONCE;
                if at_once {
                    // The rank announces itself, and no block stores before all ranks have done so.
                    self.started[rank] = call;
                    if self.started.iter().any(|&started| started < call) {
                        return false;
                    }
                }
                for peer in peers().filter(|_| at_once || mode == GatherMode::PUSH) {
                    // Some of its blocks store, while others may wait.
                    for chunk in self.chunks(rank) {
                        self.bring_once(peer, rank, chunk, call);
                    }
                }
                for shard in peers() {
                    for chunk in self.chunks(shard) {
                        if mode == GatherMode::PULL {
                            self.read_from(shard, call);
                        } else if self.arrived.get(&(rank, shard, chunk)) != Some(&call) {
                            return false;
                        }
                    }
                }
            }
            GemmStep::Fork { .. }
            | GemmStep::Join { .. }
            | GemmStep::Mark { .. }
            | GemmStep::Await { .. }
            | GemmStep::Spread { .. } => {}
        }
        true
    }

    fn bring_once(&mut self, at: usize, shard: usize, chunk: u32, call: usize) {
        if self.arrived.get(&(at, shard, chunk)) != Some(&call) {
            self.bring(at, shard, chunk, call);
            self.arrived.insert((at, shard, chunk), call);
        }
    }

    /// Runs until all ranks have made all calls, with the streams in an order derived from `seed`.
    pub(super) fn run(&mut self, seed: u64) {
        let problems = self.problems;
        self.run_all(seed, &problems[0]);
        assert!(self.call.iter().all(|&call| call == self.calls + 1));
    }
}

impl StreamModel for Model<'_> {
    type Step = GemmStep;

    fn streams(&mut self) -> &mut Streams<GemmStep> {
        &mut self.streams
    }

    fn step(&mut self, rank: usize, step: GemmStep) -> bool {
        self.does(rank, step)
    }

    fn next_call(&mut self, rank: usize) {
        self.begin(rank);
    }
}
