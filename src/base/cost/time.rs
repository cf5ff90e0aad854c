//! Seconds from counts: the formula of the module's head.

use super::algorithm::Hierarchical;
use super::machine::{CONSTANTS, Machine};
use super::stages::{Class, stages};
use super::traffic::Work;
use crate::base::names::CollectiveOperation;

/// Most chunks that a call is cut into.
pub const MOST_CHUNKS: u32 = 256;

/// Time and traffic of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Time of the call in seconds.
    pub seconds: f64,
    /// Bytes over the busiest link inside a node: for each stage its busier direction, added.
    pub bytes_inside_per_link: f64,
    /// Bytes over the busiest rail in the leg's busier direction.
    pub bytes_between_per_rail: f64,
    /// Steps that depend on each other, in all stages of one chunk.
    pub steps: u32,
}

/// How often each constant counts: a linear form over [`Machine::factors`].
pub(super) type Terms = [f64; CONSTANTS];

fn add(into: &mut Terms, other: &Terms, times: f64) {
    for (into, other) in into.iter_mut().zip(other) {
        *into += other * times;
    }
}

/// Returns the seconds of a linear form.
pub(super) fn seconds(terms: &Terms, factors: &Terms) -> f64 {
    terms
        .iter()
        .zip(factors)
        .map(|(term, factor)| term * factor)
        .sum()
}

/// A call cut into chunks, as counts of one chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// One chunk through all stages, for a chunk of all bytes.
    path: Terms,
    /// What a further chunk occupies: links inside, rails, reductions of the leg; for a chunk of all bytes.
    busy: [Terms; 3],
    cost: Cost,
}

/// Whether a constant counts once a byte, so that a smaller chunk takes less of it.
const PER_BYTE: [bool; CONSTANTS] = [false, true, false, false, true, false, true];

/// Returns the form of a chunk of 1/`chunks` of the bytes.
fn of_chunk(terms: &Terms, chunks: u32) -> Terms {
    let mut cut = *terms;
    for (term, per_byte) in cut.iter_mut().zip(PER_BYTE) {
        if per_byte {
            *term /= f64::from(chunks);
        }
    }
    cut
}

impl Counts {
    pub(super) fn new(
        machine: &Machine,
        operation: CollectiveOperation,
        bytes: u64,
        algorithm: Hierarchical,
    ) -> Option<Self> {
        let mut counts = Self {
            path: [0.0; CONSTANTS],
            busy: [[0.0; CONSTANTS]; 3],
            cost: Cost {
                seconds: 0.0,
                bytes_inside_per_link: 0.0,
                bytes_between_per_rail: 0.0,
                steps: 0,
            },
        };
        let [inside, rails, reductions] = &mut counts.busy;
        for stage in stages(machine, operation, bytes as f64, algorithm)? {
            let traffic = stage.traffic()?;
            let sharing = f64::from(stage.sharing);
            let steps = f64::from(traffic.steps);
            counts.cost.steps += traffic.steps;
            match stage.class {
                Class::Inside => {
                    let form = of(Class::Inside, steps, traffic.path, sharing);
                    add(&mut counts.path, &form, 1.0);
                    add(inside, &form, 1.0);
                    counts.cost.bytes_inside_per_link += traffic.load.bytes;
                }
                Class::Between => {
                    let form = of(Class::Between, steps, traffic.path, sharing);
                    add(&mut counts.path, &form, 1.0);
                    let Work { reduced, .. } = traffic.load;
                    let moved = Work {
                        reduced: 0.0,
                        ..traffic.load
                    };
                    add(rails, &of(Class::Between, 0.0, moved, sharing), 1.0);
                    let alone = Work {
                        reduced,
                        ..Work::default()
                    };
                    add(reductions, &of(Class::Between, 0.0, alone, sharing), 1.0);
                    counts.cost.bytes_between_per_rail += traffic.load.bytes * sharing;
                }
            }
        }
        Some(counts)
    }

