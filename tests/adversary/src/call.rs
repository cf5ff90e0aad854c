//! Calls: operations with everything resolved, and what they do to a model of all ranks' memory.

use crate::program::{Atomic, Element, Kind};
use crate::reduce::reduce;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Plants a fault in the model, to test that it is compared: a broadcast omits the last element.
pub static WRONG: AtomicBool = AtomicBool::new(false);

/// Names a buffer, stream, graph or group of one program.
pub type Id = usize;

/// Elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The buffer.
    pub buffer: Id,
    /// The first element.
    pub at: usize,
}

/// A resolved operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Which.
    pub kind: Kind,
    /// The type of both buffers.
    pub element: Element,
    /// What is read.
    pub from: Range,
    /// What is written.
    pub to: Range,
    /// Elements of a part.
    pub count: usize,
    /// The channel.
    pub channel: u32,
    /// The group; `None` for the world.
    pub group: Option<Id>,
    /// The members of each group that makes the call, in the order of their numbers.
    pub members: Vec<Vec<usize>>,
    /// A root, or a shift.
    pub number: usize,
    /// The algorithm; `None` leaves it to the library.
    pub algorithm: Option<symmem::Algorithm>,
    /// Whether it is in place.
    pub in_place: bool,
    /// The graph that is launched.
    pub graph: Option<Id>,
}

/// The model of all ranks' memory: the bytes of each buffer on each rank.
#[derive(Clone, Default)]
pub struct Memory {
    /// By buffer, then by rank.
    pub bytes: BTreeMap<Id, Vec<Vec<u8>>>,
    /// The calls of each graph.
    pub graphs: BTreeMap<Id, Vec<Call>>,
}

impl Kind {
    /// Returns how many parts are read and written in a group of `members`.
    pub fn parts(self, members: usize) -> (usize, usize) {
        match self {
            Self::ReduceScatter(_) | Self::Scatter => (members, 1),
            Self::AllGather | Self::AllGatherV | Self::Gather => (1, members),
            Self::AllToAll | Self::AllToAllV => (members, members),
            Self::Exchange(messages) => (messages, messages),
            Self::Barrier | Self::GroupBarrier | Self::Launch => (0, 0),
            _ => (1, 1),
        }
    }

    /// Whether a group may do it.
    pub fn is_collective(self) -> bool {
        !matches!(
            self,
            Self::Barrier
                | Self::Put
                | Self::Get
                | Self::PutSignal
                | Self::Atomic(_)
                | Self::Local
                | Self::Launch
        )
    }
}

impl Call {
    /// Returns the members of the group that a rank is in, and its number among them.
    pub fn membership(&self, rank: usize) -> Option<(&[usize], usize)> {
        let mut groups = self.members.iter();
        groups.find_map(|members| {
            let number = members.iter().position(|&member| member == rank);
            number.map(|number| (&members[..], number))
        })
    }

    /// Returns the first element that member `number` reads.
    pub fn read_at(&self, number: usize) -> usize {
        match self.kind {
            Kind::AllGather if self.in_place => self.from.at + number * self.count,
            _ => self.from.at,
        }
    }

    /// Returns the first element that member `number` writes.
    pub fn write_at(&self, number: usize) -> usize {
        match self.kind {
            Kind::ReduceScatter(_) if self.in_place => self.to.at + number * self.count,
            _ => self.to.at,
        }
    }

    /// Returns the elements that each member contributes to an `all_gather_v`.
    pub fn counts(&self, members: usize) -> Vec<usize> {
        let count = |member| (self.count + 7 * member + self.number) % (self.count + 1);
        (0..members).map(count).collect()
    }

    /// Returns the elements that `sender` sends to `receiver` in an `all_to_all_v`.
    pub fn sent(&self, sender: usize, receiver: usize) -> usize {
        (self.count + 3 * sender + 5 * receiver + self.number) % (self.count + 1)
    }

    /// Returns where what `sender` sends to `receiver` starts in the sender's range.
    pub fn sent_at(&self, sender: usize, receiver: usize) -> usize {
        (0..receiver).map(|other| self.sent(sender, other)).sum()
    }

    /// Returns where what `sender` sends to `receiver` starts in the receiver's range.
    pub fn received_at(&self, sender: usize, receiver: usize) -> usize {
        (0..sender).map(|other| self.sent(other, receiver)).sum()
    }

    /// Returns the value that a member's word operation takes.
    pub fn value(&self, number: usize) -> u64 {
        match self.kind {
            // All wait for the same value.
            Kind::Atomic(Atomic::SetAndWait) => self.count as u64 * 3 + 1,
            _ => self.count as u64 * 0x1_0000_0001 + number as u64 + 1,
        }
    }

    /// Returns the value that a compare-and-swap replaces.
    pub fn compared(&self) -> u64 {
        self.count as u64 % 3
    }
}

