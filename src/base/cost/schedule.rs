//! The messages of each algorithm, one by one: the specification that the counts are compared with.
//!
//! A buffer has one block per rank. A block carries the set of ranks whose elements are in it, so that a run shows
//! whether every rank ends with the right blocks, each summed over every rank once.

use super::algorithm::LegAlgorithm;
use super::traffic::{Traffic, Work};
use crate::base::names::CollectiveOperation;
use std::collections::BTreeMap;

/// Blocks from one rank to another.
#[derive(Clone, Debug)]
pub struct Message {
    pub from: usize,
    pub to: usize,
    pub blocks: Vec<usize>,
    /// Whether the receiver adds them to its own; otherwise it keeps them in place of its own.
    pub reduces: bool,
}

/// Messages of each step; all of a step are sent before any of it is received.
pub type Schedule = Vec<Vec<Message>>;

fn message(from: usize, to: usize, blocks: impl IntoIterator<Item = usize>) -> Message {
    Message {
        from,
        to,
        blocks: blocks.into_iter().collect(),
        reduces: false,
    }
}

fn reducing(schedule: Schedule) -> Schedule {
    let reduces = |message| Message {
        reduces: true,
        ..message
    };
    (schedule.into_iter())
        .map(|step| step.into_iter().map(reduces).collect())
        .collect()
}

/// Returns the schedule backwards: every message the other way, the last step first.
fn backwards(schedule: Schedule) -> Schedule {
    let back = |message: Message| Message {
        from: message.to,
        to: message.from,
        ..message
    };
    (schedule.into_iter().rev())
        .map(|step| step.into_iter().map(back).collect())
        .collect()
}

/// Returns the messages of `operation` by `leg` among `n` ranks; rank 0 is the root.
pub fn schedule(operation: CollectiveOperation, leg: LegAlgorithm, n: usize) -> Option<Schedule> {
    use CollectiveOperation::{
        AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter,
    };
    use LegAlgorithm::{Direct, Halving, Ring, Tree};
    let rounds = n.next_power_of_two().ilog2();
    let pairs = || {
        (0..n).flat_map(move |from| {
            (0..n)
                .filter(move |to| *to != from)
                .map(move |to| (from, to))
        })
    };
    let from_root = || (1..n).map(|to| (0, to));
    let join = |first: Option<Schedule>, second: Option<Schedule>| {
        Some([first?, second?].into_iter().flatten().collect())
    };
    let all = |operation| schedule(operation, leg, n);
    Some(match (operation, leg) {
        // Reductions are the same messages as moves, the other way round.
        (ReduceScatter, _) => reducing(backwards(all(AllGather)?)),
        (Reduce, Direct | Ring | Tree) => reducing(backwards(all(Broadcast)?)),
        (Gather, _) => backwards(all(Scatter)?),
        (AllReduce, Direct) => {
            let step = pairs().map(|(from, to)| message(from, to, 0..n)).collect();
            reducing(vec![step])
        }
        (AllReduce, Ring | Halving) => return join(all(ReduceScatter), all(AllGather)),
        (AllReduce, Tree) => return join(all(Reduce), all(Broadcast)),
        (Broadcast, Halving) => return join(schedule(Scatter, Tree, n), all(AllGather)),
        (Reduce, Halving) => return join(all(ReduceScatter), schedule(Gather, Tree, n)),
        (AllGather, Direct) => {
            vec![
                pairs()
                    .map(|(from, to)| message(from, to, [from]))
                    .collect(),
            ]
        }
        (AllGather, Ring) => (0..n - 1)
            .map(|step| {
                let send = |rank: usize| message(rank, (rank + 1) % n, [(rank + n - step) % n]);
                (0..n).map(send).collect()
            })
            .collect(),
        // Bruck's: each step doubles the blocks of every rank, the last one fills up.
        (AllGather, Halving) => (0..rounds)
            .map(|round| {
                let distance = 1 << round;
                let count = distance.min(n - distance);
                let blocks = |rank| (rank..rank + count).map(|block| block % n);
                (0..n)
                    .map(|rank| message(rank, (rank + n - distance) % n, blocks(rank)))
                    .collect()
            })
            .collect(),
        (AllToAll, Direct) => {
            vec![
                pairs()
                    .map(|(from, to)| message(from, to, [from * n + to]))
                    .collect(),
            ]
        }
        (AllToAll, Ring) => (1..n)
            .map(|distance| {
                let to = |from: usize| (from + distance) % n;
                (0..n)
                    .map(|from| message(from, to(from), [from * n + to(from)]))
                    .collect()
            })
            .collect(),
        // Bruck's: in round k, blocks whose distance has bit k travel 2^k ranks.
        (AllToAll, Halving) => (0..rounds)
            .map(|round| {
                let hop = 1 << round;
                let blocks = |rank: usize| {
                    (1..n)
                        .filter(move |distance| distance & hop != 0)
                        .map(move |distance| {
                            let from = (rank + n - distance % hop) % n;
                            from * n + (from + distance) % n
                        })
                };
                (0..n)
                    .map(|rank| message(rank, (rank + hop) % n, blocks(rank)))
                    .collect()
            })
            .collect(),
        (Broadcast, Direct) => vec![
            from_root()
                .map(|(from, to)| message(from, to, 0..n))
                .collect(),
        ],
        (Broadcast, Ring) => (0..n - 1)
            .map(|rank| vec![message(rank, rank + 1, 0..n)])
            .collect(),
        (Broadcast, Tree) => tree(n, |_, _| (0..n).collect()),
        (Scatter, Direct) => vec![
            from_root()
                .map(|(from, to)| message(from, to, [to]))
                .collect(),
        ],
        (Scatter, Tree) => tree(n, |to, below| (to..n.min(to + below)).collect()),
        _ => return None,
    })
}

