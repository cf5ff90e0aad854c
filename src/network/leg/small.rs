//! Reductions of vectors that fit in messages, in one step: each member sends its vector to whoever reduces it.

use super::fault::LegFault;
use super::memory::{self, Reduction};
use super::parts::{Parts, Span};
use super::progress::Progress;
use super::tag::{Kind, tag};
use crate::network::wire::Wire;

/// A reduction by messages.
#[derive(Clone, Debug)]
pub struct Small {
    /// What each receiver reduces: its own range of this has its own vector, then the result.
    pub parts: Parts,
    /// The only receiver; `None` if every member is one.
    pub root: Option<usize>,
    /// How.
    pub reduction: Reduction,
}

impl Small {
    fn receives(&self, member: usize) -> bool {
        self.root.is_none_or(|root| root == member)
    }

    /// Begins it.
    pub fn begin(&self, members: usize, own: usize) -> Running {
        let own_part = self.parts.of(own, members);
        let expects = self.receives(own) && own_part.bytes > 0;
        Running {
            plan: self.clone(),
            own: own_part,
            sent: false,
            vectors: vec![
                0;
                if expects {
                    members * own_part.bytes as usize
                } else {
                    0
                }
            ],
            arrived: (0..members)
                .map(|member| member == own || !expects)
                .collect(),
            expects,
        }
    }
}

/// The state.
pub struct Running {
    plan: Small,
    own: Span,
    sent: bool,
    /// Members' vectors, in their order.
    vectors: Vec<u8>,
    arrived: Vec<bool>,
    expects: bool,
}

impl Running {
    /// Does what can be done.
    pub fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<Progress, LegFault<W::Fault>> {
        let (members, own) = (wire.members(), wire.own());
        if !self.sent {
            self.sent = true;
            self.send(wire)?;
        }
        let bytes = self.own.bytes as usize;
        for member in 0..members {
            if self.arrived[member] {
                continue;
            }
            if let Some(data) = wire.take(member, tag(Kind::Data, 0)) {
                if data.len() != bytes {
                    return Err(LegFault::Length {
                        member,
                        expected: self.own.bytes,
                        seen: data.len() as u64,
                    });
                }
                self.vectors[member * bytes..][..bytes].copy_from_slice(data);
                self.arrived[member] = true;
            }
        }
        if !self.arrived.iter().all(|&arrived| arrived) {
            return Ok(Progress::Waiting);
        }
        if self.expects {
            let result = memory::address(wire, self.own);
            let vector = |member: usize| match member == own {
                true => result.cast_const(),
                false => self.vectors[member * bytes..].as_ptr(),
            };
            let sources: Vec<_> = (0..members).map(vector).collect();
            // SAFETY: each vector has that many bytes. The result is this rank's own vector, in its region, which nobody
            // else uses.
            unsafe { self.plan.reduction.run(&sources, result, self.own.bytes) };
        }
        Ok(Progress::Done)
    }

    fn send<W: Wire>(&self, wire: &mut W) -> Result<(), W::Fault> {
        let (members, own) = (wire.members(), wire.own());
        let mut copy = Vec::new();
        let mut copied = None;
        for step in 1..members {
            let peer = (own + step) % members;
            let part = self.plan.parts.of(peer, members);
            if part.bytes == 0 || !self.plan.receives(peer) {
                continue;
            }
            if copied != Some(part) {
                memory::read(wire, part, &mut copy);
                copied = Some(part);
            }
            wire.send(peer, tag(Kind::Data, 0), &copy)?;
        }
        Ok(())
    }
}
