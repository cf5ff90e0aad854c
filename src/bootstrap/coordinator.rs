//! The store's decisions: which ranks have joined, which collectives are complete, and which ranks failed.
//!
//! Pure bookkeeping without sockets or clocks of its own. The [server](super::server) feeds it
//! requests and carries out the [`Action`]s it leaves behind.

pub(super) mod action;
mod gather;
mod values;

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::time::{Duration, Instant};

use action::{Action, HOST, SentDescriptor, Token};
use gather::{Contribution, Gathers};
use values::{Getter, Values};

use crate::bootstrap::deadline;
use crate::bootstrap::failure::Failure;
use crate::bootstrap::frame::UNSOLICITED;
use crate::bootstrap::peer::PeerInformation;
use crate::bootstrap::pulse::most_unheard;
use crate::bootstrap::reply::Reply;
use crate::bootstrap::request::{Request, VERSION, payload_limit};

/// Most time for which a rank delays its own notice of a failed rendezvous, so that ranks that come late receive the
/// reason too. Below a second: within that time every rank is to know, this one too.
pub(super) const FAREWELL: Duration = Duration::from_millis(800);

struct Member {
    token: Token,
    peer: PeerInformation,
    request: u64,
    deadline: Instant,
    left: bool,
    /// When the rank is dead if nothing is heard from it; `None` for a rank that has no pulse.
    silent_at: Option<Instant>,
}

pub(super) struct Coordinator {
    world: u32,
    generation: u64,
    boot_id: String,
    /// Whether the ranks may be on several nodes. Then each keeps the connection on which it joins.
    may_span_nodes: bool,
    members: Vec<Option<Member>>,
    ranks: HashMap<Token, u32>,
    /// The ranks that were redirected, by the connection on which they came.
    redirected: HashMap<Token, u32>,
    complete: bool,
    failure: Option<Failure>,
    /// The largest world size that a rank has claimed: so many ranks may come.
    widest: u32,
    /// Ranks that were notified of the failure of the rendezvous, or are dead.
    told: BTreeSet<u32>,
    /// Time at which rank 0 itself is notified of the failure of the rendezvous.
    farewell: Option<Instant>,
    values: Values,
    gathers: Gathers,
    actions: Vec<Action>,
}

impl Coordinator {
    pub(super) fn new(world: u32, generation: u64, boot_id: String) -> Self {
        Self {
            world,
            generation,
            boot_id,
            may_span_nodes: false,
            members: (0..world).map(|_| None).collect(),
            ranks: HashMap::new(),
            redirected: HashMap::new(),
            complete: false,
            failure: None,
            widest: world,
            told: BTreeSet::new(),
            farewell: None,
            values: Values::default(),
            gathers: Gathers::new(world),
            actions: Vec::new(),
        }
    }

    /// Makes the coordinator of a rendezvous that has failed: every rank that comes is notified of `failure`.
    pub(super) fn of_failed(
        world: u32,
        generation: u64,
        boot_id: String,
        failure: Failure,
    ) -> Self {
        Self {
            failure: Some(failure),
            ..Self::new(world, generation, boot_id)
        }
    }

    /// Accepts ranks of any node, each on the connection on which it comes, if they `may_span_nodes`.
    pub(super) fn over_nodes(self, may_span_nodes: bool) -> Self {
        Self {
            may_span_nodes,
            ..self
        }
    }

    /// Returns whether the rank of connection `token` has joined.
    pub(super) fn has_joined(&self, token: Token) -> bool {
        self.ranks.contains_key(&token)
    }

    /// Returns the ranks that may be at the other end of connection `token`, which has proved to be a rank's: the one that
    /// has told its number there, or all that have not joined.
    pub(super) fn ranks_at(&self, token: Token) -> Vec<u32> {
        let told = self.ranks.get(&token).or(self.redirected.get(&token));
        told.map_or_else(|| self.missing(), |&rank| vec![rank])
    }

    /// Returns the ranks that have not joined.
    fn missing(&self) -> Vec<u32> {
        let ranks = 0..self.world;
        ranks
            .filter(|&rank| self.members[rank as usize].is_none())
            .collect()
    }

