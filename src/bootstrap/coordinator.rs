//! What the store decides: who has joined, which collectives are complete, and who failed.
//!
//! Pure bookkeeping without sockets or clocks of its own. The [server](super::server) feeds it
//! requests and carries out the [`Action`]s it leaves behind.

mod gather;

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gather::{Contribution, Gather};

use crate::bootstrap::message::{Failure, PeerInformation, Reply, Request, UNSOLICITED, VERSION};

/// Names a connection of the server.
pub(super) type Token = u64;

/// The connection of the rank 0 whose process holds the store.
pub(super) const HOST: Token = 0;

/// How long rank 0 holds back news of a failed rendezvous from itself, so that ranks which come
/// late are told the reason too before the store ends with rank 0.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// What the server is to do.
#[derive(Debug)]
pub(super) enum Action {
    /// Send a frame, with descriptors beside it.
    Send {
        to: Token,
        frame: Vec<u8>,
        descriptors: Option<Arc<Vec<OwnedFd>>>,
    },
    /// Accept nobody any more.
    StopListening,
    /// Send what is queued, then end.
    Finish,
}

/// By which way a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// A Unix socket: the kernel vouched for the user, and descriptors can travel.
    Unix,
    /// TCP: good for finding the Unix socket only.
    Tcp,
}

/// What came beside a request.
#[derive(Debug)]
pub(super) enum Beside {
    Nothing,
    Descriptor(OwnedFd),
    /// The kernel dropped it.
    Lost,
}

struct Member {
    token: Token,
    peer: PeerInformation,
    request: u64,
    deadline: Instant,
    left: bool,
}

struct Getter {
    token: Token,
    request: u64,
    deadline: Instant,
}

pub(super) struct Coordinator {
    world: u32,
    generation: u64,
    boot_id: String,
    /// The abstract Unix socket that ranks which come by TCP are sent to.
    name: String,
    members: Vec<Option<Member>>,
    ranks: HashMap<Token, u32>,
    complete: bool,
    failure: Option<Failure>,
    /// Told of the failure of the rendezvous, or dead.
    told: u32,
    /// When rank 0 itself is told of the failure of the rendezvous.
    farewell: Option<Instant>,
    values: HashMap<String, Vec<u8>>,
    getters: HashMap<String, Vec<Getter>>,
    gathers: BTreeMap<String, Gather>,
    actions: Vec<Action>,
}

impl Coordinator {
    pub(super) fn new(world: u32, generation: u64, boot_id: String, name: String) -> Self {
        Self {
            world,
            generation,
            boot_id,
            name,
            members: (0..world).map(|_| None).collect(),
            ranks: HashMap::new(),
            complete: false,
            failure: None,
            told: 0,
            farewell: None,
            values: HashMap::new(),
            getters: HashMap::new(),
            gathers: BTreeMap::new(),
            actions: Vec::new(),
        }
    }

