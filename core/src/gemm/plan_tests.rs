//! Plans held against their rules, by running all ranks' plans on a model of streams.

use super::*;
use crate::backend::abi::Sharding;
use crate::gemm::shape::GemmShape;
use std::collections::{HashMap, HashSet, VecDeque};

const WAYS: [(GemmAlgorithm, GemmTransport); 7] = [
    (GemmAlgorithm::Baseline, GemmTransport::Automatic),
    (GemmAlgorithm::Pipeline, GemmTransport::Get),
    (GemmAlgorithm::Pipeline, GemmTransport::Put),
    (GemmAlgorithm::Pipeline, GemmTransport::Vendor),
    (GemmAlgorithm::Pull, GemmTransport::Kernel),
    (GemmAlgorithm::Push, GemmTransport::Put),
    (GemmAlgorithm::Push, GemmTransport::Kernel),
];

fn problem(rank: usize, world: usize, way: (GemmAlgorithm, GemmTransport)) -> Problem {
    with_shape(rank, world, way, &GemmShape::new(4 * world, 8, 16))
}

fn with_shape(
    rank: usize,
    world: usize,
    (algorithm, transport): (GemmAlgorithm, GemmTransport),
    shape: &GemmShape,
) -> Problem {
    let division = Division::new(shape, world);
    let chunk = division.rows(0).div_ceil(2);
    Problem {
        rank,
        world,
        division,
        algorithm,
        transport,
        streams: 2,
        ordered: true,
        fanout: 1,
        keep: false,
        chunk,
        chunks: division.rows(0).div_ceil(chunk) as u32,
    }
}

/// Every plan that there is, of all ranks of a world: `each(plans)`.
fn every_world(mut each: impl FnMut(&[Problem])) {
    for world in 1..=8 {
        for way in WAYS {
            let pipeline = way.0 == GemmAlgorithm::Pipeline;
            for streams in 1..=if pipeline { 9 } else { 1 } {
                // Fewer rows than ranks, so that some have none; then a short last shard; then none.
                for m in [1, 4 * world - 1, 4 * world] {
                    for (sharding, ordered, fanout, keep) in [
                        (Sharding::ROWS, true, 1, false),
                        (Sharding::ROWS, false, 1, true),
                        (Sharding::ROWS, true, 7, false),
                        (Sharding::COLUMNS, true, 1, false),
                    ] {
                        let shape = GemmShape {
                            sharding,
                            ..GemmShape::new(m, 8, m)
                        };
                        let problems: Vec<_> = (0..world)
                            .map(|rank| Problem {
                                streams,
                                ordered,
                                fanout,
                                keep,
                                ..with_shape(rank, world, way, &shape)
                            })
                            .collect();
                        each(&problems);
                    }
                }
            }
        }
    }
}

/// What a stream of the model does.
#[derive(Clone, Copy, Debug)]
enum Work {
    Do(Step),
    Reach(usize),
    Pass(usize),
}

/// All ranks, and what they have told each other.
struct Model<'a> {
    problems: &'a [Problem],
    /// `[rank]`: work of each stream that is left.
    streams: Vec<HashMap<On, VecDeque<Work>>>,
    /// Points of streams that were reached, by rank.
    reached: HashSet<(usize, usize)>,
    /// `[rank]`: barriers come to.
    barriers: Vec<usize>,
    /// (to, from): signals, turns and messages given and taken.
    given: HashMap<(usize, usize, u8), [usize; 2]>,
    /// (rank, shard, chunk): the call in which it came to the gathered `A`.
    gathered: HashMap<(usize, usize, u32), usize>,
    arrived: HashMap<(usize, usize, u32), usize>,
    /// `[rank]`: the call that it is in, from 1, and calls that it has begun.
    call: Vec<usize>,
    started: Vec<usize>,
    calls: usize,
}

impl<'a> Model<'a> {
    fn new(problems: &'a [Problem], calls: usize) -> Self {
        let mut model = Self {
            problems,
            streams: vec![HashMap::new(); problems.len()],
            reached: HashSet::new(),
            barriers: vec![0; problems.len()],
            given: HashMap::new(),
            gathered: HashMap::new(),
            arrived: HashMap::new(),
            call: vec![0; problems.len()],
            started: vec![0; problems.len()],
            calls,
        };
        for rank in 0..problems.len() {
            model.next_call(rank);
        }
        model
    }

