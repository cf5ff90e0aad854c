//! Runs all ranks' plans on a model of streams, and checks what each sum has and when memory is written.

use super::*;
use crate::gemm::stream_model::{StreamModel, Streams, Work};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The ranks in a sum, and the call that it belongs to.
type Sum = (usize, BTreeSet<usize>);

/// All ranks, their memory, and the signals among them. A key of memory is (rank, owner, chunk), or (rank, chunk, hop).
struct Model<'a> {
    problems: &'a [Problem],
    streams: Streams<GemmReduceStep>,
    call: Vec<usize>,
    /// `[rank]`: the last call whose barrier it has reached.
    started: Vec<usize>,
    /// What has arrived and was not read.
    inbox: HashMap<(usize, u32, usize), Sum>,
    outgoing: HashMap<(usize, u32, usize), Sum>,
    result: HashMap<(usize, usize, u32), Sum>,
    sums_given: HashMap<(usize, u32, usize), usize>,
    blocks_given: HashMap<(usize, usize, u32), usize>,
    calls: usize,
}

impl<'a> Model<'a> {
    fn new(problems: &'a [Problem], calls: usize, serial: bool) -> Self {
        let mut model = Self {
            problems,
            streams: Streams::new(problems.len(), serial),
            call: vec![0; problems.len()],
            started: vec![0; problems.len()],
            inbox: HashMap::new(),
            outgoing: HashMap::new(),
            result: HashMap::new(),
            sums_given: HashMap::new(),
            blocks_given: HashMap::new(),
            calls,
        };
        for rank in 0..problems.len() {
            model.begin(rank);
        }
        model
    }

    /// Checks the results of a rank's call, and fills its streams with the plan of the next.
    fn begin(&mut self, rank: usize) {
        let call = self.call[rank];
        if call > 0 {
            self.check(rank, call);
        }
        self.call[rank] += 1;
        if self.call[rank] > self.calls {
            return;
        }
        let steps = self.problems[rank].steps();
        self.streams
            .fill(rank, self.call[rank], steps, GemmReduceStep::on);
    }

    /// Checks that the rank has all of its results of a call, each with every rank in it.
    fn check(&self, rank: usize, call: usize) {
        let problem = &self.problems[rank];
        let world = problem.world;
        let owners = match problem.reduction {
            Reduction::Scatter => rank..rank + 1,
            _ => 0..world,
        };
        for owner in owners {
            for chunk in 0..problem.chunks {
                if problem.block_rows(owner, chunk).1 > 0 {
                    let all: BTreeSet<usize> = (0..world).collect();
                    let found = self.result.get(&(rank, owner, chunk));
                    assert_eq!(found, Some(&(call, all)), "{problem:?}: {owner}, {chunk}");
                }
            }
        }
    }

    /// Stores a sum at a rank, which must be in the call, and must have read what was there.
    fn arrive(&mut self, at: usize, block: GemmBlock, sum: Sum) {
        assert_eq!(self.started[at], sum.0, "rank {at} is not ready");
        let before = self.inbox.insert((at, block.chunk, block.hop + 1), sum);
        assert_eq!(before, None, "rank {at} has not read {block:?}");
    }