    /// Returns the linear form of the whole call; `factors` decide which resource is the busiest.
    pub(super) fn terms(&self, chunks: u32, factors: &Terms) -> Terms {
        let busiest = (self.busy.iter())
            .map(|busy| of_chunk(busy, chunks))
            .max_by(|a, b| seconds(a, factors).total_cmp(&seconds(b, factors)));
        let mut terms = of_chunk(&self.path, chunks);
        add(
            &mut terms,
            &busiest.unwrap_or_default(),
            f64::from(chunks - 1),
        );
        terms
    }

    fn seconds(&self, chunks: u32, factors: &Terms) -> f64 {
        seconds(&self.terms(chunks, factors), factors)
    }

    /// Returns the number of chunks that takes the least time. The time is convex in it.
    pub(super) fn chunks(&self, factors: &Terms) -> u32 {
        let (mut least, mut most) = (1, MOST_CHUNKS);
        while least < most {
            let middle = least + (most - least) / 2;
            match self.seconds(middle + 1, factors) < self.seconds(middle, factors) {
                true => least = middle + 1,
                false => most = middle,
            }
        }
        least
    }

    fn cost(&self, chunks: u32, factors: &Terms) -> Cost {
        Cost {
            seconds: self.seconds(chunks, factors),
            ..self.cost
        }
    }
}

/// Returns the linear form of a stage.
fn of(class: Class, steps: f64, work: Work, sharing: f64) -> Terms {
    let (bytes, messages) = (work.bytes * sharing, work.messages * sharing);
    match class {
        Class::Inside => [steps, bytes, messages, 0.0, 0.0, 0.0, work.reduced],
        Class::Between => [0.0, 0.0, 0.0, steps, bytes, messages, work.reduced],
    }
}

/// Returns time and bytes of `operation` of `bytes` bytes, cut into `chunks` chunks (1 to [`MOST_CHUNKS`]; other
/// numbers are taken as the nearest of these). `None` if there is no such algorithm for the operation: see
/// [`Hierarchical`]. Barriers, exchanges and operations with parts of different sizes have no cost.
///
/// `bytes` is nccl-tests' size: of one rank's elements for all-reduce, broadcast and reduce, otherwise of the buffer
/// with one part per rank of the world.
pub fn cost(
    machine: &Machine,
    operation: CollectiveOperation,
    bytes: u64,
    algorithm: Hierarchical,
    chunks: u32,
) -> Option<Cost> {
    let counts = Counts::new(machine, operation, bytes, algorithm)?;
    Some(counts.cost(chunks.clamp(1, MOST_CHUNKS), &machine.factors()))
}

/// Returns the number of chunks that takes the least time, and that time; otherwise as [`cost`].
pub fn fastest_chunks(
    machine: &Machine,
    operation: CollectiveOperation,
    bytes: u64,
    algorithm: Hierarchical,
) -> Option<(u32, Cost)> {
    let counts = Counts::new(machine, operation, bytes, algorithm)?;
    let factors = machine.factors();
    let chunks = counts.chunks(&factors);
    Some((chunks, counts.cost(chunks, &factors)))
}

/// Returns the algorithm and number of chunks of the least time; the first of equally fast ones. `None` for operations
/// without a cost.
pub fn best(
    machine: &Machine,
    operation: CollectiveOperation,
    bytes: u64,
) -> Option<(Hierarchical, u32, Cost)> {
    best_of(machine, operation, bytes, Hierarchical::all())
}

/// [`best`] of some algorithms, for a program that has not all of them.
pub fn best_of(
    machine: &Machine,
    operation: CollectiveOperation,
    bytes: u64,
    algorithms: impl IntoIterator<Item = Hierarchical>,
) -> Option<(Hierarchical, u32, Cost)> {
    (algorithms.into_iter())
        .filter_map(|algorithm| {
            let (chunks, cost) = fastest_chunks(machine, operation, bytes, algorithm)?;
            Some((algorithm, chunks, cost))
        })
        .min_by(|(.., a), (.., b)| a.seconds.total_cmp(&b.seconds))
}
