//! Reductions of large data. Every member owns a share, of which the others send it their elements in pieces, into slots of
//! its region. It reduces each piece once, in member order, in its own place of the data, and puts the result to the
//! members that need it.
//!
//! A slot is written again only after its piece has been reduced, which the sender learns from the result, or from a
//! credit where no result comes back. A result is put over elements that the receiver has sent before: without them there
//! would be no result.

use super::fault::LegFault;
use super::memory::{self, Reduction};
use super::parts::{Parts, Span};
use super::progress::Progress;
use super::tag::{Kind, MOST_PIECES, tag};
use crate::network::wire::Wire;

/// Who needs the reduced shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// Their owners.
    Owner,
    /// All members.
    All,
    /// One member.
    Root(usize),
}

/// A reduction in pieces.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// The members' shares of the data, which are reduced in place.
    pub shares: Parts,
    /// Who needs them.
    pub needed: Needed,
    /// How.
    pub reduction: Reduction,
    /// The memory for what the other members send: at least 64 bytes for each.
    pub inbox: Span,
}

/// Most bytes of a piece: the elements of a few members stay in the processor's L2 cache while they are reduced, and the
/// wire is busy with the next piece meanwhile.
pub const PIECE: u64 = 256 << 10;
/// Granularity of pieces.
const LINE: u64 = 64;

/// The slots of an inbox, the same at all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slots {
    /// Bytes of a slot.
    bytes: u64,
    /// Slots for each sender.
    count: u32,
}

impl Slots {
    /// Divides an inbox among `senders`, into at least two slots for each where it has room.
    fn of(inbox: Span, senders: u64) -> Self {
        let each = inbox.bytes / senders.max(1);
        let line = |bytes: u64| bytes / LINE * LINE;
        let bytes = match line(each / 2) {
            0 => line(each),
            half => half.min(PIECE),
        };
        assert!(bytes > 0, "{inbox:?} has no room for {senders} senders");
        Self {
            bytes,
            count: (each / bytes).min(MOST_PIECES) as u32,
        }
    }
}

impl Pieces {
    /// Begins it.
    ///
    /// # Panics
    /// If the inbox is too small.
    pub fn begin(&self, members: usize, own: usize) -> Running {
        let slots = Slots::of(self.inbox, members as u64 - 1);
        let share = self.shares.of(own, members);
        let pieces = |member| self.shares.of(member, members).bytes.div_ceil(slots.bytes) as u32;
        let peers = (0..members).map(|member| Peer {
            pieces: pieces(member),
            ready: false,
            granted: 0,
            sent: 0,
            arrived: 0,
            results: 0,
            credits: 0,
        });
        Running {
            own,
            share,
            slots,
            begun: false,
            peers: peers.collect(),
            pieces: pieces(own),
            reduced: 0,
            plan: self.clone(),
        }
    }
}

/// What has happened between this rank and a peer.
struct Peer {
    /// Pieces of its share.
    pieces: u32,
    /// Whether it has begun.
    ready: bool,
    /// Pieces that may be sent to it.
    granted: u32,
    /// Pieces sent to it.
    sent: u32,
    /// Pieces of this rank's share that have arrived from it.
    arrived: u32,
    /// Pieces of its share that have come back reduced.
    results: u32,
    /// Credits taken from it.
    credits: u32,
}

/// The state.
pub struct Running {
    plan: Pieces,
    own: usize,
    /// This rank's share.
    share: Span,
    slots: Slots,
    begun: bool,
    peers: Vec<Peer>,
    /// Pieces of this rank's share.
    pieces: u32,
    /// Pieces of it that have been reduced.
    reduced: u32,
}

impl Running {
    /// Does what can be done, but reduces at most one piece.
    pub fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<Progress, LegFault<W::Fault>> {
        let (members, own) = (self.peers.len(), self.own);
        let peers = (1..members).map(move |step| (own + step) % members);
        if !self.begun {
            self.begun = true;
            if self.pieces > 0 {
                for peer in peers.clone() {
                    wire.send(peer, tag(Kind::Ready, 0), &[])?;
                }
            }
        }
        for peer in peers {
            self.take(wire, peer);
        }
        self.send(wire)?;
        if self.reduced < self.pieces && self.next_has_arrived() {
            self.reduce(wire);
            self.deliver(wire)?;
            self.reduced += 1;
            return Ok(Progress::Busy);
        }
        match self.is_complete() && wire.settled() {
            true => Ok(Progress::Done),
            false => Ok(Progress::Waiting),
        }
    }

    fn others(&self) -> impl Iterator<Item = &Peer> {
        let own = self.own;
        let peers = self.peers.iter().enumerate();
        peers
            .filter(move |(member, _)| *member != own)
            .map(|(_, peer)| peer)
    }

    /// Returns whether this rank needs the share of others.
    fn needs_results(&self) -> bool {
        match self.plan.needed {
            Needed::Owner => false,
            Needed::All => true,
            Needed::Root(root) => root == self.own,
        }
    }

