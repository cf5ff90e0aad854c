//! Broadcast of large data along a chain of all members, in pieces: every member sends each byte at most once.

use super::fault::LegFault;
use super::memory;
use super::parts::Span;
use super::pieces::PIECE;
use super::progress::Progress;
use super::tag::{Kind, tag};
use crate::network::wire::Wire;

/// A broadcast in pieces.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The member that has the data.
    pub root: usize,
    /// Where it is at all members.
    pub span: Span,
}

impl Chain {
    /// Begins it.
    pub fn begin(&self, members: usize, own: usize) -> Running {
        let pieces = self.span.bytes.div_ceil(PIECE) as u32;
        Running {
            plan: self.clone(),
            next: (own + 1) % members,
            before: (own + members - 1) % members,
            first: own == self.root,
            last: (own + 1) % members == self.root,
            begun: false,
            ready: false,
            pieces,
            arrived: 0,
            sent: 0,
        }
    }
}

/// The state.
pub struct Running {
    plan: Chain,
    next: usize,
    before: usize,
    /// Whether this is the root.
    first: bool,
    /// Whether nobody follows.
    last: bool,
    begun: bool,
    /// Whether the next member has begun.
    ready: bool,
    pieces: u32,
    arrived: u32,
    sent: u32,
}

impl Running {
    /// Does what can be done.
    pub fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<Progress, LegFault<W::Fault>> {
        if !self.begun {
            self.begun = true;
            if self.first {
                self.arrived = self.pieces;
            } else {
                wire.send(self.before, tag(Kind::Ready, 0), &[])?;
            }
        }
        while self.arrived < self.pieces
            && wire
                .take(self.before, tag(Kind::Piece, self.arrived))
                .is_some()
        {
            self.arrived += 1;
        }
        if self.last {
            self.sent = self.pieces;
        } else if !self.ready && wire.take(self.next, tag(Kind::Ready, 0)).is_some() {
            self.ready = true;
        }
        while self.ready && self.sent < self.arrived {
            let at = u64::from(self.sent) * PIECE;
            let whole = self.plan.span;
            let piece = whole.part(at, (whole.bytes - at).min(PIECE));
            let source = memory::address(wire, piece);
            // SAFETY: the piece has arrived, and nobody writes to it again. The next member has begun, so its memory waits for
            // the piece.
            unsafe {
                let tag = tag(Kind::Piece, self.sent);
                wire.put(self.next, tag, source, piece.bytes, piece.offset)?;
            }
            self.sent += 1;
        }
        let all = self.arrived == self.pieces && self.sent == self.pieces;
        match all && wire.settled() {
            true => Ok(Progress::Done),
            false => Ok(Progress::Waiting),
        }
    }
}
