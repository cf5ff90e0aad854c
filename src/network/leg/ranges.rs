//! The bytes of its region that a leg reads and writes at a member, but for the inbox, which is the leg's own.

use super::chain::Chain;
use super::exchange::Exchange;
use super::leg::Leg;
use super::parts::{Parts, Span};
use super::pieces::{Needed, Pieces};
use super::small::Small;
use super::tree::Tree;

/// Granularity of ranges: every range that a plan makes starts at a cache line.
const LINE: u64 = 64;

impl Leg {
    /// Returns the ranges that must hold data when the leg begins at member `own` of `members`.
    pub fn reads(&self, members: usize, own: usize) -> Vec<Span> {
        let everyone = 0..members;
        match self {
            // A member sends a part to each receiver, and reduces its own if it is one.
            Self::Small(Small { parts, root, .. }) => joined(
                everyone
                    .filter(|&member| root.is_none_or(|root| root == member))
                    .map(|member| parts.of(member, members)),
            ),
            Self::Pieces(Pieces { shares, .. }) => {
                joined(everyone.map(|member| shares.of(member, members)))
            }
            Self::Exchange(Exchange { sent, received }) => {
                joined(moved(sent, received, members, own).map(|member| sent.of(member, members)))
            }
            Self::Tree(Tree { root, span }) | Self::Chain(Chain { root, span }) => {
                joined((*root == own).then_some(*span).into_iter())
            }
            Self::Barrier => Vec::new(),
        }
    }

    /// Returns the ranges that hold the leg's results when it is done at member `own` of `members`. Other ranges may be
    /// overwritten too; what is in them is undefined.
    pub fn writes(&self, members: usize, own: usize) -> Vec<Span> {
        let everyone = 0..members;
        match self {
            Self::Small(Small { parts, root, .. }) => {
                let receives = root.is_none_or(|root| root == own);
                joined(receives.then(|| parts.of(own, members)).into_iter())
            }
            Self::Pieces(Pieces { shares, needed, .. }) => match needed {
                Needed::Owner => joined(std::iter::once(shares.of(own, members))),
                Needed::Root(root) if *root != own => Vec::new(),
                Needed::All | Needed::Root(_) => {
                    joined(everyone.map(|member| shares.of(member, members)))
                }
            },
            Self::Exchange(Exchange { sent, received }) => joined(
                moved(sent, received, members, own).map(|member| received.of(member, members)),
            ),
            Self::Tree(Tree { root, span }) | Self::Chain(Chain { root, span }) => {
                joined((*root != own).then_some(*span).into_iter())
            }
            Self::Barrier => Vec::new(),
        }
    }
}

/// Returns the members of an exchange whose parts go somewhere: all but this rank, if its own part stays where it is.
fn moved(
    sent: &Parts,
    received: &Parts,
    members: usize,
    own: usize,
) -> impl Iterator<Item = usize> {
    let stays = sent.of(own, members) == received.of(own, members);
    (0..members).filter(move |&member| member != own || !stays)
}

/// Joins ranges of one line and the next: between them is nobody's data.
fn joined(spans: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut spans: Vec<Span> = spans.filter(|span| span.bytes > 0).collect();
    spans.sort_unstable_by_key(|span| span.offset);
    let mut all: Vec<Span> = Vec::new();
    for span in spans {
        match all.last_mut() {
            Some(last) if span.offset <= (last.offset + last.bytes).next_multiple_of(LINE) => {
                last.bytes = last.bytes.max(span.offset + span.bytes - last.offset);
            }
            _ => all.push(span),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::memory::Reduction;
    use super::*;
    use crate::backend::abi::{ElementTypeCode, ReduceOpCode};

    const INBOX: Span = Span {
        offset: 1 << 20,
        bytes: 1 << 20,
    };

    fn span(offset: u64, bytes: u64) -> Span {
        Span { offset, bytes }
    }

    fn sum() -> Reduction {
        Reduction::new(ElementTypeCode::F32, ReduceOpCode::SUM, 3).expect("f32 has sums")
    }

    #[test]
    fn an_all_reduce_reads_and_writes_all_of_its_data() {
        for bytes in [8, 256 << 10] {
            let leg = Leg::all_reduce(span(128, bytes), 3, sum(), INBOX);
            for own in 0..3 {
                assert_eq!(leg.reads(3, own), [span(128, bytes)]);
                assert_eq!(leg.writes(3, own), [span(128, bytes)]);
            }
        }
    }

    #[test]
    fn a_reduce_writes_at_its_root_only() {
        for bytes in [8, 256 << 10] {
            let leg = Leg::reduce(1, span(0, bytes), 3, sum(), INBOX);
            for own in 0..3 {
                assert_eq!(leg.reads(3, own), [span(0, bytes)]);
                let written: &[Span] = if own == 1 { &[span(0, bytes)] } else { &[] };
                assert_eq!(leg.writes(3, own), written);
            }
        }
    }

    #[test]
    fn a_reduce_scatter_reads_all_parts_and_writes_its_own() {
        for bytes in [100, 256 << 10] {
            let stride = bytes + 4096;
            let parts = Parts::Equal {
                offset: 0,
                stride,
                bytes,
            };
            let leg = Leg::reduce_scatter(parts, bytes, 3, sum(), INBOX);
            let all = [0, 1, 2].map(|member| span(member * stride, bytes));
            assert_eq!(leg.reads(3, 2), all);
            assert_eq!(leg.writes(3, 2), [all[2]]);
        }
    }

    #[test]
    fn a_broadcast_reads_at_its_root_and_writes_at_the_others() {
        for bytes in [8, 1 << 20] {
            let leg = Leg::broadcast(0, span(64, bytes));
            assert_eq!(leg.reads(2, 0), [span(64, bytes)]);
            assert_eq!(leg.writes(2, 0), []);
            assert_eq!(leg.reads(2, 1), []);
            assert_eq!(leg.writes(2, 1), [span(64, bytes)]);
        }
    }

    #[test]
    fn an_exchange_reads_what_it_sends_and_writes_what_it_receives_once() {
        let parts = |spans: [Span; 3]| Parts::Each(spans.into());
        let sent = parts([span(0, 100), span(0, 100), Span::default()]);
        // The own part stays; two others lie in lines that follow each other.
        let received = parts([span(0, 100), span(1024, 100), span(1152, 64)]);
        let leg = Leg::exchange(sent, received);
        assert_eq!(leg.reads(3, 0), [span(0, 100)]);
        assert_eq!(leg.writes(3, 0), [span(1024, 192)]);
    }

    #[test]
    fn a_part_that_moves_within_a_rank_is_read_and_written() {
        let leg = Leg::exchange(
            Parts::only(0, 2, span(0, 64)),
            Parts::only(0, 2, span(256, 64)),
        );
        assert_eq!(leg.reads(2, 0), [span(0, 64)]);
        assert_eq!(leg.writes(2, 0), [span(256, 64)]);
    }
}
