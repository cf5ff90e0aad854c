//! What goes between pairs of ranks: all-to-alls, gather, scatter, sends and receives.
//!
//! Ranks of one node exchange by the kernel, as they do in a group of one node. Each pair of ranks of different nodes has
//! legs of its own, since ranks do not know what others send: a leg carries a window of what the two send each other.

use super::layout::{BUFFER, DIRECT, slot_bytes};
use super::legs::Legs;
use super::rehearsal::Purpose;
use super::stages::Nodes;
use super::task::{Task, Work};
use crate::backend::abi::CollectiveOperationCode;
use crate::base::error::Result;
use crate::base::names::CollectiveOperation;
use crate::collectives::chosen::{exchange_blocks, exchange_query};
use crate::collectives::explanation::WithoutNccl;
use crate::collectives::select::choose;
use crate::group::choice::Choice;
use crate::network::leg::parts::{Parts, Span};
use crate::rank::memory_range::MemoryRange;
use std::sync::Arc;

/// What this rank sends to a member, and receives from it.
#[derive(Clone, Copy, Default)]
pub struct Pair<'p> {
    /// What it sends.
    pub sent: Option<MemoryRange<'p>>,
    /// What it receives.
    pub received: Option<MemoryRange<'p>>,
}

/// Legs of a pair that run beside each other from operand to operand. Each advance of a command looks at all its legs.
const LEGS_OF_A_PAIR: u64 = 8;
/// Most bytes of one, which shows no progress before its end.
const MOST_DIRECT: u64 = 64 << 20;

fn bytes_at(range: Option<MemoryRange<'_>>, at: u64, window: u64) -> u64 {
    range.map_or(0, |range| range.bytes().saturating_sub(at).min(window))
}

