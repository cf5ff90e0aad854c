//! All-gathers in progress: which ranks have come, which wait, and when a wait can no longer succeed.

use std::collections::BTreeMap;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use crate::bootstrap::coordinator::action::{Action, Token};
use crate::bootstrap::failure::Failure;
use crate::bootstrap::reply::{Part, Reply};

/// One rank's contribution.
pub(super) struct Contribution {
    /// The connection of its rank.
    pub(super) token: Token,
    pub(super) request: u64,
    pub(super) payload: Vec<u8>,
    pub(super) descriptor: Option<OwnedFd>,
    pub(super) deadline: Instant,
    /// False once its rank was notified that the deadline passed.
    pub(super) waiting: bool,
}

impl Contribution {
    fn refuse(&self, failure: Failure) -> Action {
        Action::reply(self.token, self.request, &Reply::Failure(failure))
    }
}

/// The contributions to one collective, by rank.
type Gather = BTreeMap<u32, Contribution>;

/// The collectives that have not completed, by tag.
pub(super) struct Gathers {
    world: u32,
    open: BTreeMap<String, Gather>,
}

impl Gathers {
    pub(super) fn new(world: u32) -> Self {
        Self {
            world,
            open: BTreeMap::new(),
        }
    }

    fn waiting(&self) -> impl Iterator<Item = &Contribution> {
        let all = self.open.values().flat_map(BTreeMap::values);
        all.filter(|contribution| contribution.waiting)
    }

    /// Returns when [`Gathers::expire`] has something to do next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting()
            .map(|contribution| contribution.deadline)
            .min()
    }

    /// Answers the ranks whose deadlines have passed with the ranks that did not come.
    pub(super) fn expire(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let world = self.world;
        self.open.retain(|_, gather| {
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
                // All ranks came, but some had given up before the last arrived.
                missing = gather
                    .iter()
                    .filter(|(_, part)| !part.waiting)
                    .map(|(rank, _)| *rank)
                    .collect();
            }
            for rank in expired {
                if let Some(part) = gather.get_mut(&rank) {
                    part.waiting = false;
                    actions.push(part.refuse(Failure::TimedOut {
                        missing: missing.clone(),
                    }));
                }
            }
            gather.values().any(|part| part.waiting)
        });
    }

    /// Takes the contribution of `rank` to the collective `tag`; answers all ranks if it was the last to come.
    pub(super) fn give(
        &mut self,
        rank: u32,
        tag: String,
        contribution: Contribution,
        actions: &mut Vec<Action>,
    ) {
        // A rank is in one collective at a time: it gave up on any earlier one.
        self.withdraw(rank);
        let gather = self.open.entry(tag.clone()).or_default();
        gather.insert(rank, contribution);
        if gather.values().filter(|part| part.waiting).count() == self.world as usize {
            if let Some(gather) = self.open.remove(&tag) {
                complete(gather, actions);
            }
            return;
        }
        if self.waiting().count() == self.world as usize {
            self.break_deadlock(actions);
        }
    }

    /// Withdraws the contribution of `rank` to a collective that has not completed.
    pub(super) fn withdraw(&mut self, rank: u32) {
        self.open.retain(|_, gather| {
            gather.remove(&rank);
            gather.values().any(|part| part.waiting)
        });
    }

    /// Drops all collectives; the waiting ranks are notified by other means.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// Ends all collectives, with `failure` for every rank that waits.
    pub(super) fn end(&mut self, failure: &Failure, actions: &mut Vec<Action>) {
        for contribution in self.waiting() {
            actions.push(contribution.refuse(failure.clone()));
        }
        self.clear();
    }

    /// Ends a deadlock, in which all ranks wait, but not all for the same collective: tells each rank of one that
    /// waits elsewhere.
    fn break_deadlock(&mut self, actions: &mut Vec<Action>) {
        let gathers = mem::take(&mut self.open);
        let waiting: Vec<(u32, &Contribution, &String)> = gathers
            .iter()
            .flat_map(|(tag, gather)| gather.iter().map(move |(rank, part)| (*rank, part, tag)))
            .filter(|(_, part, _)| part.waiting)
            .collect();
        for &(_, part, tag) in &waiting {
            if let Some((other, _, elsewhere)) =
                waiting.iter().find(|(_, _, elsewhere)| *elsewhere != tag)
            {
                actions.push(part.refuse(Failure::TagMismatch {
                    rank: *other,
                    tag: (*elsewhere).clone(),
                }));
            }
        }
    }
}

/// Answers all ranks of a collective that every rank has come to.
fn complete(gather: Gather, actions: &mut Vec<Action>) {
    let mut parts = Vec::with_capacity(gather.len());
    let mut descriptors = Vec::new();
    let mut waiting = Vec::with_capacity(gather.len());
    for contribution in gather.into_values() {
        waiting.push((contribution.token, contribution.request));
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
    for (to, request) in waiting.into_iter().rev() {
        actions.push(Action::Send {
            to,
            frame: reply.encode(request, count),
            descriptors: descriptors.clone(),
        });
    }
}