    fn does(&mut self, rank: usize, step: GemmReduceStep) -> bool {
        let (call, problem) = (self.call[rank], self.problems[rank]);
        let key = |block: GemmBlock| (rank, block.chunk, block.hop);
        match step {
            GemmReduceStep::Start { .. } => {
                self.started[rank] = call;
                return self.started.iter().all(|&started| started >= call);
            }
            GemmReduceStep::Multiply { block, .. } => {
                let mut sum = (call, BTreeSet::from([rank]));
                if block.hop > 0 {
                    let arrived = self.inbox.remove(&key(block));
                    let arrived = arrived.unwrap_or_else(|| panic!("{block:?} at {rank}"));
                    assert_eq!(arrived.0, call);
                    assert!(!arrived.1.contains(&rank));
                    sum.1.extend(arrived.1);
                }
                if problem.is_last(block) {
                    assert_eq!(block.owner, rank);
                    self.result.insert((rank, rank, block.chunk), sum);
                } else if problem.transport == GemmTransport::Kernel {
                    self.arrive(problem.next(), block, sum);
                } else {
                    let before = self.outgoing.insert(key(block), sum);
                    assert_eq!(before, None, "{block:?} was not sent yet");
                }
            }
            GemmReduceStep::PutSum { block, .. } => {
                let sum = self.outgoing.remove(&key(block));
                self.arrive(problem.next(), block, sum.expect("multiplied before"));
            }
            GemmReduceStep::GiveSum { block, .. } => {
                let at = (problem.next(), block.chunk, block.hop + 1);
                *self.sums_given.entry(at).or_default() += 1;
            }
            GemmReduceStep::ReceiveSum { block, .. } => {
                return self.sums_given.get(&key(block)) == Some(&call);
            }
            GemmReduceStep::PutBlock { chunk, peer, .. } => {
                assert_eq!(self.started[peer], call, "rank {peer} is not ready");
                let sum = self.result[&(rank, rank, chunk)].clone();
                assert_eq!(sum.0, call);
                self.result.insert((peer, rank, chunk), sum);
            }
            GemmReduceStep::GiveBlock { chunk, peer, .. } => {
                *self.blocks_given.entry((peer, rank, chunk)).or_default() += 1;
            }
            GemmReduceStep::ReceiveBlock { chunk, peer } => {
                return self.blocks_given.get(&(rank, peer, chunk)) == Some(&call);
            }
            GemmReduceStep::Reduce | GemmReduceStep::Reduced | GemmReduceStep::MultiplyAll => {
                unreachable!("a pipeline has no such step")
            }
            _ => {}
        }
        true
    }

    /// Runs until all ranks have made all calls, with the streams in an order derived from `seed`.
    fn run(&mut self, seed: u64) {
        let problems = self.problems;
        self.run_all(seed, &problems[0]);
        assert!(self.call.iter().all(|&call| call == self.calls + 1));
    }
}

impl StreamModel for Model<'_> {
    type Step = GemmReduceStep;

    fn streams(&mut self) -> &mut Streams<GemmReduceStep> {
        &mut self.streams
    }

    fn step(&mut self, rank: usize, step: GemmReduceStep) -> bool {
        self.does(rank, step)
    }

    fn next_call(&mut self, rank: usize) {
        self.begin(rank);
    }
}

fn problems(world: usize, rows: u64, chunks: u64) -> Vec<Problem> {
    let shard = rows.div_ceil(world as u64);
    let chunk = shard.div_ceil(chunks);
    let problem = |rank| Problem {
        rank,
        world,
        reduction: Reduction::Scatter,
        algorithm: GemmReduceAlgorithm::Pipeline,
        transport: GemmTransport::Put,
        streams: 2,
        rows,
        shard,
        chunk,
        chunks: shard.div_ceil(chunk) as u32,
        fanout: 1,
        in_place: true,
    };
    (0..world).map(problem).collect()
}

/// Calls `each` with every kind of pipeline.
fn every_pipeline(mut each: impl FnMut(&[Problem])) {
    for world in 2..=8 {
        for (rows, chunks) in [(1, 1), (4 * world - 1, 3), (4 * world, 4), (world, 1)] {
            for reduction in [Reduction::Scatter, Reduction::All] {
                for transport in [GemmTransport::Put, GemmTransport::Kernel] {
                    for (streams, fanout) in [(1, 1), (2, 1), (3, 7), (9, 2)] {
                        let mut all = problems(world, rows as u64, chunks);
                        for problem in &mut all {
                            problem.reduction = reduction;
                            problem.transport = transport;
                            problem.streams = streams;
                            problem.fanout = fanout;
                            problem.in_place = streams != 2;
                        }
                        each(&all);
                    }
                }
            }
        }
    }
}

#[test]
fn every_sum_has_every_rank_once_in_any_order_of_streams() {
    every_pipeline(|problems| {
        for serial in [false, true] {
            for seed in 0..3 {
                Model::new(problems, 3, serial).run(seed);
            }
        }
    });
}

