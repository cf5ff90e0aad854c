//! A barrier among nodes: one rank of each exchanges messages with the others, in the logarithm of their number of
//! steps (dissemination).

use super::fault::{Cause, Fault};
use super::message::{Header, kind};
use super::wires::Wires;
use crate::base::lock::lock;
use std::time::Instant;
use symmem_core::epoch::reached;

/// A barrier that has begun.
pub struct Run {
    channel: u32,
    /// Number of the barrier on its channel.
    epoch: u32,
    step: u32,
    /// Whether this step's message is sent.
    sent: bool,
    since: Instant,
}

impl Run {
    /// Begins the channel's next barrier.
    pub fn begin(wires: &mut Wires, channel: u32) -> Self {
        let epoch = &mut wires.barriers[channel as usize];
        *epoch = epoch.wrapping_add(1);
        Self {
            channel,
            epoch: *epoch,
            step: 0,
            sent: false,
            since: Instant::now(),
        }
    }

    /// Advances it as far as possible without waiting. Returns whether it is complete.
    ///
    /// # Errors
    /// The failure of a connection.
    pub fn poll(&mut self, wires: &mut Wires) -> Result<bool, Fault> {
        let ranks = wires.leaders.len();
        let Some(own) = wires.leaders.iter().position(|&rank| rank == wires.rank) else {
            return Ok(true);
        };
        while 1 << self.step < ranks {
            let distance = 1 << self.step;
            if !self.sent {
                let header = Header {
                    kind: kind::BARRIER,
                    channel: self.channel,
                    value: self.step,
                    ..Header::default()
                };
                wires.send(wires.leaders[(own + distance) % ranks], header, None)?;
                self.sent = true;
            }
            if !reached(self.seen(wires), self.epoch) {
                return Ok(false);
            }
            self.step += 1;
            self.sent = false;
        }
        Ok(true)
    }

    fn seen(&self, wires: &Wires) -> u32 {
        lock(&wires.inbox).barriers(self.channel, self.step)
    }

    /// Returns the fault of a barrier whose deadline has passed.
    pub fn fault(&self, wires: &Wires) -> Fault {
        let ranks = wires.leaders.len();
        let own = wires.leaders.iter().position(|&rank| rank == wires.rank);
        let from = (own.unwrap_or(0) + ranks - (1 << self.step) % ranks) % ranks;
        Fault {
            peer: wires.leaders[from],
            operation: "barrier",
            bytes: None,
            cause: Cause::Barrier {
                channel: self.channel,
                expected: self.epoch,
                seen: self.seen(wires),
                waited: self.since.elapsed(),
            },
        }
    }
}