    /// What the server is to do since the last call.
    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        mem::take(&mut self.actions)
    }

    /// When [`Coordinator::expire`] has something to do next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let joins = self
            .members
            .iter()
            .flatten()
            .filter(|_| self.is_gathering())
            .map(|member| member.deadline);
        let gathers = self.gathers.values().flat_map(BTreeMap::values);
        let gathers = gathers
            .filter(|contribution| contribution.waiting)
            .map(|contribution| contribution.deadline);
        let getters = self
            .getters
            .values()
            .flatten()
            .map(|getter| getter.deadline);
        joins
            .chain(gathers)
            .chain(getters)
            .chain(self.farewell)
            .min()
    }

    /// Act on the deadlines that have passed.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.farewell.is_some_and(|at| at <= now) {
            self.tell_rank_0();
        }
        if self.is_gathering()
            && self
                .members
                .iter()
                .flatten()
                .any(|member| member.deadline <= now)
        {
            let missing = (0..self.world)
                .filter(|&rank| self.members[rank as usize].is_none())
                .collect();
            self.fail(Failure::TimedOut { missing }, now);
        }
        self.expire_gathers(now);
        self.getters.retain(|_, getters| {
            getters.retain(|getter| {
                if getter.deadline <= now {
                    let failure = Failure::TimedOut {
                        missing: Vec::new(),
                    };
                    self.actions
                        .push(send(getter.token, getter.request, &Reply::Failure(failure)));
                }
                getter.deadline > now
            });
            !getters.is_empty()
        });
    }

    /// Act on a request that arrived by connection `token`.
    ///
    /// # Errors
    /// A reason why the connection must be closed: it sent what no rank would.
    pub(super) fn handle(
        &mut self,
        token: Token,
        transport: Transport,
        request: u64,
        message: Request,
        beside: Beside,
        now: Instant,
    ) -> Result<(), &'static str> {
        let rank = match message {
            Request::Join { .. } | Request::ForeignJoin { .. }
                if !self.ranks.contains_key(&token) =>
            {
                self.join(token, transport, request, message, now);
                return Ok(());
            }
            // It was sent on to the Unix socket, or refused.
            Request::Leave if !self.ranks.contains_key(&token) => return Ok(()),
            _ => *self.ranks.get(&token).ok_or("a request before joining")?,
        };
        // After a failure every rank has been told, or will be: nothing else is answered.
        if self.failure.is_some() {
            return Ok(());
        }
        let after = |microseconds| {
            now.checked_add(Duration::from_micros(microseconds))
                .unwrap_or(now + FOREVER)
        };
        match message {
            Request::Join { .. } | Request::ForeignJoin { .. } => return Err("a second join"),
            Request::Leave if !self.complete => self.fail(Failure::Left { rank }, now),
            _ if !self.complete => return Err("a request before the rendezvous was complete"),
            Request::Set { key, value } => {
                self.actions.push(send(token, request, &Reply::Done));
                self.set(key, value);
            }
            Request::Get { key, deadline } => match self.values.get(&key) {
                Some(bytes) => {
                    self.actions.push(send(
                        token,
                        request,
                        &Reply::Value {
                            bytes: bytes.clone(),
                        },
                    ));
                }
                None => {
                    let getter = Getter {
                        token,
                        request,
                        deadline: after(deadline),
                    };
                    self.getters.entry(key).or_default().push(getter);
                }
            },
            Request::Add { key, amount } => self.add(token, request, key, amount),
            Request::AllGather {
                tag,
                payload,
                deadline,
            } => {
                if let Beside::Lost = beside {
                    self.fail(Failure::DescriptorLost { rank }, now);
                    return Ok(());
                }
                let descriptor = match beside {
                    Beside::Descriptor(descriptor) => Some(descriptor),
                    Beside::Nothing | Beside::Lost => None,
                };
                let deadline = after(deadline);
                let contribution = Contribution {
                    request,
                    payload,
                    descriptor,
                    deadline,
                    waiting: true,
                };
                self.gather(rank, token, tag, contribution);
            }
            Request::Leave => self.leave(rank, now),
            Request::Fail { reason } => self.fail(Failure::Failed { rank, reason }, now),
        }
        Ok(())
    }

    /// Connection `token` closed, for `reason` if it was the server that closed it.
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
        self.told += 1;
        let failure = match reason {
            Some(reason) => Failure::Failed { rank, reason },
            None => Failure::Died { rank },
        };
        self.fail(failure, now);
    }

    /// Whether ranks are still awaited.
    fn is_gathering(&self) -> bool {
        !self.complete && self.failure.is_none()
    }

    fn join(
        &mut self,
        token: Token,
        transport: Transport,
        request: u64,
        message: Request,
        now: Instant,
    ) {
        if let Err(failure) = self.admit(token, transport, request, message, now) {
            self.told += 1;
            self.actions
                .push(send(token, UNSOLICITED, &Reply::Failure(failure.clone())));
            self.fail(failure, now);
            self.hasten_farewell();
        }
    }

    fn admit(
        &mut self,
        token: Token,
        transport: Transport,
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
        // The host is let in after a failure too, and told last.
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
        if peer.boot_id != self.boot_id {
            return Err(Failure::OtherHost { rank });
        }
        let place = &mut self.members[rank as usize];
        if place.is_some() || (rank == 0) != (token == HOST) {
            return Err(Failure::RankTaken { rank });
        }
        if transport == Transport::Tcp {
            self.actions.push(send(
                token,
                request,
                &Reply::Redirect {
                    name: self.name.clone(),
                },
            ));
            return Ok(());
        }
        let deadline = now
            .checked_add(Duration::from_micros(deadline))
            .unwrap_or(now + FOREVER);
        *place = Some(Member {
            token,
            peer,
            request,
            deadline,
            left: false,
        });
        self.ranks.insert(token, rank);
        if self.failure.is_some() {
            self.schedule_farewell(now);
        } else if self.members.iter().all(Option::is_some) {
            self.complete = true;
            // First of all: a rank that is welcomed may hold the next rendezvous at the same name.
            self.actions.push(Action::StopListening);
            let peers = self
                .members
                .iter()
                .flatten()
                .map(|member| member.peer.clone())
                .collect();
            let welcome = Reply::Welcome { peers };
            for member in self.members.iter().flatten().rev() {
                self.actions
                    .push(send(member.token, member.request, &welcome));
            }
        }
        Ok(())
    }

    /// Nothing can succeed any more: tell every rank why. The first reason stands.
    fn fail(&mut self, failure: Failure, now: Instant) {
        if self.failure.is_some() {
            return;
        }
        tracing::debug!(?failure, "the store fails");
        self.failure = Some(failure.clone());
        self.gathers.clear();
        self.getters.clear();
        let is_over = matches!(failure, Failure::TimedOut { .. });
        let notice = Reply::Failure(failure);
        for (&token, _) in self.ranks.iter().filter(|(_, rank)| **rank != 0) {
            self.actions.push(send(token, UNSOLICITED, &notice));
            self.told += 1;
        }
        if self.complete || is_over {
            self.tell_rank_0();
        } else {
            self.schedule_farewell(now);
        }
    }

    /// Rank 0 ends the store when it hears of a failure, so it hears last.
    fn schedule_farewell(&mut self, now: Instant) {
        if let Some(Some(rank_0)) = self.members.first() {
            self.farewell = Some(rank_0.deadline.min(now + FAREWELL));
            self.hasten_farewell();
        }
    }

    fn hasten_farewell(&mut self) {
        if self.told + 1 >= self.world && self.farewell.is_some() {
            self.tell_rank_0();
        }
    }

    fn tell_rank_0(&mut self) {
        self.farewell = None;
        if let (Some(Some(member)), Some(failure)) = (self.members.first(), &self.failure) {
            self.actions.push(send(
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
        self.withdraw(rank);
        let gathers = mem::take(&mut self.gathers);
        for (waiting, part) in gathers.values().flatten().filter(|(_, part)| part.waiting) {
            self.answer(
                *waiting,
                part.request,
                Reply::Failure(Failure::Left { rank }),
            );
        }
    }

    fn set(&mut self, key: String, value: Vec<u8>) {
        for getter in self.getters.remove(&key).unwrap_or_default() {
            let reply = Reply::Value {
                bytes: value.clone(),
            };
            self.actions
                .push(send(getter.token, getter.request, &reply));
        }
        self.values.insert(key, value);
    }

    fn add(&mut self, token: Token, request: u64, key: String, amount: i64) {
        let before = match self.values.get(&key) {
            None => Some(0),
            Some(bytes) => bytes.as_slice().try_into().ok().map(i64::from_le_bytes),
        };
        let Some(before) = before else {
            self.actions.push(send(
                token,
                request,
                &Reply::Failure(Failure::NotACounter { key }),
            ));
            return;
        };
        let value = before.wrapping_add(amount);
        self.actions
            .push(send(token, request, &Reply::Sum { value }));
        self.set(key, value.to_le_bytes().to_vec());
    }

    fn answer(&mut self, rank: u32, request: u64, reply: Reply) {
        if let Some(member) = &self.members[rank as usize] {
            self.actions.push(send(member.token, request, &reply));
        }
    }
}

/// Stands for deadlines that no clock can express.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

fn send(to: Token, request: u64, reply: &Reply) -> Action {
    Action::Send {
        to,
        frame: reply.encode(request, 0),
        descriptors: None,
    }
}

#[cfg(test)]
mod tests;