    /// Takes the server's actions since the last call.
    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        mem::take(&mut self.actions)
    }

    /// Returns when [`Coordinator::expire`] has something to do next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let joins = self
            .members
            .iter()
            .flatten()
            .filter(|_| self.is_gathering())
            .map(|member| member.deadline);
        joins
            .chain(self.gathers.next_deadline())
            .chain(self.values.next_deadline())
            .chain(self.farewell)
            .chain(self.pulses().map(|(_, silent_at)| silent_at))
            .min()
    }

    /// Handles the deadlines that have passed.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.is_gathering()
            && self
                .members
                .iter()
                .flatten()
                .any(|member| member.deadline <= now)
        {
            let missing = self.missing();
            self.fail(Failure::TimedOut { missing }, now);
        }
        if self.farewell.is_some_and(|at| at <= now) {
            self.tell_rank_0();
        }
        self.gathers.expire(now, &mut self.actions);
        self.values.expire(now, &mut self.actions);
    }

    /// Returns the ranks from which something must be heard, and until when.
    fn pulses(&self) -> impl Iterator<Item = (u32, Instant)> {
        let members = self.members.iter().flatten();
        members
            .filter(|member| !member.left && self.failure.is_none())
            .filter_map(|member| Some((member.peer.rank, member.silent_at?)))
    }

    /// Ends the job if nothing was heard from a rank for too long at `now`. Called after all that arrived before `now`
    /// has been handled: a store that was stopped must not blame the ranks.
    pub(super) fn end_silent(&mut self, now: Instant) {
        let silent = self.pulses().find(|&(_, silent_at)| silent_at <= now);
        if let Some((rank, _)) = silent {
            tracing::warn!(
                rank,
                "nothing was heard from this rank for too long: its host has stopped or cannot be reached; raise \
                 SYMMEM_SILENCE if it was only slow"
            );
            self.fail(Failure::Died { rank }, now);
        }
    }

    /// Handles a request that arrived on connection `token`. A rank that joins on a connection without file
    /// descriptors is redirected to `onward`, the abstract Unix socket of that name, unless ranks may be on several nodes.
    ///
    /// # Errors
    /// The reason why the connection must be closed: it sent something that no rank sends.
    pub(super) fn handle(
        &mut self,
        token: Token,
        onward: Option<&str>,
        request: u64,
        message: Request,
        beside: SentDescriptor,
        now: Instant,
    ) -> Result<(), &'static str> {
        let rank = match message {
            Request::Join { .. } | Request::ForeignJoin { .. }
                if !self.ranks.contains_key(&token) =>
            {
                self.join(token, onward, request, message, now);
                return Ok(());
            }
            // The rank was redirected to the Unix socket, or refused.
            Request::Leave if !self.ranks.contains_key(&token) => {
                self.redirected.remove(&token);
                return Ok(());
            }
            _ => *self.ranks.get(&token).ok_or("a request before joining")?,
        };
        // After a failure every rank has been notified, or will be; nothing else is answered.
        if self.failure.is_some() {
            return Ok(());
        }
        let after = |microseconds| deadline::after(now, Duration::from_micros(microseconds));
        let actions = &mut self.actions;
        match message {
            Request::Join { .. } | Request::ForeignJoin { .. } => return Err("a second join"),
            Request::Leave if !self.complete => self.fail(Failure::Left { rank }, now),
            _ if !self.complete => return Err("a request before the rendezvous was complete"),
            Request::Set { key, value } => {
                actions.push(Action::reply(token, request, &Reply::Done));
                self.values.set(key, value, actions);
            }
            Request::Get { key, deadline } => {
                let getter = Getter {
                    token,
                    request,
                    deadline: after(deadline),
                };
                self.values.get(key, getter, actions);
            }
            Request::Add { key, amount } => self.values.add(token, request, key, amount, actions),
            Request::AllGather {
                tag,
                payload,
                deadline,
            } => {
                if payload.len() > payload_limit(self.world) {
                    return Err("a payload over the limit of this world size");
                }
                if let SentDescriptor::Lost = beside {
                    self.fail(Failure::DescriptorLost { rank }, now);
                    return Ok(());
                }
                let descriptor = match beside {
                    SentDescriptor::Descriptor(descriptor) => Some(descriptor),
                    SentDescriptor::Nothing | SentDescriptor::Lost => None,
                };
                let deadline = after(deadline);
                let contribution = Contribution {
                    token,
                    request,
                    payload,
                    descriptor,
                    deadline,
                    waiting: true,
                };
                self.gather(rank, tag, contribution);
            }
            Request::Leave => self.leave(rank, now),
            Request::Fail { reason } => self.fail(Failure::Failed { rank, reason }, now),
            Request::Blame { rank, .. } if rank >= self.world => {
                return Err("blame of a rank that does not exist");
            }
            Request::Blame { rank, died, reason } => {
                let failure = match died {
                    true => Failure::Died { rank },
                    false => Failure::Failed { rank, reason },
                };
                self.fail(failure, now);
            }
            Request::Pulse { silence } => {
                actions.push(Action::reply(token, UNSOLICITED, &Reply::Pulse));
                if let Some(member) = &mut self.members[rank as usize] {
                    let most = most_unheard(Duration::from_micros(silence));
                    member.silent_at = (silence != 0).then(|| deadline::after(now, most));
                }
            }
        }
        Ok(())
    }

    /// Handles the close of connection `token`, for `reason` if the server closed it.
    pub(super) fn disconnect(&mut self, token: Token, reason: Option<String>, now: Instant) {
        if token == HOST {
            // The store is part of rank 0: the others see their connections close.
            self.actions.push(Action::Finish);
            return;
        }
        let Some(rank) = self.ranks.remove(&token) else {
            return;
        };
        if self.members[rank as usize]
            .as_ref()
            .is_some_and(|member| member.left)
        {
            return;
        }
        self.told.insert(rank);
        let failure = match reason {
            Some(reason) => Failure::Failed { rank, reason },
            None => Failure::Died { rank },
        };
        self.fail(failure, now);
    }

    /// Fails the rendezvous for all ranks, if it is not over: a rank that had yet to join cannot any more.
    pub(super) fn fail_rendezvous(&mut self, failure: Failure, now: Instant) {
        if self.is_gathering() {
            self.fail(failure, now);
        }
    }

    /// Returns whether ranks are still awaited.
    fn is_gathering(&self) -> bool {
        !self.complete && self.failure.is_none()
    }

    fn join(
        &mut self,
        token: Token,
        onward: Option<&str>,
        request: u64,
        message: Request,
        now: Instant,
    ) {
        let (rank, world) = match &message {
            Request::Join { peer, world, .. } => (peer.rank, *world),
            Request::ForeignJoin { rank, .. } => (*rank, self.world),
            _ => return,
        };
        self.widest = self.widest.max(world);
        if let Err(failure) = self.admit(token, onward, request, message, now) {
            self.told.insert(rank);
            self.actions.push(Action::reply(
                token,
                UNSOLICITED,
                &Reply::Failure(failure.clone()),
            ));
            self.fail(failure, now);
            self.hasten_farewell();
        }
    }

    fn admit(
        &mut self,
        token: Token,
        onward: Option<&str>,
        request: u64,
        message: Request,
        now: Instant,
    ) -> Result<(), Failure> {
        let (version, world, generation, peer, deadline) = match message {
            Request::Join {
                version,
                world,
                generation,
                peer,
                deadline,
            } => (version, world, generation, peer, deadline),
            Request::ForeignJoin { version, rank } => {
                return Err(Failure::VersionMismatch {
                    rank,
                    version,
                    expected: VERSION,
                });
            }
            _ => return Ok(()),
        };
        debug_assert_eq!(version, VERSION, "the parser tells other versions apart");
        let rank = peer.rank;
        // Rank 0 is accepted after a failure too, and notified last.
        if let Some(failure) = self.failure.as_ref().filter(|_| token != HOST) {
            return Err(failure.clone());
        }
        if world != self.world || rank >= self.world {
            return Err(Failure::WorldMismatch {
                rank,
                world,
                expected: self.world,
            });
        }
        if generation != self.generation {
            return Err(Failure::GenerationMismatch {
                rank,
                generation,
                expected: self.generation,
            });
        }
        if peer.boot_id != self.boot_id && !self.may_span_nodes {
            return Err(Failure::OtherHost { rank });
        }
        let place = &mut self.members[rank as usize];
        if place.is_some() || (rank == 0) != (token == HOST) {
            return Err(Failure::RankTaken { rank });
        }
        if let Some(name) = onward.filter(|_| !self.may_span_nodes) {
            self.redirected.insert(token, rank);
            self.actions.push(Action::reply(
                token,
                request,
                &Reply::Redirect {
                    name: name.to_owned(),
                },
            ));
            return Ok(());
        }
        let deadline = deadline::after(now, Duration::from_micros(deadline));
        *place = Some(Member {
            token,
            peer,
            request,
            deadline,
            left: false,
            silent_at: None,
        });
        self.ranks.insert(token, rank);
        if self.failure.is_some() {
            self.schedule_farewell(now);
        } else if self.members.iter().all(Option::is_some) {
            self.complete = true;
            // First: a welcomed rank may hold the next rendezvous at the same name.
            self.actions.push(Action::StopListening);
            let peers = self
                .members
                .iter()
                .flatten()
                .map(|member| member.peer.clone())
                .collect();
            let welcome = Reply::Welcome {
                may_span_nodes: self.may_span_nodes,
                peers,
            };
            for member in self.members.iter().flatten().rev() {
                self.actions
                    .push(Action::reply(member.token, member.request, &welcome));
            }
        }
        Ok(())
    }

    /// Ends the job: notifies every rank of the reason. The first reason stands.
    fn fail(&mut self, failure: Failure, now: Instant) {
        if self.failure.is_some() {
            return;
        }
        tracing::debug!(?failure, "the store ends the job");
        self.failure = Some(failure.clone());
        self.gathers.clear();
        self.values.forget_getters();
        let notice = Reply::Failure(failure);
        for (&token, &rank) in self.ranks.iter().filter(|(_, rank)| **rank != 0) {
            self.actions
                .push(Action::reply(token, UNSOLICITED, &notice));
            self.told.insert(rank);
        }
        if self.complete {
            self.tell_rank_0();
        } else {
            self.schedule_farewell(now);
        }
    }

    /// Schedules rank 0's notice last, since rank 0 ends the store when it receives it.
    fn schedule_farewell(&mut self, now: Instant) {
        if let Some(Some(rank_0)) = self.members.first() {
            self.farewell = Some(rank_0.deadline.min(now + FAREWELL));
            self.hasten_farewell();
        }
    }

    /// Notifies rank 0 if no other rank can come any more.
    fn hasten_farewell(&mut self) {
        let all_know = (1..self.widest).all(|rank| self.told.contains(&rank));
        if self.farewell.is_some() && all_know {
            self.tell_rank_0();
        }
    }

    fn tell_rank_0(&mut self) {
        self.farewell = None;
        if let (Some(Some(member)), Some(failure)) = (self.members.first(), &self.failure) {
            self.actions.push(Action::reply(
                member.token,
                UNSOLICITED,
                &Reply::Failure(failure.clone()),
            ));
        }
    }

    fn leave(&mut self, rank: u32, now: Instant) {
        if let Some(member) = &mut self.members[rank as usize] {
            member.left = true;
        }
        if rank == 0 {
            // The store ends with rank 0.
            self.fail(Failure::Left { rank }, now);
            self.actions.push(Action::Finish);
            return;
        }
        self.gathers.withdraw(rank);
        self.gathers.end(&Failure::Left { rank }, &mut self.actions);
    }

    fn gather(&mut self, rank: u32, tag: String, contribution: Contribution) {
        if let Some(left) = self.members.iter().flatten().find(|member| member.left) {
            let reply = Reply::Failure(Failure::Left {
                rank: left.peer.rank,
            });
            let (to, request) = (contribution.token, contribution.request);
            self.actions.push(Action::reply(to, request, &reply));
            return;
        }
        self.gathers
            .give(rank, tag, contribution, &mut self.actions);
    }
}

#[cfg(test)]
mod tests;