impl<'n> Nodes<'n> {
    /// Enqueues what goes between this rank and each member within symmetric ranges, which overlap nowhere.
    pub fn pairs_between<'p>(
        &self,
        (to, from): (MemoryRange<'_>, MemoryRange<'_>),
        pair: impl Fn(usize) -> Pair<'p>,
    ) -> Result<()> {
        if self.far.mirror.is_some() {
            return self.pairs(false, pair);
        }
        self.refuse_library(WithoutNccl::Pairs)?;
        self.check_exchange()?;
        let (placement, own) = (self.placement(), self.own());
        let is_near = |&member: &usize| placement.node(member) == self.node();
        let task = |member: usize| {
            let Pair { sent, received } = pair(member);
            // The same at both.
            let longest = bytes_at(sent, 0, u64::MAX).max(bytes_at(received, 0, u64::MAX));
            let window = (longest / LEGS_OF_A_PAIR).clamp(DIRECT, MOST_DIRECT);
            let span =
                move |range: Option<MemoryRange<'_>>, whole: MemoryRange<'_>, at: u64| Span {
                    offset: range.map_or(0, |range| range.offset() - whole.offset() + at),
                    bytes: bytes_at(range, at, window),
                };
            self.windows(longest, window).map(move |(at, _)| {
                self.pair_leg(member, span(sent, from, at), span(received, to, at))
            })
        };
        let whole = std::iter::once((0, 0));
        self.in_turn(
            whole,
            |_, _| {
                let far = (0..self.members()).filter(|member| !is_near(member));
                self.begin_direct_legs(far.flat_map(task), (to, from))?;
                // Beside the legs.
                self.copy_own(pair(own))?;
                let near = (0..self.members()).filter(|&member| is_near(&member) && member != own);
                self.exchange_within(near.map(|member| (member, pair(member))))?;
                Ok((Legs::default(), ()))
            },
            |()| Ok(()),
        )
    }

    /// Enqueues what this rank sends to itself.
    fn copy_own(&self, own: Pair<'_>) -> Result<()> {
        match own {
            Pair {
                sent: Some(from),
                received: Some(to),
            } => self.copy(to, from),
            _ => Ok(()),
        }
    }

    /// Enqueues what goes between this rank and each member. If the call is `in_place`, each part that is received may lie
    /// over the part that is sent to the same member; otherwise what is received overlaps nothing that is sent.
    pub fn pairs<'p>(&self, in_place: bool, pair: impl Fn(usize) -> Pair<'p>) -> Result<()> {
        self.refuse_library(WithoutNccl::Pairs)?;
        self.check_exchange()?;
        let placement = self.placement();
        let (own, here) = (self.own(), self.node());
        let near: Vec<usize> = placement
            .members(here)
            .iter()
            .copied()
            .filter(|&one| one != own)
            .collect();
        let far: Vec<usize> = (0..self.members())
            .filter(|&member| placement.node(member) != here)
            .collect();
        // In place, kernels read from the staging memory too.
        let staged: Vec<usize> = match in_place {
            true => [near.as_slice(), &far].concat(),
            false => far.clone(),
        };
        self.copy_own(pair(own))?;
        if !in_place {
            self.exchange_within(near.iter().map(|&member| (member, pair(member))))?;
        }
        // As many slots on all members of a pair: their windows are the same.
        let most = slot_bytes(self.members() as u64);
        let longest = staged.iter().map(|&member| {
            let Pair { sent, received } = pair(member);
            bytes_at(sent, 0, u64::MAX).max(bytes_at(received, 0, u64::MAX))
        });
        let longest = longest.max().unwrap_or(0);
        for (at, _) in self.windows(longest, most) {
            let slot = |number: usize| number as u64 * most;
            for (number, &member) in staged.iter().enumerate() {
                let sent = pair(member).sent;
                let bytes = bytes_at(sent, at, most);
                if let (Some(from), 1..) = (sent, bytes) {
                    self.copy(self.staged(slot(number), bytes), from.part(at, bytes))?;
                }
            }
            if in_place {
                let pairs = near.iter().enumerate().map(|(number, &member)| {
                    let Pair { sent, received } = pair(member);
                    let sent = sent.map(|_| self.staged(slot(number), bytes_at(sent, at, most)));
                    let bytes = bytes_at(received, at, most);
                    let received = received.map(|to| to.part(at, bytes));
                    (member, Pair { sent, received })
                });
                self.exchange_within(pairs)?;
            }
            let first = staged.len() - far.len();
            let mut calls = Vec::new();
            for (index, &member) in far.iter().enumerate() {
                let number = first + index;
                let Pair { sent, received } = pair(member);
                let (sent, received) = (bytes_at(sent, at, most), bytes_at(received, at, most));
                if sent + received > 0 {
                    let at = |offset, bytes| Span { offset, bytes };
                    let received = at(BUFFER + slot(number), received);
                    calls.push(self.pair_leg(member, at(slot(number), sent), received));
                }
            }
            self.legs(calls)?;
            for (index, &member) in far.iter().enumerate() {
                let received = pair(member).received;
                let bytes = bytes_at(received, at, most);
                if let (Some(to), 1..) = (received, bytes) {
                    let from = self.staged(BUFFER + slot(first + index), bytes);
                    self.copy(to.part(at, bytes), from)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the leg of this rank and a member of another node.
    fn pair_leg(&self, member: usize, sent: Span, received: Span) -> Task {
        let ranks = &self.membership.span.members;
        let number = usize::from(self.own() > member);
        let pair: Arc<[usize]> = match number {
            0 => [ranks[self.own()], ranks[member]].into(),
            _ => [ranks[member], ranks[self.own()]].into(),
        };
        let only = |span| Parts::only(1 - number, 2, span);
        Task {
            members: pair,
            own: number,
            work: Work::Exchange {
                sent: only(sent),
                received: only(received),
            },
        }
    }

    /// Enqueues what goes between this rank and others of its node.
    pub fn exchange_within<'p>(
        &self,
        pairs: impl Iterator<Item = (usize, Pair<'p>)>,
    ) -> Result<()> {
        let local = |member: usize| self.placement().local_rank(member);
        let entries: Vec<_> = pairs
            .flat_map(|(member, Pair { sent, received })| {
                let sent = sent.map(|range| (local(member), true, range));
                let received = received.map(|range| (local(member), false, range));
                sent.into_iter().chain(received)
            })
            .filter(|(_, _, range)| range.bytes() > 0)
            .collect();
        let options = self.options_within(CollectiveOperationCode::EXCHANGE);
        match self.purpose {
            Purpose::Enqueue(queue) => {
                queue.exchange_within(self.name, &options, self.membership, &entries)
            }
            Purpose::Rehearse(rehearsal) if !entries.is_empty() => {
                let choice = self.exchange_choice(self.here())?;
                rehearsal.add_stage(CollectiveOperation::Exchange, u64::MAX, choice);
                Ok(())
            }
            Purpose::Rehearse(_) => Ok(()),
        }
    }

    /// Returns the selector's choice for what `members` ranks of a node exchange.
    fn exchange_choice(&self, members: usize) -> Result<Choice> {
        let options = self.options_within(CollectiveOperationCode::EXCHANGE);
        let query = exchange_query(CollectiveOperationCode::EXCHANGE, members, false);
        let choice = choose(self.world, self.name, &query, &options)?;
        exchange_blocks(self.world, self.name, choice, members).map(|_| choice)
    }

    /// Checks, at all members alike, that the ranks of every node can exchange with the grid that the caller names. Ranks do
    /// not know what others send, so nodes with nothing to send count too.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) with the first node that cannot.
    fn check_exchange(&self) -> Result<()> {
        if !self.names_grid() {
            return Ok(());
        }
        for node in 0..self.placement().nodes() {
            let members = self.placement().members(node).len();
            if members > 1 {
                self.exchange_choice(members)
                    .map_err(|error| self.refused_on(node, error))?;
            }
        }
        Ok(())
    }
}