    /// Fills a rank's streams with the plan of its next call.
    fn next_call(&mut self, rank: usize) {
        self.call[rank] += 1;
        if self.call[rank] > self.calls {
            return;
        }
        let (mut point, call) = (self.call[rank] * 10_000, self.call[rank]);
        let mut events = HashMap::new();
        let streams = &mut self.streams[rank];
        let mut push = |on, work| streams.entry(on).or_default().push_back(work);
        for step in self.problems[rank].steps() {
            point += 1;
            match step {
                Step::Fork { on } => {
                    push(On::Main, Work::Reach(point));
                    push(on, Work::Pass(point));
                }
                Step::Join { on } => {
                    push(on, Work::Reach(point));
                    push(On::Main, Work::Pass(point));
                }
                Step::Mark { event, on } => {
                    events.insert((call, event), point);
                    push(on, Work::Reach(point));
                }
                Step::Await { event, on } => push(on, Work::Pass(events[&(call, event)])),
                step => push(step.on(), Work::Do(step)),
            }
        }
    }

    /// Goes on with the head of a stream; whether it could.
    fn advance(&mut self, rank: usize, on: On) -> bool {
        let Some(&work) = self.streams[rank].get(&on).and_then(VecDeque::front) else {
            return false;
        };
        let ready = match work {
            Work::Reach(point) => {
                self.reached.insert((rank, point));
                true
            }
            Work::Pass(point) => self.reached.contains(&(rank, point)),
            Work::Do(step) => self.step(rank, step),
        };
        if ready && let Some(left) = self.streams[rank].get_mut(&on) {
            left.pop_front();
        }
        if ready && self.streams[rank].values().all(VecDeque::is_empty) {
            self.next_call(rank);
        }
        ready
    }

    /// Tells another rank something, once; what is told in one step is taken back before it is tried again.
    fn tell(&mut self, to: usize, from: usize, what: u8) {
        self.given.entry((to, from, what)).or_default()[0] += 1;
    }

    fn told(&mut self, rank: usize, from: usize, what: u8) -> bool {
        let [given, taken] = self.given.entry((rank, from, what)).or_default();
        let told = *given > *taken;
        *taken += usize::from(told);
        told
    }

    /// A chunk comes to a rank, which must be in the same call: earlier it might yet read the one before.
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

    /// A shard is read where its owner has it, who must be in the same call.
    fn read_from(&self, owner: usize, call: usize) {
        assert_eq!(
            self.call[owner], call,
            "the shard of rank {owner} may have changed"
        );
    }