#[test]
fn between_two_gemms_of_a_block_each_rank_has_another() {
    for world in 2..=8 {
        for chunks in 2..=6 {
            let all = problems(world, 60 * world as u64, chunks);
            let place = |rank: usize, owner: usize, chunk: u32| {
                let mut blocks = all[rank].blocks().into_iter();
                blocks.position(|block| (block.owner, block.chunk) == (owner, chunk))
            };
            for problem in &all {
                for block in problem.blocks() {
                    if problem.is_last(block) {
                        continue;
                    }
                    let here = place(problem.rank, block.owner, block.chunk);
                    let there = place(problem.next(), block.owner, block.chunk);
                    let between = there.zip(here).map(|(there, here)| there - here - 1);
                    assert!(between >= Some(1), "{block:?} at {}", problem.rank);
                }
            }
        }
    }
}

#[test]
fn streams_are_forked_once_and_joined_and_events_are_recorded_before_they_are_awaited() {
    every_pipeline(|problems| {
        let (mut forked, mut joined) = (HashSet::new(), HashSet::new());
        let mut recorded = HashSet::new();
        for step in problems[0].steps() {
            match step {
                GemmReduceStep::Fork { on } => assert!(forked.insert(on)),
                GemmReduceStep::Join { on } => assert!(joined.insert(on)),
                GemmReduceStep::Mark { event, .. } => assert!(recorded.insert(event)),
                GemmReduceStep::Await { event, .. } => assert!(recorded.contains(&event)),
                _ => assert!(step.on() == GemmStream::Main || forked.contains(&step.on())),
            }
        }
        assert_eq!(forked, joined);
    });
}

#[test]
fn a_baseline_multiplies_all_rows_and_adds_them_up() {
    let mut problem = problems(4, 16, 2)[1];
    problem.algorithm = GemmReduceAlgorithm::Baseline;
    let steps = [GemmReduceStep::MultiplyAll, GemmReduceStep::Reduce];
    assert_eq!(problem.steps(), steps);
    problem.world = 1;
    assert_eq!(problem.steps(), steps[..1]);
}

#[test]
fn a_fused_kernel_is_one_step_and_a_copy_if_peers_cannot_store_in_c() {
    use GemmReduceStep as S;
    for algorithm in [GemmReduceAlgorithm::Push, GemmReduceAlgorithm::Packets] {
        let mut problem = problems(4, 16, 1)[1];
        problem.algorithm = algorithm;
        for in_place in [false, true] {
            problem.in_place = in_place;
            problem.reduction = Reduction::Scatter;
            assert_eq!(problem.steps(), [S::Reduced], "the own rows need no copy");
            problem.reduction = Reduction::All;
            let steps = [S::Reduced, S::Copy];
            assert_eq!(problem.steps(), steps[..2 - usize::from(in_place)]);
        }
        problem.world = 1;
        assert_eq!(problem.steps(), [S::MultiplyAll], "nothing to add");
    }
}

/// Plants faults, to show that the model finds them.
#[test]
fn the_model_finds_a_plan_without_a_barrier_a_wait_or_a_signal() {
    let fails = |unwanted: fn(&GemmReduceStep) -> bool| {
        let mut all = problems(3, 12, 2);
        for problem in &mut all {
            problem.reduction = Reduction::All;
        }
        let run = || {
            for seed in 0..64 {
                let mut model = Model::new(&all, 1, false);
                for left in model.streams.work.iter_mut().flat_map(HashMap::values_mut) {
                    left.retain(|work| !matches!(work, Work::Do(step) if unwanted(step)));
                }
                model.run(seed);
            }
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
    };
    assert!(!fails(|_| false));
    assert!(fails(|step| matches!(step, GemmReduceStep::Start { .. })));
    assert!(fails(|step| matches!(
        step,
        GemmReduceStep::ReceiveSum { .. }
    )));
    assert!(fails(|step| matches!(step, GemmReduceStep::GiveSum { .. })));
    assert!(fails(|step| matches!(step, GemmReduceStep::PutSum { .. })));
    assert!(fails(|step| matches!(
        step,
        GemmReduceStep::ReceiveBlock { .. }
    )));
}
