//! A collective call as data: the lengths of its ranges, and the expected results.

use super::case::{Collective, CollectiveCase, Reduction};
use crate::covering::Random;
use crate::dtype::Dtype;
use crate::length::Length;
use crate::reference::reduce_over_nodes;

/// A collective call of a group, the same on all members. Ranks are numbered within the group.
#[derive(Clone, Debug)]
pub struct Call {
    pub operation: Collective,
    pub reduction: Reduction,
    pub dtype: Dtype,
    pub world: usize,
    /// Number of elements of a range, or of each member's part.
    pub count: usize,
    pub root: usize,
    /// The node of each member.
    pub nodes: Vec<usize>,
    /// Number of elements of each message, `[from][to]`, for operations with individual messages;
    /// `None` for no message. For an all-gather with counts, the diagonal holds the counts.
    pub messages: Vec<Vec<Option<usize>>>,
}

/// Part of an expected result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the first element in the destination range.
    pub at: usize,
    /// The elements' bytes.
    pub bytes: Vec<u8>,
}

impl Call {
    /// Returns the call of a case in a group of `world` members.
    pub fn of(case: &CollectiveCase, world: usize) -> Self {
        let operation = case.variant.operation;
        let mut random = Random(case.seed);
        let size = case.dtype.size();
        let parts = if operation.has_parts() { world } else { 1 };
        let count = match case.length {
            // `Around` gives the size of the longest range.
            Length::Around { .. } => case.length.elements(size) / parts,
            length => length.elements_among(world, size),
        };
        let root = random.below(world);
        let mut message = |from: usize, to: usize| match operation {
            Collective::Ring => (to == (from + 1) % world).then_some(count),
            Collective::AllGatherV => (from == to).then(|| any_count(count, &mut random)),
            Collective::AllToAllV => Some(any_count(count, &mut random)),
            Collective::Exchange => (random.below(3) > 0).then(|| any_count(count, &mut random)),
            _ => None,
        };
        let messages = (0..world)
            .map(|from| (0..world).map(|to| message(from, to)).collect())
            .collect();
        Self {
            operation,
            reduction: case.reduction,
            dtype: case.dtype,
            world,
            count,
            root,
            nodes: vec![0; world],
            messages,
        }
    }

    /// Places the members on nodes, given the node of each.
    pub fn on(self, nodes: Vec<usize>) -> Self {
        Self { nodes, ..self }
    }

    /// Returns the count of each member in an all-gather with counts.
    pub fn counts(&self) -> Vec<usize> {
        (0..self.world)
            .map(|member| self.messages[member][member].unwrap_or(0))
            .collect()
    }

    /// Returns the count and the source offset of each message that `member` sends. The last member's
    /// message comes first, with one element between two, so that no offset equals a prefix sum.
    pub fn sent(&self, member: usize) -> Vec<(Option<usize>, usize)> {
        let mut at = 0;
        let mut sent: Vec<_> = (0..self.world)
            .rev()
            .map(|to| {
                let count = self.messages[member][to];
                at += count.unwrap_or(0) + 1;
                (count, at - 1 - count.unwrap_or(0))
            })
            .collect();
        sent.reverse();
        sent
    }

    /// Returns the count and the destination offset of each message that `member` receives, with one
    /// element between two.
    pub fn received(&self, member: usize) -> Vec<(Option<usize>, usize)> {
        let mut at = 0;
        (0..self.world)
            .map(|from| {
                let count = self.messages[from][member];
                at += count.unwrap_or(0) + 1;
                (count, at - 1 - count.unwrap_or(0))
            })
            .collect()
    }

    /// Returns the number of elements in `member`'s source range.
    pub fn source_length(&self, member: usize) -> usize {
        match self.operation {
            Collective::ReduceScatter | Collective::AllToAll | Collective::Scatter => {
                self.count * self.world
            }
            // The range has the same length on all members: the largest count.
            Collective::AllGatherV => self.counts().into_iter().max().unwrap_or(0),
            Collective::AllToAllV | Collective::Ring | Collective::Exchange => {
                spread(&self.sent(member))
            }
            _ => self.count,
        }
    }

    /// Returns the number of elements in `member`'s destination range.
    pub fn destination_length(&self, member: usize) -> usize {
        match self.operation {
            Collective::AllGather | Collective::AllToAll | Collective::Gather => {
                self.count * self.world
            }
            Collective::AllGatherV => self.counts().into_iter().sum(),
            Collective::AllToAllV | Collective::Ring | Collective::Exchange => {
                spread(&self.received(member))
            }
            _ => self.count,
        }
    }

    /// Returns the offsets of `member`'s destination and source in their common memory for an in-place
    /// call; `None` if the operation has no in-place form.
    pub fn in_place(&self, member: usize) -> Option<(usize, usize)> {
        let part = self.count * member;
        match self.operation {
            Collective::AllReduce
            | Collective::Reduce
            | Collective::Broadcast
            | Collective::AllToAll => Some((0, 0)),
            Collective::AllGather => Some((0, part)),
            Collective::ReduceScatter => Some((part, 0)),
            _ => None,
        }
    }

