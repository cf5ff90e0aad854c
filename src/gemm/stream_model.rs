//! A model of the streams of all ranks, for tests of plans: it runs steps in any order that the streams allow.

use super::streams::{GemmStream, PlanStep, StreamOrder};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Debug;

/// A piece of work on a stream of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<S> {
    Do(S),
    Reach(usize),
    Pass(usize),
}

/// The streams of all ranks.
pub(crate) struct Streams<S> {
    /// `[rank]`: the remaining work of each stream.
    pub(crate) work: Vec<HashMap<GemmStream, VecDeque<Work<S>>>>,
    /// Points of streams that were reached, by rank.
    reached: HashSet<(usize, usize)>,
    /// Whether all work is on the callers' streams.
    serial: bool,
}

impl<S: PlanStep> Streams<S> {
    /// Makes the streams of `ranks` ranks; with `serial`, all work is on the callers' streams.
    pub(crate) fn new(ranks: usize, serial: bool) -> Self {
        Self {
            work: (0..ranks).map(|_| HashMap::new()).collect(),
            reached: HashSet::new(),
            serial,
        }
    }

    /// Adds the steps of a rank's call, each on the stream that `on` returns.
    pub(crate) fn fill(
        &mut self,
        rank: usize,
        call: usize,
        steps: Vec<S>,
        on: impl Fn(&S) -> GemmStream,
    ) {
        let (mut point, mut events) = (call * 10_000, HashMap::new());
        let (work, serial) = (&mut self.work[rank], self.serial);
        let mut push = |on, one| {
            let on = if serial { GemmStream::Main } else { on };
            work.entry(on).or_default().push_back(one);
        };
        for step in steps {
            point += 1;
            match step.order() {
                Some(StreamOrder::Fork(on)) => {
                    push(GemmStream::Main, Work::Reach(point));
                    push(on, Work::Pass(point));
                }
                Some(StreamOrder::Join(on)) => {
                    push(on, Work::Reach(point));
                    push(GemmStream::Main, Work::Pass(point));
                }
                Some(StreamOrder::Mark(event, on)) => {
                    events.insert(event, point);
                    push(on, Work::Reach(point));
                }
                Some(StreamOrder::Await(event, on)) => push(on, Work::Pass(events[&event])),
                None => push(on(&step), Work::Do(step)),
            }
        }
    }

    /// Returns the streams with work.
    fn left(&self) -> Vec<(usize, GemmStream)> {
        let ranks = self.work.iter().enumerate();
        let left = ranks.flat_map(|(rank, work)| {
            let left = work.iter().filter(|(_, left)| !left.is_empty());
            left.map(move |(&on, _)| (rank, on))
        });
        let mut left: Vec<_> = left.collect();
        left.sort_unstable();
        left
    }
}

/// All ranks, with what their steps do.
pub(crate) trait StreamModel {
    type Step: PlanStep + Debug;

    fn streams(&mut self) -> &mut Streams<Self::Step>;
    /// Does a step. Returns whether it could complete.
    fn step(&mut self, rank: usize, step: Self::Step) -> bool;
    /// Fills a rank's streams with its next call, if there is one.
    fn next_call(&mut self, rank: usize);

    /// Runs the head of a stream. Returns whether it could.
    fn advance(&mut self, rank: usize, on: GemmStream) -> bool {
        let streams = self.streams();
        let Some(&work) = streams.work[rank].get(&on).and_then(VecDeque::front) else {
            return false;
        };
        let ready = match work {
            Work::Reach(point) => {
                streams.reached.insert((rank, point));
                true
            }
            Work::Pass(point) => streams.reached.contains(&(rank, point)),
            Work::Do(step) => self.step(rank, step),
        };
        let here = &mut self.streams().work[rank];
        if ready && let Some(left) = here.get_mut(&on) {
            left.pop_front();
        }
        if ready && here.values().all(VecDeque::is_empty) {
            self.next_call(rank);
        }
        ready
    }

    /// Runs until no stream has work, with the streams in an order derived from `seed`. `what` is named if all wait.
    fn run_all(&mut self, mut seed: u64, what: &dyn Debug) {
        loop {
            let mut left = self.streams().left();
            if left.is_empty() {
                break;
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let first = (seed >> 33) as usize % left.len();
            let most = 1 + (seed >> 60) as usize;
            left.rotate_left(first);
            // Twice: the last stream may have signaled the first before it began to wait itself.
            let mut moved = false;
            for &(rank, on) in left.iter().chain(&left) {
                let done = (0..most).take_while(|_| self.advance(rank, on)).count();
                moved |= done > 0;
            }
            assert!(moved, "all wait: {left:?} of {what:?}");
        }
    }
}
