//! All-gathers in progress: who has come, who waits, and when nobody can be waited for any more.

use std::collections::BTreeMap;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use crate::bootstrap::coordinator::{Action, Coordinator, Token, send};
use crate::bootstrap::message::{Failure, Part, Reply};

/// What one rank gave.
pub(super) struct Contribution {
    pub(super) request: u64,
    pub(super) payload: Vec<u8>,
    pub(super) descriptor: Option<OwnedFd>,
    pub(super) deadline: Instant,
    /// False once its rank was told that the deadline passed.
    pub(super) waiting: bool,
}

/// The contributions to one collective, by rank.
pub(super) type Gather = BTreeMap<u32, Contribution>;

impl Coordinator {
    pub(super) fn expire_gathers(&mut self, now: Instant) {
        let (world, members, actions) = (self.world, &self.members, &mut self.actions);
        self.gathers.retain(|_, gather| {
            let expired: Vec<u32> = gather
                .iter()
                .filter(|(_, part)| part.waiting && part.deadline <= now)
                .map(|(rank, _)| *rank)
                .collect();
            if expired.is_empty() {
                return true;
            }
            let mut missing: Vec<u32> = (0..world)
                .filter(|rank| !gather.contains_key(rank))
                .collect();
            if missing.is_empty() {
                // All came once, but some had given up before the last arrived.
                missing = gather
                    .iter()
                    .filter(|(_, part)| !part.waiting)
                    .map(|(rank, _)| *rank)
                    .collect();
            }
            for rank in expired {
                if let (Some(part), Some(member)) = (gather.get_mut(&rank), &members[rank as usize])
                {
                    part.waiting = false;
                    let failure = Failure::TimedOut {
                        missing: missing.clone(),
                    };
                    actions.push(send(member.token, part.request, &Reply::Failure(failure)));
                }
            }
            gather.values().any(|part| part.waiting)
        });
    }

    pub(super) fn gather(
        &mut self,
        rank: u32,
        token: Token,
        tag: String,
        contribution: Contribution,
    ) {
        if let Some(left) = self.members.iter().flatten().find(|member| member.left) {
            let failure = Failure::Left {
                rank: left.peer.rank,
            };
            self.actions
                .push(send(token, contribution.request, &Reply::Failure(failure)));
            return;
        }
        // A rank is in one collective at a time: it gave up on any earlier one.
        self.withdraw(rank);
        let gather = self.gathers.entry(tag.clone()).or_default();
        gather.insert(rank, contribution);
        if gather.values().filter(|part| part.waiting).count() == self.world as usize {
            if let Some(gather) = self.gathers.remove(&tag) {
                self.complete_gather(gather);
            }
            return;
        }
        let waiting = self
            .gathers
            .values()
            .flat_map(BTreeMap::values)
            .filter(|part| part.waiting)
            .count();
        if waiting == self.world as usize {
            self.break_deadlock();
        }
    }

    /// Take back what `rank` gave to a collective that has not completed.
    pub(super) fn withdraw(&mut self, rank: u32) {
        self.gathers.retain(|_, gather| {
            gather.remove(&rank);
            gather.values().any(|part| part.waiting)
        });
    }

    pub(super) fn complete_gather(&mut self, gather: Gather) {
        let mut parts = Vec::with_capacity(gather.len());
        let mut descriptors = Vec::new();
        let mut waiting = Vec::with_capacity(gather.len());
        for (rank, contribution) in gather {
            waiting.push((rank, contribution.request));
            let has_descriptor = contribution.descriptor.is_some();
            descriptors.extend(contribution.descriptor);
            parts.push(Part {
                payload: contribution.payload,
                has_descriptor,
            });
        }
        let reply = Reply::Gathered { parts };
        let count = descriptors.len() as u16; // at most MAX_RANKS
        let descriptors = (count > 0).then(|| Arc::new(descriptors));
        // Rank 0 comes last: it may end its process, and the store, on its answer.
        for (rank, request) in waiting.into_iter().rev() {
            if let Some(member) = &self.members[rank as usize] {
                let frame = reply.encode(request, count);
                self.actions.push(Action::Send {
                    to: member.token,
                    frame,
                    descriptors: descriptors.clone(),
                });
            }
        }
    }

    /// All ranks wait for collectives that cannot complete: tell each of one that waits elsewhere.
    pub(super) fn break_deadlock(&mut self) {
        let gathers = mem::take(&mut self.gathers);
        let waiting: Vec<(u32, u64, &String)> = gathers
            .iter()
            .flat_map(|(tag, gather)| gather.iter().map(move |(rank, part)| (*rank, part, tag)))
            .filter(|(_, part, _)| part.waiting)
            .map(|(rank, part, tag)| (rank, part.request, tag))
            .collect();
        for &(rank, request, tag) in &waiting {
            if let Some((other, _, elsewhere)) =
                waiting.iter().find(|(_, _, elsewhere)| *elsewhere != tag)
            {
                let failure = Failure::TagMismatch {
                    rank: *other,
                    tag: (*elsewhere).clone(),
                };
                self.answer(rank, request, Reply::Failure(failure));
            }
        }
    }
}
