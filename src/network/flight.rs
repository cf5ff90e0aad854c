//! A command under way, stage by stage.
//!
//! GPU memory is staged: a small put is copied to pinned memory before its message, a large one goes in pieces.

use super::barrier;
use super::command::{Action, Command};
use super::copies::Ticket;
use super::fault::{Cause, Fault};
use super::legs;
use super::message::{Header, NO_CHANNEL, SMALL, kind};
use super::staged;
use super::staging::of_backend;
use super::wires::Wires;
use crate::base::lock::lock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use symmem_ucx::{Operation, Poll};

/// A command under way.
pub struct Flight {
    /// Its number in its queue.
    pub number: u32,
    /// The command.
    pub command: Command,
    /// What it waits for.
    pub stage: Stage,
}

/// What a command under way waits for.
pub enum Stage {
    /// The bytes are on their way; complete once the flush is.
    Put {
        operation: Option<Operation>,
        flush: Option<u64>,
    },
    /// The pieces are on their way.
    Pieces(staged::Put),
    /// Few bytes wait for a slot of pinned memory, or are copied into it.
    Load(Option<(u64, Ticket)>),
    /// The message waits until it may be sent. Its bytes, if it has any, are in this slot, if they are staged.
    Message(Option<u64>),
    /// Complete once the peer has acknowledged this many messages.
    Acknowledge(u64),
    Get(Operation),
    /// The pieces of a get are on their way.
    Got(staged::Get),
    /// Complete once the answer to this request has come.
    Answer(u64),
    /// An answer waits for a slot of pinned memory, or is copied from it.
    Store(u64, Option<(u64, Ticket)>),
    Barrier(barrier::Run),
    Legs(Vec<legs::Run>),
    Done,
}

/// What the commands before one still have to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    Nothing,
    /// Messages to this peer are under way.
    Messages(usize),
    Other,
}

/// Names the command that a fault ends.
pub fn about(fault: Fault, command: &Command) -> Fault {
    Fault {
        operation: command.operation,
        bytes: command.bytes(),
        ..fault
    }
}

fn left(peer: usize, command: &Command) -> Fault {
    Fault {
        peer,
        operation: command.operation,
        bytes: command.bytes(),
        cause: Cause::Left,
    }
}

/// Begins a command.
///
/// # Errors
/// UCX's; the peer has left.
pub fn first_stage(wires: &mut Wires, command: &Command) -> Result<Stage, Fault> {
    if let Action::Put { peer, .. } | Action::Get { peer, .. } | Action::Update { peer, .. } =
        command.action
        && lock(&wires.inbox).has_departed(peer)
    {
        return Err(left(peer, command));
    }
    Ok(match command.action {
        Action::Put {
            peer,
            to,
            from,
            bytes,
            ..
        } if wires.is_staged() && bytes > 0 => match bytes <= SMALL {
            true => Stage::Load(None),
            false => Stage::Pieces(staged::Put::new(peer, to, from, bytes)),
        },
        Action::Put { bytes, channel, .. } if bytes <= SMALL => match channel {
            Some(_) => Stage::Message(None),
            None => send_put(wires, command, None)?,
        },
        Action::Get {
            peer,
            from,
            to,
            bytes,
        } if wires.is_staged() => Stage::Got(staged::Get::new(peer, from, to, bytes)),
        Action::Put {
            peer,
            to,
            from,
            bytes,
            ..
        } => Stage::Put {
            // SAFETY: the queue keeps the source, and the registration the peer's copy, until the command is complete;
            // the range was checked against the allocation, which has the same size on all ranks.
            operation: Some(unsafe { wires.put(peer, (to.number, to.offset), from, bytes)? }),
            flush: None,
        },
        Action::Get {
            peer,
            from,
            to,
            bytes,
        } => {
            // SAFETY: as for a put; commands that use the destination wait.
            let get = unsafe { wires.get(peer, (from.number, from.offset), to, bytes)? };
            Stage::Get(get)
        }
        Action::Update {
            peer,
            word,
            update,
            bits,
            operand,
            compare,
            ..
        } => {
            let request = wires.next_request();
            let header = Header {
                kind: kind::UPDATE,
                value: bits << 16 | update.0,
                number: word.number,
                offset: word.offset,
                request,
                operand,
                compare,
                ..Header::default()
            };
            wires.send(peer, header, None)?;
            Stage::Answer(request)
        }
        Action::Barrier { channel } => Stage::Barrier(barrier::Run::begin(wires, channel)),
        Action::Legs(ref calls) => {
            let begin = |call| legs::Run::begin(wires, call);
            Stage::Legs(calls.iter().map(begin).collect())
        }
    })
}