    fn step(&mut self, rank: usize, step: Step) -> bool {
        let (world, call) = (self.problems.len(), self.call[rank]);
        match step {
            Step::Start | Step::End => {
                let number = self.barriers[rank] / 2;
                if self.barriers[rank] % 2 == 0 {
                    // Comes here, once.
                    self.barriers[rank] += 1;
                    if step == Step::Start {
                        self.started[rank] = call;
                    }
                }
                let all = (0..world).all(|peer| self.barriers[peer].div_ceil(2) > number);
                self.barriers[rank] += usize::from(all);
                return all;
            }
            Step::Keep { .. } => {
                self.started[rank] = call;
                for chunk in self.chunks(rank) {
                    self.bring(rank, rank, chunk, call);
                }
            }
            Step::Get { peer, .. } => {
                self.read_from(peer, call);
                self.bring(rank, peer, 0, call);
            }
            Step::Put { peer, chunk, .. } => self.bring(peer, rank, chunk, call),
            Step::Arrive { peer, chunk, .. } => {
                assert_eq!(self.gathered[&(peer, rank, chunk)], call);
                self.arrived.insert((peer, rank, chunk), call);
            }
            Step::Give { peer, .. } => self.tell(peer, rank, 0),
            Step::Receive { peer, .. } => return self.told(rank, peer, 0),
            Step::Turn { to, from, .. } => {
                // One signal for each of this rank's turns, however often it is looked at.
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
            Step::Exchange { to, from, .. } => {
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
            Step::Gather => {
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
            Step::Multiply { part, .. } => {
                let shards: Vec<usize> = match part {
                    Part::Own => Vec::new(),
                    Part::Shard(shard) => vec![shard],
                    Part::Whole => (0..world).collect(),
                };
                for shard in shards {
                    for chunk in self.chunks(shard) {
                        let here = self.gathered.get(&(rank, shard, chunk));
                        assert_eq!(here, Some(&call), "shard {shard} at rank {rank}");
                    }
                }
            }
            Step::Gathered { mode } => {
                let peers = || (0..world).filter(move |&peer| peer != rank);
                for peer in peers().filter(|_| mode == GatherMode::PUSH) {
                    // Some of its blocks store, whatever the others wait for.
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
            Step::Fork { .. }
            | Step::Join { .. }
            | Step::Mark { .. }
            | Step::Await { .. }
            | Step::Spread { .. } => {}
        }
        true
    }

    fn bring_once(&mut self, at: usize, shard: usize, chunk: u32, call: usize) {
        if self.arrived.get(&(at, shard, chunk)) != Some(&call) {
            self.bring(at, shard, chunk, call);
            self.arrived.insert((at, shard, chunk), call);
        }
    }

    /// Runs until all ranks have made all calls, their streams in an order that follows from `seed`.
    fn run(&mut self, mut seed: u64) {
        loop {
            let mut ready: Vec<(usize, On)> = Vec::new();
            for (rank, streams) in self.streams.iter().enumerate() {
                let left = streams.iter().filter(|(_, left)| !left.is_empty());
                ready.extend(left.map(|(&on, _)| (rank, on)));
            }
            if ready.is_empty() {
                break;
            }
            ready.sort_unstable();
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let first = (seed >> 33) as usize % ready.len();
            let (before, after) = ready.split_at(first);
            // Twice: the last one may have told the first one something before it came to wait itself.
            let round = || after.iter().chain(before);
            let moved = round()
                .chain(round())
                .any(|&(rank, on)| self.advance(rank, on));
            assert!(moved, "all wait: {ready:?} of {:?}", self.problems[0]);
        }
        assert!(self.call.iter().all(|&call| call == self.calls + 1));
    }
}

#[test]
fn no_world_waits_for_ever_and_nothing_is_written_that_is_still_read() {
    let mut seed = 7;
    every_world(|problems| {
        seed += 1;
        Model::new(problems, 2).run(seed);
    });
}

#[test]
fn every_shard_is_multiplied_once_and_comes_once() {
    every_world(|problems| {
        for problem in problems {
            let steps = problem.steps();
            let count =
                |wanted: &dyn Fn(&Step) -> bool| steps.iter().filter(|step| wanted(step)).count();
            let full = (0..problem.world).filter(|&rank| !problem.division.is_empty(rank));
            let full = full.count();
            let multiplied = count(&|step| matches!(step, Step::Multiply { .. }));
            let whole = count(&|step| {
                matches!(
                    step,
                    Step::Multiply {
                        part: Part::Whole,
                        ..
                    }
                )
            });
            let kernels = count(&|step| matches!(step, Step::Gathered { .. }));
            match problem.algorithm {
                _ if problem.world == 1 => assert_eq!((multiplied, kernels), (1, 0)),
                GemmAlgorithm::Pull | GemmAlgorithm::Push => {
                    assert_eq!((multiplied, kernels), (0, 1));
                }
                GemmAlgorithm::Pipeline if !problem.division.by_columns() => {
                    assert_eq!((multiplied, whole, kernels), (full, 0, 0));
                }
                _ => assert_eq!((multiplied, whole, kernels), (1, 1, 0)),
            }
            let puts: Vec<_> = steps
                .iter()
                .filter_map(|step| match step {
                    Step::Put { peer, chunk, .. } => Some((*peer, *chunk)),
                    _ => None,
                })
                .collect();
            let distinct: HashSet<_> = puts.iter().collect();
            assert_eq!(distinct.len(), puts.len(), "{problem:?}");
            assert!(puts.iter().all(|&(peer, _)| peer != problem.rank));
        }
    });
}

#[test]
fn each_step_is_a_permutation_of_the_ranks() {
    for world in 2..=8 {
        for step in 1..world {
            let peers: Vec<_> = (0..world)
                .map(|rank| problem(rank, world, WAYS[1]).peers(step))
                .collect();
            let from: HashSet<_> = peers.iter().map(|peers| peers.0).collect();
            let to: HashSet<_> = peers.iter().map(|peers| peers.1).collect();
            assert_eq!((from.len(), to.len()), (world, world));
            for (rank, &(from, to)) in peers.iter().enumerate() {
                assert_eq!(peers[to].0, rank, "who gets a shard expects it then");
                assert_eq!(peers[from].1, rank);
            }
        }
    }
}

#[test]
fn a_grid_that_waits_comes_after_its_copies_and_needs_nothing_that_needs_a_compute_unit() {
    every_world(|problems| {
        for problem in problems {
            let steps = problem.steps();
            let grid = |step: &Step| matches!(step, Step::Gathered { .. });
            let Some(at) = steps.iter().position(grid) else {
                continue;
            };
            assert_eq!(steps[0], Step::Start, "{problem:?}");
            let engine = |step: &Step| {
                matches!(
                    step,
                    Step::Start
                        | Step::Fork { .. }
                        | Step::Put { .. }
                        | Step::Arrive { .. }
                        | Step::Keep { .. }
                )
            };
            assert!(steps[..at].iter().all(engine), "{problem:?}");
            let after = |step: &Step| matches!(step, Step::Join { .. } | Step::End);
            assert!(steps[at + 1..].iter().all(after), "{problem:?}");
        }
    });
}

#[test]
fn copies_of_a_pipeline_are_enqueued_before_its_products() {
    every_world(|problems| {
        for problem in problems {
            let steps = problem.steps();
            let copy = |step: &Step| {
                matches!(
                    step,
                    Step::Get { .. } | Step::Put { .. } | Step::Exchange { .. }
                )
            };
            let product = |step: &Step| matches!(step, Step::Multiply { .. });
            let first = steps.iter().position(product).unwrap_or(steps.len());
            let last = steps.iter().rposition(copy);
            assert!(last.is_none_or(|last| last < first), "{problem:?}");
        }
    });
}

#[test]
fn streams_that_fork_are_joined_and_a_peers_shard_is_read_between_two_barriers() {
    every_world(|problems| {
        for problem in problems {
            let steps = problem.steps();
            let streams = |join: bool| -> Vec<On> {
                let streams = steps.iter().filter_map(|step| match *step {
                    Step::Fork { on } if !join => Some(on),
                    Step::Join { on } if join => Some(on),
                    _ => None,
                });
                let mut streams: Vec<_> = streams.collect();
                streams.sort_unstable();
                streams
            };
            assert_eq!(streams(false), streams(true), "{problem:?}");
            let reads = |step: &Step| {
                let pulls = Step::Gathered {
                    mode: GatherMode::PULL,
                };
                *step == pulls || matches!(step, Step::Get { .. })
            };
            if steps.iter().any(reads) {
                assert_eq!(steps.last(), Some(&Step::End), "{problem:?}");
            }
            // A rank with all that there is reads from nobody, but may be read from.
            let ends = |problem: &Problem| problem.steps().contains(&Step::End);
            assert!(problems.iter().all(|other| ends(other) == ends(problem)));
        }
    });
}

#[test]
fn ranks_keep_step_alike_where_links_are_shared() {
    every_world(|problems| {
        let turns = |problem: &Problem| {
            let steps = problem.steps();
            let turns = steps
                .iter()
                .filter(|step| matches!(step, Step::Turn { .. }));
            turns.count()
        };
        let expected = match problems[0] {
            Problem {
                algorithm: GemmAlgorithm::Pipeline,
                transport: GemmTransport::Get | GemmTransport::Put,
                ordered: true,
                fanout: 1,
                world: world @ 3..,
                ..
            } => world - 2,
            _ => 0,
        };
        assert!(problems.iter().all(|problem| turns(problem) == expected));
    });
}

/// Plants faults, so that the model is known to find them.
#[test]
fn the_model_finds_a_plan_without_a_barrier_and_one_that_waits_for_nobody() {
    let fails = |world: usize, way, fault: &dyn Fn(&mut Vec<Work>)| {
        let problems: Vec<_> = (0..world).map(|rank| problem(rank, world, way)).collect();
        let run = || {
            for seed in 0..64 {
                let mut model = Model::new(&problems, 1);
                for streams in &mut model.streams {
                    for left in streams.values_mut() {
                        let mut work: Vec<_> = left.drain(..).collect();
                        fault(&mut work);
                        left.extend(work);
                    }
                }
                model.run(seed);
            }
        };
        let quiet = std::panic::AssertUnwindSafe(run);
        std::panic::catch_unwind(quiet).is_err()
    };
    let without = |unwanted: fn(&Step) -> bool| {
        move |work: &mut Vec<Work>| {
            work.retain(|work| !matches!(work, Work::Do(step) if unwanted(step)));
        }
    };
    assert!(!fails(3, WAYS[2], &|_| ()));
    assert!(fails(3, WAYS[2], &without(|step| *step == Step::Start)));
    assert!(fails(
        3,
        WAYS[2],
        &without(|step| matches!(step, Step::Receive { .. }))
    ));
    assert!(fails(
        3,
        WAYS[2],
        &without(|step| matches!(step, Step::Give { .. }))
    ));
    assert!(fails(3, WAYS[1], &|work: &mut Vec<Work>| {
        work.retain(|work| !matches!(work, Work::Pass(_)));
    }));
    assert!(fails(
        3,
        WAYS[5],
        &without(|step| matches!(step, Step::Arrive { .. }))
    ));
}