/// A binomial tree from rank 0. `blocks` gets a receiver, and the most ranks of its subtree, itself included.
fn tree(n: usize, blocks: impl Fn(usize, usize) -> Vec<usize>) -> Schedule {
    let rounds = n.next_power_of_two().ilog2();
    let step = |round| {
        let below = 1_usize << round;
        (0..n)
            .step_by(2 * below)
            .filter(|from| from + below < n)
            .map(|from| message(from, from + below, blocks(from + below, below)))
            .collect()
    };
    (0..rounds).rev().map(step).collect()
}

/// Runs the messages; panics if a rank sends what it does not have, adds a rank twice, or ends without a result.
pub fn run(operation: CollectiveOperation, schedule: &Schedule, n: usize) {
    use CollectiveOperation::{
        AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter,
    };
    let everyone: u32 = (1 << n) - 1;
    let mut held: Vec<BTreeMap<usize, u32>> = (0..n)
        .map(|rank| {
            let blocks: Vec<usize> = match operation {
                AllReduce | ReduceScatter | Reduce => (0..n).collect(),
                AllGather | Gather => vec![rank],
                AllToAll => (0..n).map(|to| rank * n + to).collect(),
                _ if rank == 0 => (0..n).collect(),
                _ => vec![],
            };
            blocks.into_iter().map(|block| (block, 1 << rank)).collect()
        })
        .collect();
    for step in schedule {
        let before = held.clone();
        for message in step {
            for block in &message.blocks {
                let sent = before[message.from][block];
                let kept = held[message.to].entry(*block).or_default();
                assert!(
                    !message.reduces || *kept & sent == 0,
                    "a rank is added twice"
                );
                *kept = if message.reduces { *kept | sent } else { sent };
            }
        }
    }
    for (rank, held) in held.iter().enumerate() {
        let wanted: Vec<(usize, u32)> = match operation {
            AllReduce => (0..n).map(|block| (block, everyone)).collect(),
            ReduceScatter => vec![(rank, everyone)],
            AllGather => (0..n).map(|block| (block, 1 << block)).collect(),
            AllToAll => (0..n).map(|from| (from * n + rank, 1 << from)).collect(),
            Broadcast => (0..n).map(|block| (block, 1)).collect(),
            Scatter => vec![(rank, 1)],
            Reduce if rank == 0 => (0..n).map(|block| (block, everyone)).collect(),
            Gather if rank == 0 => (0..n).map(|block| (block, 1 << block)).collect(),
            _ => vec![],
        };
        for (block, sum) in wanted {
            assert_eq!(held.get(&block), Some(&sum), "rank {rank}, block {block}");
        }
    }
}

/// Messages, bytes and reduced bytes of a link, out and in.
#[derive(Clone, Copy, Default)]
struct Both {
    out: Work,
    into: Work,
}

impl Both {
    fn busier(self) -> Work {
        Work {
            messages: self.out.messages.max(self.into.messages),
            bytes: self.out.bytes.max(self.into.bytes),
            reduced: self.into.reduced,
        }
    }
}

fn busiest(links: &[Both]) -> Work {
    links.iter().fold(Work::default(), |most, link| {
        let link = link.busier();
        Work {
            messages: most.messages.max(link.messages),
            bytes: most.bytes.max(link.bytes),
            reduced: most.reduced.max(link.reduced),
        }
    })
}

/// Counts the messages of `instances` runs of a schedule at once. `link` is that of a member of an instance.
pub fn count(
    schedule: &Schedule,
    block: f64,
    instances: usize,
    links: usize,
    link: impl Fn(usize, usize) -> usize,
) -> Traffic {
    let mut whole = vec![Both::default(); links];
    let mut path = Work::default();
    for step in schedule {
        let mut now = vec![Both::default(); links];
        for (instance, message) in (0..instances).flat_map(|i| step.iter().map(move |m| (i, m))) {
            let bytes = message.blocks.len() as f64 * block;
            let sent = Work {
                messages: 1.0,
                bytes,
                reduced: if message.reduces { bytes } else { 0.0 },
            };
            for links in [&mut now, &mut whole] {
                let out = &mut links[link(instance, message.from)].out;
                *out = *out + sent;
                let into = &mut links[link(instance, message.to)].into;
                *into = *into + sent;
            }
        }
        path = path + busiest(&now);
    }
    Traffic {
        steps: schedule.len() as u32,
        path,
        load: busiest(&whole),
    }
}