impl Flight {
    /// Returns the peer of a put that no flush covers yet, and whether a signal waits for it.
    pub fn unflushed(&self) -> Option<(usize, bool)> {
        match (&self.stage, &self.command.action) {
            (Stage::Put { flush: None, .. }, Action::Put { peer, channel, .. }) => {
                Some((*peer, channel.is_some()))
            }
            _ => None,
        }
    }

    /// Returns the next stage, if it is reached. `starved`: an earlier command waits for a slot of pinned memory. A later
    /// one then takes none, since it may have to keep it until the earlier one is complete.
    pub fn step(
        &mut self,
        wires: &mut Wires,
        earlier: Earlier,
        starved: &mut bool,
        has_landed: impl Fn(u64) -> bool,
    ) -> Result<Option<Stage>, Fault> {
        let command = &self.command;
        let peer = command.peer_or(wires.rank);
        let failed = |failure| about(Fault::of_connection(peer, failure), command);
        match &mut self.stage {
            Stage::Done => Ok(None),
            Stage::Put { operation, flush } => {
                match operation.as_ref().map(Operation::poll) {
                    Some(Poll::Pending) => return Ok(None),
                    Some(Poll::Failed(failure)) => return Err(failed(failure)),
                    Some(Poll::Done) => *operation = None,
                    None => {}
                }
                let landed = flush.is_some_and(has_landed);
                Ok(landed.then_some(match command.signals() {
                    true => Stage::Message(None),
                    false => Stage::Done,
                }))
            }
            Stage::Pieces(put) => {
                let sent = put.poll(wires).map_err(|fault| about(fault, command))?;
                Ok(match sent {
                    None if lock(&wires.inbox).has_departed(peer) => {
                        return Err(left(peer, command));
                    }
                    None => None,
                    Some(_) if command.signals() => Some(Stage::Message(None)),
                    Some(count) => Some(Stage::Acknowledge(count)),
                })
            }
            Stage::Load(None) => {
                let Action::Put { from, bytes, .. } = command.action else {
                    return Ok(Some(Stage::Done));
                };
                let staging = wires.staging()?;
                let slot = (!*starved).then(|| staging.small.take()).flatten();
                *starved |= slot.is_none();
                let Some(slot) = slot else { return Ok(None) };
                // SAFETY: the queue keeps the source until the command is complete; the slot was taken above.
                let loaded = unsafe { staging.load(slot, from, bytes) }
                    .map_err(|failure| about(of_backend(peer, failure), command))?;
                Ok(Some(Stage::Load(Some((slot, loaded)))))
            }
            Stage::Load(Some((slot, loaded))) => {
                let slot = *slot;
                if !wires.staging()?.copies.is_done(*loaded) {
                    return Ok(None);
                }
                match command.signals() {
                    true => Ok(Some(Stage::Message(Some(slot)))),
                    false => send_put(wires, command, Some(slot))
                        .map_err(|fault| about(fault, command))
                        .map(Some),
                }
            }
            Stage::Message(slot) => {
                let may_send = match earlier {
                    Earlier::Nothing => true,
                    Earlier::Messages(to) => to == peer,
                    Earlier::Other => false,
                };
                if !may_send {
                    return Ok(None);
                }
                send_put(wires, command, *slot)
                    .map_err(|fault| about(fault, command))
                    .map(Some)
            }
            Stage::Acknowledge(count) => {
                let inbox = lock(&wires.inbox);
                if inbox.acknowledged(peer) >= *count {
                    return Ok(Some(Stage::Done));
                }
                match inbox.has_departed(peer) {
                    true => Err(left(peer, command)),
                    false => Ok(None),
                }
            }
            Stage::Get(operation) => match operation.poll() {
                Poll::Pending => Ok(None),
                Poll::Done => Ok(Some(Stage::Done)),
                Poll::Failed(failure) => Err(failed(failure)),
            },
            Stage::Got(get) => match get.poll(wires).map_err(|fault| about(fault, command))? {
                true => Ok(Some(Stage::Done)),
                false if lock(&wires.inbox).has_departed(peer) => Err(left(peer, command)),
                false => Ok(None),
            },
            Stage::Answer(request) => {
                let mut inbox = lock(&wires.inbox);
                let Some(old) = inbox.take_answer(*request) else {
                    return match inbox.has_departed(peer) {
                        true => Err(left(peer, command)),
                        false => Ok(None),
                    };
                };
                drop(inbox);
                if let Action::Update {
                    bits,
                    result: Some(result),
                    ..
                } = command.action
                {
                    if wires.is_staged() {
                        return Ok(Some(Stage::Store(old, None)));
                    }
                    store(result, bits, old);
                }
                Ok(Some(Stage::Done))
            }
            Stage::Store(old, None) => {
                let Action::Update {
                    bits,
                    result: Some(result),
                    ..
                } = command.action
                else {
                    return Ok(Some(Stage::Done));
                };
                let staging = wires.staging()?;
                let Some(slot) = staging.small.take() else {
                    return Ok(None);
                };
                // SAFETY: the queue keeps the word until the command is complete; the slot was taken above.
                let stored = unsafe {
                    staging.pinned.fill(slot, &old.to_ne_bytes());
                    staging.store(result, slot, u64::from(bits / 8))
                };
                let stored = stored.map_err(|failure| about(of_backend(peer, failure), command))?;
                Ok(Some(Stage::Store(*old, Some((slot, stored)))))
            }
            Stage::Store(_, Some((slot, stored))) => {
                let staging = wires.staging()?;
                if !staging.copies.is_done(*stored) {
                    return Ok(None);
                }
                staging.small.give_back(*slot);
                Ok(Some(Stage::Done))
            }
            Stage::Barrier(run) => Ok(run.poll(wires)?.then_some(Stage::Done)),
            Stage::Legs(runs) => {
                let Action::Legs(calls) = &command.action else {
                    return Ok(Some(Stage::Done));
                };
                let mut done = true;
                for (run, call) in runs.iter_mut().zip(calls) {
                    done &= run
                        .poll(wires, call)
                        .map_err(|fault| about(fault, command))?;
                }
                Ok(done.then_some(Stage::Done))
            }
        }
    }
}