    fn next_has_arrived(&self) -> bool {
        self.others().all(|peer| peer.arrived > self.reduced)
    }

    fn is_complete(&self) -> bool {
        let results = self.needs_results();
        self.reduced == self.pieces
            && self
                .others()
                .all(|peer| peer.sent == peer.pieces && (!results || peer.results == peer.pieces))
    }

    /// Takes what has come from a peer.
    fn take<W: Wire>(&mut self, wire: &mut W, member: usize) {
        let results = self.needs_results();
        let slots = self.slots.count;
        let by_results = self.plan.needed == Needed::All;
        let pieces = self.pieces;
        let peer = &mut self.peers[member];
        if !peer.ready && peer.pieces > 0 && wire.take(member, tag(Kind::Ready, 0)).is_some() {
            peer.ready = true;
            peer.granted += slots;
        }
        while !by_results
            && peer.credits + slots < peer.pieces
            && wire.take(member, tag(Kind::Credit, peer.credits)).is_some()
        {
            peer.credits += 1;
            peer.granted += 1;
        }
        while peer.arrived < pieces && wire.take(member, tag(Kind::Piece, peer.arrived)).is_some() {
            peer.arrived += 1;
        }
        while results
            && peer.results < peer.pieces
            && wire.take(member, tag(Kind::Result, peer.results)).is_some()
        {
            peer.results += 1;
            peer.granted += u32::from(by_results);
        }
    }

    /// Returns the number of a sender among the senders to a member.
    fn place(receiver: usize, sender: usize) -> u64 {
        (sender - usize::from(sender > receiver)) as u64
    }

    /// Returns the slot of a piece from `sender` in the region of `receiver`.
    fn slot(&self, receiver: usize, sender: usize, piece: u32, bytes: u64) -> Span {
        let Slots { bytes: size, count } = self.slots;
        let slot = Self::place(receiver, sender) * u64::from(count) + u64::from(piece % count);
        self.plan.inbox.part(slot * size, bytes)
    }

    fn piece(&self, share: Span, piece: u32) -> Span {
        let at = u64::from(piece) * self.slots.bytes;
        share.part(at, (share.bytes - at).min(self.slots.bytes))
    }

    /// Sends all pieces that peers have room for, one to each in turn.
    fn send<W: Wire>(&mut self, wire: &mut W) -> Result<(), W::Fault> {
        let members = self.peers.len();
        loop {
            let mut sent = false;
            for step in 1..members {
                let member = (self.own + step) % members;
                let peer = &self.peers[member];
                let number = peer.sent;
                if number >= peer.granted.min(peer.pieces) {
                    continue;
                }
                let from = self.piece(self.plan.shares.of(member, members), number);
                let to = self.slot(member, self.own, number, from.bytes);
                let source = memory::address(wire, from);
                // SAFETY: the share is overwritten only by its result, for which the owner has read this piece. The slot is
                // this rank's, and the owner has used what was in it, or has just begun.
                unsafe {
                    wire.put(
                        member,
                        tag(Kind::Piece, number),
                        source,
                        from.bytes,
                        to.offset,
                    )?;
                }
                self.peers[member].sent += 1;
                sent = true;
            }
            if !sent {
                return Ok(());
            }
        }
    }

    /// Reduces the next piece of this rank's share in its place.
    fn reduce<W: Wire>(&self, wire: &W) {
        let piece = self.piece(self.share, self.reduced);
        let result = memory::address(wire, piece);
        let source = |member: usize| match member == self.own {
            true => result.cast_const(),
            false => {
                let slot = self.slot(self.own, member, self.reduced, piece.bytes);
                memory::address(wire, slot).cast_const()
            }
        };
        let sources: Vec<_> = (0..self.peers.len()).map(source).collect();
        // SAFETY: the piece has arrived in every slot, and none of its senders writes there before it hears of it. The
        // result is this rank's own part of the sources.
        unsafe { self.plan.reduction.run(&sources, result, piece.bytes) };
    }

    /// Sends the piece just reduced to the members that need it, or tells them that its slots are free.
    fn deliver<W: Wire>(&self, wire: &mut W) -> Result<(), W::Fault> {
        let members = self.peers.len();
        let piece = self.piece(self.share, self.reduced);
        let more = self.reduced + self.slots.count < self.pieces;
        for step in 1..members {
            let member = (self.own + step) % members;
            let needed = match self.plan.needed {
                Needed::Owner => false,
                Needed::All => true,
                Needed::Root(root) => root == member,
            };
            if needed {
                let source = memory::address(wire, piece);
                // SAFETY: nobody writes to a reduced piece. Its place at the member was this member's to send, which it has.
                unsafe {
                    let tag = tag(Kind::Result, self.reduced);
                    wire.put(member, tag, source, piece.bytes, piece.offset)?;
                }
            }
            if more && self.plan.needed != Needed::All {
                wire.send(member, tag(Kind::Credit, self.reduced), &[])?;
            }
        }
        Ok(())
    }
}
