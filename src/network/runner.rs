//! Executes the commands of one queue, or of one run of a graph, in order.
//!
//! Puts to disjoint memory run beside each other, and so do gets; everything else waits for what is before it. A
//! signal is a message that is sent once all earlier puts have arrived, except those that travel in earlier messages to
//! the same peer: messages arrive in order.

use super::command::Command;
use super::fault::{Cause, Fault};
use super::flight::{Earlier, Flight, Stage, about, first_stage};
use super::legs;
use super::wires::Wires;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use symmem_ucx::{Operation, Poll};

/// Most commands under way at once.
const WINDOW: usize = 256;
/// Puts after which a further flush is started while one is under way.
const FLUSH_EVERY: usize = 16;
/// A transfer slower than this is taken for one that does not progress.
const SLOWEST_BYTES_PER_SECOND: u64 = 1 << 20;

struct Flush {
    number: u64,
    peer: usize,
    operation: Operation,
}

/// The commands of one queue that have been started.
#[derive(Default)]
pub struct Runner {
    ready: VecDeque<(u32, Command)>,
    flights: VecDeque<Flight>,
    flushes: Vec<Flush>,
    last_flush: u64,
    /// Time of the last progress, while commands are under way.
    moved: Option<Instant>,
    /// Number of the last command that is complete, with all before it.
    done: u32,
}

impl Runner {
    /// Adds a command whose start the stream has signaled.
    pub fn push(&mut self, number: u32, command: Command) {
        self.ready.push_back((number, command));
    }

    /// Returns the number of the last command that is complete, with all before it.
    pub fn done(&self) -> u32 {
        self.done
    }

    /// Returns whether all commands are complete.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.flights.is_empty()
    }

    /// Advances the commands as far as possible without waiting. Returns whether anything happened.
    ///
    /// # Errors
    /// The first failure of a command, or the first deadline that has passed.
    pub fn advance(&mut self, wires: &mut Wires) -> Result<bool, Fault> {
        if self.is_idle() {
            return Ok(false);
        }
        let polled = self.poll(wires)?;
        let begun = self.begin(wires)?;
        self.flush(wires)?;
        let moved = polled || begun;
        let now = Instant::now();
        match (moved, self.moved) {
            (true, _) | (false, None) => self.moved = Some(now),
            (false, Some(since)) => self.check_deadline(wires, now - since)?,
        }
        if self.is_idle() {
            self.moved = None;
        }
        Ok(moved)
    }

    /// Advances the commands under way.
    fn poll(&mut self, wires: &mut Wires) -> Result<bool, Fault> {
        let mut moved = false;
        let mut fault = None;
        self.flushes.retain(|flush| match flush.operation.poll() {
            Poll::Pending => true,
            Poll::Done => {
                moved = true;
                false
            }
            Poll::Failed(failure) => {
                fault.get_or_insert(Fault::of_connection(flush.peer, failure));
                true
            }
        });
        if let Some(fault) = fault {
            return Err(self.blame(fault));
        }
        let flushes = &self.flushes;
        let mut earlier = Earlier::Nothing;
        let mut starved = false;
        for flight in &mut self.flights {
            let has_landed = |number| flushes.iter().all(|flush| flush.number != number);
            while let Some(next) = flight.step(wires, earlier, &mut starved, has_landed)? {
                flight.stage = next;
                moved = true;
            }
            moved |= match &flight.stage {
                Stage::Legs(legs) => legs.iter().any(legs::Run::moved),
                Stage::Pieces(put) => put.moved,
                Stage::Got(get) => get.moved,
                _ => false,
            };
            earlier = match (&flight.stage, earlier) {
                (Stage::Done, earlier) => earlier,
                (Stage::Acknowledge(_), Earlier::Nothing) => {
                    Earlier::Messages(flight.command.peer_or(usize::MAX))
                }
                (Stage::Acknowledge(_), Earlier::Messages(peer))
                    if peer == flight.command.peer_or(usize::MAX) =>
                {
                    earlier
                }
                _ => Earlier::Other,
            };
        }
        while let Some(front) = self.flights.front()
            && matches!(front.stage, Stage::Done)
        {
            self.done = front.number;
            self.flights.pop_front();
        }
        Ok(moved)
    }

    /// Begins the commands that may run beside those under way.
    fn begin(&mut self, wires: &mut Wires) -> Result<bool, Fault> {
        let mut moved = false;
        while let Some((_, command)) = self.ready.front()
            && self.flights.len() < WINDOW
        {
            let under_way = |flight: &&Flight| !matches!(flight.stage, Stage::Done);
            let mut flights = self.flights.iter().filter(under_way);
            if !flights.all(|flight| command.may_join(&flight.command)) {
                break;
            }
            let Some((number, command)) = self.ready.pop_front() else {
                break;
            };
            let stage = first_stage(wires, &command).map_err(|fault| about(fault, &command))?;
            self.flights.push_back(Flight {
                number,
                command,
                stage,
            });
            moved = true;
        }
        if moved {
            // A message may be sent at once.
            self.poll(wires)?;
        }
        Ok(moved)
    }

    /// Starts the flushes that puts wait for.
    fn flush(&mut self, wires: &mut Wires) -> Result<(), Fault> {
        for index in 0..self.flights.len() {
            let Some((peer, signals)) = self.flights[index].unflushed() else {
                continue;
            };
            let waiting = |flight: &&Flight| flight.unflushed().is_some_and(|(to, _)| to == peer);
            let busy = self.flushes.iter().any(|flush| flush.peer == peer);
            let urgent = signals || self.flights.iter().filter(waiting).count() >= FLUSH_EVERY;
            // One flush at a time covers a burst of puts; the next begins when it is complete.
            if busy && !urgent {
                continue;
            }
            self.last_flush += 1;
            let operation = wires.flush(peer)?;
            for flight in &mut self.flights {
                if flight.unflushed().is_some_and(|(to, _)| to == peer)
                    && let Stage::Put { flush, .. } = &mut flight.stage
                {
                    *flush = Some(self.last_flush);
                }
            }
            self.flushes.push(Flush {
                number: self.last_flush,
                peer,
                operation,
            });
        }
        Ok(())
    }

    /// Fails if the first command has made no progress for longer than its deadline.
    fn check_deadline(&self, wires: &Wires, waited: Duration) -> Result<(), Fault> {
        let Some(flight) = self.flights.front() else {
            return Ok(());
        };
        let bytes: u64 = self
            .flights
            .iter()
            .filter_map(|one| one.command.bytes())
            .sum();
        let slack = Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND);
        if waited <= flight.command.deadline.saturating_add(slack) {
            return Ok(());
        }
        Err(match &flight.stage {
            Stage::Barrier(run) => run.fault(wires),
            _ => about(
                Fault {
                    peer: flight.command.peer_or(wires.rank),
                    operation: flight.command.operation,
                    bytes: None,
                    cause: Cause::Silent(waited),
                },
                &flight.command,
            ),
        })
    }

    /// Names the first command to the peer of a failed connection.
    pub fn blame(&self, fault: Fault) -> Fault {
        let mut flights = self.flights.iter().map(|flight| &flight.command);
        match flights.find(|command| command.peer_or(usize::MAX) == fault.peer) {
            Some(command) => about(fault, command),
            None => fault,
        }
    }

    /// Drops all commands.
    pub fn clear(&mut self) {
        *self = Self {
            done: self.done,
            ..Self::default()
        };
    }
}