/// Sends a put's signal, if it has one, and its bytes if they are few: from a slot of pinned memory if they are staged.
fn send_put(wires: &mut Wires, command: &Command, slot: Option<u64>) -> Result<Stage, Fault> {
    let Action::Put {
        peer,
        to,
        from,
        bytes,
        channel,
    } = command.action
    else {
        return Ok(Stage::Done);
    };
    let value = match channel {
        Some(channel) => wires.next_signal(peer, channel)?,
        None => 0,
    };
    let header = Header {
        kind: kind::PUT,
        channel: channel.unwrap_or(NO_CHANNEL),
        value,
        number: to.number,
        offset: to.offset,
        ..Header::default()
    };
    let data = match slot {
        Some(slot) => Some(wires.staging()?.pinned.host(slot)),
        None => (bytes <= SMALL && bytes > 0).then_some(from),
    };
    let data = data.map(|address| (address, bytes as usize));
    let sent = wires.send_acknowledged(peer, header, data)?;
    if let Some(slot) = slot {
        wires.staging()?.small.give_back(slot);
    }
    Ok(Stage::Acknowledge(sent))
}

/// Stores an update's result.
fn store(result: u64, bits: u32, value: u64) {
    let address = std::ptr::with_exposed_provenance_mut::<u8>(result as usize);
    // SAFETY: the queue keeps the word, which is aligned, until the command is complete.
    unsafe {
        match bits {
            64 => AtomicU64::from_ptr(address.cast()).store(value, Ordering::Release),
            _ => AtomicU32::from_ptr(address.cast()).store(value as u32, Ordering::Release),
        }
    }
}