impl Memory {
    /// Applies a call to the model.
    pub fn apply(&mut self, call: &Call) {
        if let Some(graph) = call.graph {
            let calls = self.graphs.get(&graph).cloned().unwrap_or_default();
            calls.iter().for_each(|call| self.apply(call));
            return;
        }
        if matches!(call.kind, Kind::Barrier | Kind::GroupBarrier) {
            return;
        }
        let groups = call.members.iter();
        let writes: Vec<Write> = groups
            .flat_map(|members| self.writes(call, members))
            .collect();
        for Write { rank, range, bytes } in writes {
            let at = range.at * call.element.size();
            let buffer = self.of(range.buffer, rank);
            buffer[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }

    fn of(&mut self, buffer: Id, rank: usize) -> &mut Vec<u8> {
        let copies = self.bytes.get_mut(&buffer);
        &mut copies.expect("a call's buffers are in the model")[rank]
    }

    /// Returns a part of a buffer.
    pub fn read(
        &self,
        buffer: Id,
        rank: usize,
        element: Element,
        at: usize,
        count: usize,
    ) -> &[u8] {
        let size = element.size();
        &self.bytes[&buffer][rank][at * size..(at + count) * size]
    }

    /// Returns what one group's members write.
    fn writes(&self, call: &Call, members: &[usize]) -> Vec<Write> {
        let (many, count) = (members.len(), call.count);
        let element = call.element;
        let take = |number: usize, at: usize, count: usize| {
            let at = call.read_at(number) + at;
            self.read(call.from.buffer, members[number], element, at, count)
        };
        let write = |number: usize, at: usize, bytes: &[u8]| Write {
            rank: members[number],
            range: Range {
                buffer: call.to.buffer,
                at: call.write_at(number) + at,
            },
            bytes: bytes.to_vec(),
        };
        let root = call.number % many;
        let reduced = |part: usize, how| {
            let parts: Vec<&[u8]> = (0..many).map(|m| take(m, part * count, count)).collect();
            reduce(element, how, &parts)
        };
        let of_member = |number: usize| -> Vec<Write> {
            let whole = |bytes: &[u8]| vec![write(number, 0, bytes)];
            let parts = |part: &dyn Fn(usize) -> Write| (0..many).map(part).collect();
            match call.kind {
                Kind::AllReduce(how) => whole(&reduced(0, how)),
                Kind::Reduce(how) if number == root => whole(&reduced(0, how)),
                Kind::ReduceScatter(how) => whole(&reduced(number, how)),
                Kind::Gather if number != root => Vec::new(),
                Kind::AllGather | Kind::Gather => {
                    parts(&|m| write(number, m * count, take(m, 0, count)))
                }
                Kind::AllGatherV => {
                    let counts = call.counts(many);
                    let at = |m: usize| counts[..m].iter().sum();
                    parts(&|m| write(number, at(m), take(m, 0, counts[m])))
                }
                Kind::Broadcast if WRONG.load(Ordering::Relaxed) => {
                    whole(take(root, 0, count.saturating_sub(1)))
                }
                Kind::Broadcast => whole(take(root, 0, count)),
                Kind::AllToAll => {
                    parts(&|m| write(number, m * count, take(m, number * count, count)))
                }
                Kind::AllToAllV => parts(&|m| {
                    let sent = take(m, call.sent_at(m, number), call.sent(m, number));
                    write(number, call.received_at(m, number), sent)
                }),
                Kind::Scatter => whole(take(root, number * count, count)),
                Kind::Exchange(messages) => {
                    whole(take((number + many - root) % many, 0, messages * count))
                }
                Kind::SendRecv if number == (root + 1) % many => whole(take(root, 0, count)),
                Kind::Put | Kind::PutSignal => {
                    vec![write((number + root) % many, 0, take(number, 0, count))]
                }
                Kind::Get => whole(take((number + root) % many, 0, count)),
                Kind::Local => whole(take(number, 0, count)),
                Kind::Atomic(atomic) => {
                    let target = (number + root) % many;
                    let old = self.read(call.to.buffer, members[target], element, call.to.at, 1);
                    let word = updated(call, atomic, number, old);
                    let mut writes = vec![write(target, 0, &word)];
                    if matches!(
                        atomic,
                        Atomic::FetchAdd | Atomic::Swap | Atomic::CompareSwap
                    ) {
                        writes.push(Write {
                            rank: members[number],
                            range: call.from,
                            bytes: old.to_vec(),
                        });
                    }
                    writes
                }
                _ => Vec::new(),
            }
        };
        (0..many).flat_map(of_member).collect()
    }
}

/// Returns a word after a member's operation on it.
fn updated(call: &Call, atomic: Atomic, number: usize, old: &[u8]) -> Vec<u8> {
    let mut bytes = [0; 8];
    bytes[..old.len()].copy_from_slice(old);
    let (old_value, value) = (u64::from_le_bytes(bytes), call.value(number));
    let mask = u64::MAX >> (64 - 8 * old.len());
    let new = match atomic {
        Atomic::FetchAdd | Atomic::SignalAdd => old_value.wrapping_add(value),
        Atomic::CompareSwap if old_value != call.compared() & mask => old_value,
        _ => value,
    };
    new.to_le_bytes()[..old.len()].to_vec()
}

/// Bytes that a rank's buffer gets.
struct Write {
    rank: usize,
    range: Range,
    bytes: Vec<u8>,
}