    /// Returns the pieces that `member`'s destination must hold after the call; the rest must not change.
    /// `source` gives the bytes of each member's source before the call.
    pub fn result(&self, member: usize, source: &dyn Fn(usize) -> Vec<u8>) -> Vec<Piece> {
        let size = self.dtype.size();
        let is_root = member == self.root;
        let part = |bytes: &[u8], number: usize| {
            bytes[number * self.count * size..][..self.count * size].to_vec()
        };
        let piece = |at: usize, bytes: Vec<u8>| Piece { at, bytes };
        let everybody = 0..self.world;
        let reduced = |sources: Vec<Vec<u8>>| {
            let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            let (dtype, reduction) = (self.dtype, self.reduction);
            piece(
                0,
                reduce_over_nodes(dtype, reduction, &sources, &self.nodes),
            )
        };
        match self.operation {
            Collective::AllReduce => vec![reduced(everybody.map(source).collect())],
            Collective::Reduce if is_root => vec![reduced(everybody.map(source).collect())],
            Collective::Gather if !is_root => Vec::new(),
            Collective::Reduce => Vec::new(),
            Collective::ReduceScatter => {
                let parts = everybody.map(|from| part(&source(from), member));
                vec![reduced(parts.collect())]
            }
            Collective::AllGather | Collective::Gather => everybody
                .map(|from| piece(from * self.count, source(from)))
                .collect(),
            Collective::AllGatherV => {
                let mut at = 0;
                let pieces = self.counts().into_iter().enumerate().map(|(from, count)| {
                    at += count;
                    piece(at - count, source(from)[..count * size].to_vec())
                });
                pieces.collect()
            }
            Collective::Broadcast => vec![piece(0, source(self.root))],
            Collective::Scatter => vec![piece(0, part(&source(self.root), member))],
            Collective::AllToAll => everybody
                .map(|from| piece(from * self.count, part(&source(from), member)))
                .collect(),
            Collective::AllToAllV | Collective::Ring | Collective::Exchange => {
                let received = self.received(member).into_iter().enumerate();
                let pieces = received.filter_map(|(from, (count, at))| {
                    let (count, first) = (count?, self.sent(from)[member].1);
                    let bytes = &source(from)[first * size..][..count * size];
                    Some(piece(at, bytes.to_vec()))
                });
                pieces.collect()
            }
        }
    }
}

/// Returns 0, at most 1, `most`, or a random count up to `most`.
fn any_count(most: usize, random: &mut Random) -> usize {
    match random.below(4) {
        0 => 0,
        1 => most.min(1),
        2 => most,
        _ => random.below(most + 1),
    }
}

/// Returns the length of a range that holds all messages and the gaps between them.
fn spread(messages: &[(Option<usize>, usize)]) -> usize {
    messages
        .iter()
        .filter_map(|&(count, at)| Some(at + count?))
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::case::{AlgorithmName, CollectiveVariant};

    fn call(operation: Collective, seed: u64) -> Call {
        let variant = CollectiveVariant {
            operation,
            algorithm: AlgorithmName::Automatic,
        };
        let case = CollectiveCase {
            length: Length::Elements(2),
            ..CollectiveCase::plain(variant, Dtype::U8, seed)
        };
        Call::of(&case, 3)
    }

    /// Element `e` of member `m` is `10 m + e`.
    fn results(call: &Call) -> Vec<Vec<(usize, Vec<u8>)>> {
        let source = |member: usize| {
            (0..call.source_length(member))
                .map(|element| (10 * member + element) as u8)
                .collect()
        };
        (0..call.world)
            .map(|member| {
                let pieces = call.result(member, &source).into_iter();
                pieces.map(|piece| (piece.at, piece.bytes)).collect()
            })
            .collect()
    }

    #[test]
    fn results_are_those_of_the_definitions() {
        let all_reduce = results(&call(Collective::AllReduce, 0));
        assert_eq!(all_reduce, vec![vec![(0, vec![30, 33])]; 3]);
        let scattered = results(&call(Collective::ReduceScatter, 0));
        assert_eq!(scattered[1], [(0, vec![36, 39])]);
        let gathered = results(&call(Collective::AllGather, 0));
        assert_eq!(gathered[2][1], (2, vec![10, 11]));
        let exchanged = results(&call(Collective::AllToAll, 0));
        // Part 1 of each member's source, in rank order.
        assert_eq!(
            exchanged[1],
            [(0, vec![2, 3]), (2, vec![12, 13]), (4, vec![22, 23])]
        );
        let ring = results(&call(Collective::Ring, 0));
        assert_eq!(ring[0].len(), 1);
        assert_eq!(ring[0][0].1[0] / 10, 2);
    }

    #[test]
    fn only_the_root_has_a_result_of_what_goes_to_one() {
        for operation in [Collective::Reduce, Collective::Gather] {
            for seed in 0..6 {
                let call = call(operation, seed);
                for (member, pieces) in results(&call).into_iter().enumerate() {
                    assert_eq!(pieces.is_empty(), member != call.root);
                }
            }
        }
    }

    #[test]
    fn messages_do_not_overlap_and_are_inside_their_ranges() {
        for operation in [
            Collective::AllToAllV,
            Collective::Exchange,
            Collective::Ring,
            Collective::AllGatherV,
        ] {
            for seed in 0..50 {
                let call = call(operation, seed);
                for member in 0..3 {
                    let length = call.destination_length(member);
                    let mut holds = vec![false; length];
                    for (at, bytes) in results(&call).swap_remove(member) {
                        for element in &mut holds[at..at + bytes.len()] {
                            assert!(!std::mem::replace(element, true), "{call:?}");
                        }
                    }
                }
            }
        }
    }
}
