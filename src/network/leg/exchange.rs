//! Parts that move between all pairs of members: gathers, scatters and all-to-alls.
//!
//! A small part goes as a message. For a large one the receiver tells where it goes, then the sender puts it there.

use super::fault::LegFault;
use super::memory;
use super::parts::Parts;
use super::progress::Progress;
use super::tag::{Kind, tag};
use crate::network::wire::{MOST_MESSAGE, Wire};

/// A move of parts. What one member sends to another has as many bytes as the other receives from it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What is sent to each member.
    pub sent: Parts,
    /// Where what each member sends arrives.
    pub received: Parts,
}

/// Most bytes of a part that goes as a message.
const EAGER: u64 = MOST_MESSAGE as u64;

impl Exchange {
    /// Begins it.
    pub fn begin(&self, members: usize, own: usize) -> Running {
        let open = |parts: &Parts| {
            let waits = |member| member != own && parts.of(member, members).bytes > 0;
            (0..members).map(waits).collect::<Vec<bool>>()
        };
        Running {
            sends: open(&self.sent),
            receives: open(&self.received),
            plan: self.clone(),
            begun: false,
        }
    }
}

/// The state.
pub struct Running {
    plan: Exchange,
    begun: bool,
    /// Members to which a part has not been sent.
    sends: Vec<bool>,
    /// Members from which a part has not arrived.
    receives: Vec<bool>,
}

impl Running {
    /// Does what can be done.
    pub fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<Progress, LegFault<W::Fault>> {
        let (members, own) = (wire.members(), wire.own());
        if !self.begun {
            self.begun = true;
            self.begin(wire)?;
        }
        for step in 1..members {
            let to = (own + step) % members;
            self.send(wire, to)?;
            // In the order in which the others send.
            let from = (own + members - step) % members;
            self.receive(wire, from)?;
        }
        let open = self.sends.iter().chain(&self.receives).any(|&open| open);
        match !open && wire.settled() {
            true => Ok(Progress::Done),
            false => Ok(Progress::Waiting),
        }
    }

    fn begin<W: Wire>(&mut self, wire: &mut W) -> Result<(), LegFault<W::Fault>> {
        let (members, own) = (wire.members(), wire.own());
        for step in 1..members {
            let from = (own + members - step) % members;
            let part = self.plan.received.of(from, members);
            if part.bytes > EAGER {
                let mut place = [0; 16];
                place[..8].copy_from_slice(&part.offset.to_le_bytes());
                place[8..].copy_from_slice(&part.bytes.to_le_bytes());
                wire.send(from, tag(Kind::Ready, 0), &place)?;
            }
        }
        let mut copy = Vec::new();
        for step in 1..members {
            let to = (own + step) % members;
            let part = self.plan.sent.of(to, members);
            if (1..=EAGER).contains(&part.bytes) {
                memory::read(wire, part, &mut copy);
                wire.send(to, tag(Kind::Data, 0), &copy)?;
                self.sends[to] = false;
            }
        }
        let (from, to) = (
            self.plan.sent.of(own, members),
            self.plan.received.of(own, members),
        );
        if from != to && from.bytes > 0 {
            same(own, to.bytes, from.bytes)?;
            let (source, destination) = (memory::source(wire, from), memory::address(wire, to));
            // SAFETY: both ranges are inside of this rank's memory for the leg.
            unsafe { destination.copy_from(source, from.bytes as usize) };
        }
        Ok(())
    }

    /// Puts the part of a member that is ready for it.
    fn send<W: Wire>(&mut self, wire: &mut W, to: usize) -> Result<(), LegFault<W::Fault>> {
        if !self.sends[to] {
            return Ok(());
        }
        let part = self.plan.sent.of(to, wire.members());
        let Some(place) = wire.take(to, tag(Kind::Ready, 0)) else {
            return Ok(());
        };
        let Some((offset, bytes)) = read_place(place) else {
            return Err(LegFault::Length {
                member: to,
                expected: 16,
                seen: place.len() as u64,
            });
        };
        same(to, bytes, part.bytes)?;
        self.sends[to] = false;
        let source = memory::source(wire, part);
        // SAFETY: the part is this rank's to send until the leg is done. The receiver has told where it may be put.
        unsafe { wire.put(to, tag(Kind::Piece, 0), source, part.bytes, offset)? };
        Ok(())
    }

    fn receive<W: Wire>(&mut self, wire: &mut W, from: usize) -> Result<(), LegFault<W::Fault>> {
        if !self.receives[from] {
            return Ok(());
        }
        let part = self.plan.received.of(from, wire.members());
        let to = memory::address(wire, part);
        if let Some(data) = wire.take(from, tag(Kind::Data, 0)) {
            same(from, part.bytes, data.len() as u64)?;
            // SAFETY: the part is inside of the region, and as long as the message, which is not in the region.
            unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
            self.receives[from] = false;
        } else if part.bytes > EAGER && wire.take(from, tag(Kind::Piece, 0)).is_some() {
            self.receives[from] = false;
        }
        Ok(())
    }
}

fn read_place(message: &[u8]) -> Option<(u64, u64)> {
    let word = |at: usize| {
        Some(u64::from_le_bytes(
            message.get(at..at + 8)?.try_into().ok()?,
        ))
    };
    Some((word(0)?, word(8)?))
}

fn same<F>(member: usize, expected: u64, seen: u64) -> Result<(), LegFault<F>> {
    match expected == seen {
        true => Ok(()),
        false => Err(LegFault::Length {
            member,
            expected,
            seen,
        }),
    }
}
