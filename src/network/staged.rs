//! Transfers of GPU memory in pieces through pinned memory: put, get, and what a peer gets from here.
//!
//! A put copies each piece into a slot of this rank's pinned memory, and asks the peer for a slot of its own meanwhile.
//! UCX puts the piece there, a flush tells that it has arrived, and a message has the peer deliver it. A get offers the
//! peer a slot with each request, so that a peer that answers waits for nobody.

use super::command::Place;
use super::copies::Ticket;
use super::fault::{Cause, Fault};
use super::inbox::Wanted;
use super::message::{Header, NO_CHANNEL, SMALL, kind};
use super::pinned::{PIECE, PINNED, Pool};
use super::staging::{Staging, of_backend};
use super::wires::Wires;
use crate::base::lock::lock;
use std::collections::VecDeque;
use symmem_ucx::{Operation, Poll};

/// A piece on its way into a peer's pinned memory.
struct Crossing([Operation; 2]);

impl Crossing {
    /// Starts.
    ///
    /// # Errors
    /// UCX's.
    ///
    /// # Safety
    /// The slot keeps the piece until it has arrived; the peer's slot is this rank's.
    unsafe fn start(
        wires: &mut Wires,
        peer: usize,
        to: u64,
        from: u64,
        bytes: u64,
    ) -> Result<Self, Fault> {
        // SAFETY: guaranteed by the caller.
        let put = unsafe { wires.put(peer, (PINNED, to), from, bytes)? };
        Ok(Self([put, wires.flush(peer)?]))
    }

    fn has_arrived(&self, peer: usize) -> Result<bool, Fault> {
        for operation in &self.0 {
            match operation.poll() {
                Poll::Done => {}
                Poll::Pending => return Ok(false),
                Poll::Failed(failure) => return Err(Fault::of_connection(peer, failure)),
            }
        }
        Ok(true)
    }
}

/// A piece of a put.
struct PutPiece {
    /// Offset in the put.
    offset: u64,
    bytes: u64,
    slot: u64,
    loaded: Ticket,
    /// The request for the peer's slot.
    request: u64,
    /// The peer's slot, and the way there.
    crossing: Option<(u64, Crossing)>,
}

/// A put of many bytes.
pub struct Put {
    peer: usize,
    to: Place,
    from: u64,
    bytes: u64,
    begun: u64,
    pieces: VecDeque<PutPiece>,
    /// Whether the last poll has moved anything.
    pub moved: bool,
}

impl Put {
    /// Begins a put of `bytes`, at least one, from an address here.
    pub fn new(peer: usize, to: Place, from: u64, bytes: u64) -> Self {
        Self {
            peer,
            to,
            from,
            bytes,
            begun: 0,
            pieces: VecDeque::new(),
            moved: false,
        }
    }

    /// Does what can be done. Once all pieces are sent, returns the count of acknowledgements that covers them.
    ///
    /// # Errors
    /// UCX's and the backend's.
    pub fn poll(&mut self, wires: &mut Wires) -> Result<Option<u64>, Fault> {
        self.moved = false;
        self.load(wires)?;
        self.cross(wires)?;
        let mut last = None;
        // In order, so that a signal behind the last message is behind all pieces.
        while let Some(PutPiece {
            crossing: Some((slot, crossing)),
            ..
        }) = self.pieces.front()
            && crossing.has_arrived(self.peer)?
        {
            let remote = *slot;
            let Some(piece) = self.pieces.pop_front() else {
                break;
            };
            let header = Header {
                kind: kind::PIECE,
                channel: NO_CHANNEL,
                number: self.to.number,
                offset: self.to.offset + piece.offset,
                operand: piece.bytes,
                compare: remote,
                ..Header::default()
            };
            last = Some(wires.send_acknowledged(self.peer, header, None)?);
            wires.staging()?.sending.give_back(piece.slot);
            self.moved = true;
        }
        let sent_all = self.begun == self.bytes && self.pieces.is_empty();
        Ok(last.filter(|_| sent_all))
    }

    /// Starts to copy pieces into free slots, and asks the peer for slots.
    fn load(&mut self, wires: &mut Wires) -> Result<(), Fault> {
        while self.begun < self.bytes
            && let Some(slot) = wires.staging()?.sending.take()
        {
            let (offset, bytes) = (self.begun, PIECE.min(self.bytes - self.begun));
            let staging = wires.staging()?;
            // SAFETY: the queue keeps the source until the command is complete; the slot was taken above.
            let loaded = unsafe { staging.load(slot, self.from + offset, bytes) };
            let loaded = loaded.map_err(|failure| of_backend(self.peer, failure))?;
            let request = wires.next_request();
            let header = Header {
                kind: kind::ASK,
                request,
                ..Header::default()
            };
            wires.send(self.peer, header, None)?;
            self.begun += bytes;
            self.pieces.push_back(PutPiece {
                offset,
                bytes,
                slot,
                loaded,
                request,
                crossing: None,
            });
            self.moved = true;
        }
        Ok(())
    }

    /// Sends the pieces that are loaded, and for which the peer has granted a slot.
    fn cross(&mut self, wires: &mut Wires) -> Result<(), Fault> {
        for piece in &mut self.pieces {
            let staging = wires.staging()?;
            if piece.crossing.is_some() || !staging.copies.is_done(piece.loaded) {
                continue;
            }
            let from = staging.pinned.host(piece.slot);
            let Some(to) = lock(&wires.inbox).take_answer(piece.request) else {
                continue;
            };
            // SAFETY: the slot is this piece's until its message is sent; the peer has granted its slot.
            let crossing = unsafe { Crossing::start(wires, self.peer, to, from, piece.bytes)? };
            piece.crossing = Some((to, crossing));
            self.moved = true;
        }
        Ok(())
    }
}

/// A piece of a get.
struct GetPiece {
    /// Offset in the get.
    offset: u64,
    bytes: u64,
    slot: u64,
    request: u64,
    stored: Option<Ticket>,
}

/// A get.
pub struct Get {
    peer: usize,
    from: Place,
    to: u64,
    bytes: u64,
    begun: u64,
    pieces: Vec<GetPiece>,
    /// Whether the last poll has moved anything.
    pub moved: bool,
}

impl Get {
    /// Begins a get of `bytes` to an address here.
    pub fn new(peer: usize, from: Place, to: u64, bytes: u64) -> Self {
        Self {
            peer,
            from,
            to,
            bytes,
            begun: 0,
            pieces: Vec::new(),
            moved: false,
        }
    }

    /// Does what can be done. Returns whether the bytes are here.
    ///
    /// # Errors
    /// UCX's and the backend's.
    pub fn poll(&mut self, wires: &mut Wires) -> Result<bool, Fault> {
        self.moved = false;
        while self.begun < self.bytes
            && let Some(slot) = wires.staging()?.getting.take()
        {
            let (offset, bytes) = (self.begun, PIECE.min(self.bytes - self.begun));
            let request = wires.next_request();
            let header = Header {
                kind: kind::GET,
                request,
                number: self.from.number,
                offset: self.from.offset + offset,
                operand: bytes,
                compare: slot,
                ..Header::default()
            };
            wires.send(self.peer, header, None)?;
            self.begun += bytes;
            self.pieces.push(GetPiece {
                offset,
                bytes,
                slot,
                request,
                stored: None,
            });
            self.moved = true;
        }
        let mut at = 0;
        while let Some(piece) = self.pieces.get_mut(at) {
            let stored = match piece.stored {
                Some(ticket) => wires.staging()?.copies.is_done(ticket),
                None => {
                    self.moved |= piece.store(wires, self.peer, self.to)?;
                    false
                }
            };
            if stored {
                let piece = self.pieces.swap_remove(at);
                wires.staging()?.getting.give_back(piece.slot);
                self.moved = true;
            } else {
                at += 1;
            }
        }
        Ok(self.begun == self.bytes && self.pieces.is_empty())
    }
}

impl GetPiece {
    /// Starts to store the piece if it has come. Returns whether it has.
    fn store(&mut self, wires: &mut Wires, peer: usize, to: u64) -> Result<bool, Fault> {
        let Some(data) = lock(&wires.inbox).take_got(self.request) else {
            return Ok(false);
        };
        let expected = match self.bytes <= SMALL {
            true => self.bytes,
            false => 0,
        };
        if data.len() as u64 != expected {
            return Err(Fault {
                peer,
                operation: "get",
                bytes: Some(self.bytes),
                cause: Cause::Text(format!("{} bytes came in a message", data.len())),
            });
        }
        let staging = wires.staging()?;
        // SAFETY: the slot is this piece's, and the bytes in it have come; commands that use the destination wait.
        let stored = unsafe {
            staging.pinned.fill(self.slot, &data);
            staging.store(to + self.offset, self.slot, self.bytes)
        };
        self.stored = Some(stored.map_err(|failure| of_backend(peer, failure))?);
        Ok(true)
    }
}

/// A piece that a peer gets from here.
struct Serve {
    wanted: Wanted,
    /// The slot, and the copy into it.
    loading: Option<(u64, Ticket)>,
    crossing: Option<Crossing>,
}

impl Serve {
    fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            loading: None,
            crossing: None,
        }
    }

    fn pool<'s>(&self, staging: &'s mut Staging) -> &'s mut Pool {
        match self.wanted.bytes <= SMALL {
            true => &mut staging.small,
            false => &mut staging.sending,
        }
    }

    /// Does what can be done. Returns whether anything happened, and whether the answer is sent.
    ///
    /// # Errors
    /// UCX's and the backend's.
    fn poll(&mut self, wires: &mut Wires) -> Result<(bool, bool), Fault> {
        let Wanted {
            source,
            request,
            from,
            bytes,
            slot: theirs,
        } = self.wanted;
        let staging = wires.staging()?;
        let Some((slot, loaded)) = self.loading else {
            let Some(slot) = self.pool(staging).take() else {
                return Ok((false, false));
            };
            // SAFETY: the window is a registered allocation, which the peer addresses until it has its answer.
            let loaded = unsafe { staging.load(slot, from.0, bytes) };
            let loaded = loaded.map_err(|failure| of_backend(source, failure))?;
            self.loading = Some((slot, loaded));
            return Ok((true, false));
        };
        if !staging.copies.is_done(loaded) {
            return Ok((false, false));
        }
        let address = staging.pinned.host(slot);
        let data = match &self.crossing {
            _ if bytes <= SMALL => Some((address, bytes as usize)),
            None => {
                // SAFETY: the slot is this answer's until it is sent; the peer's slot is for it.
                let crossing = unsafe { Crossing::start(wires, source, theirs, address, bytes)? };
                self.crossing = Some(crossing);
                return Ok((true, false));
            }
            Some(crossing) if crossing.has_arrived(source)? => None,
            Some(_) => return Ok((false, false)),
        };
        let header = Header {
            kind: kind::GOT,
            request,
            ..Header::default()
        };
        wires.send(source, header, data)?;
        self.pool(wires.staging()?).give_back(slot);
        Ok((true, true))
    }
}

/// What peers get from here, in the order of their requests.
#[derive(Default)]
pub struct Serves(Vec<Serve>);

impl Serves {
    /// Takes the requests that have come, and does what can be done. Returns whether anything happened.
    ///
    /// # Errors
    /// UCX's and the backend's.
    pub fn advance(&mut self, wires: &mut Wires) -> Result<bool, Fault> {
        while let Some(wanted) = lock(&wires.inbox).take_wanted() {
            self.0.push(Serve::new(wanted));
        }
        let (mut moved, mut at) = (false, 0);
        while let Some(serve) = self.0.get_mut(at) {
            let (stepped, done) = serve.poll(wires)?;
            moved |= stepped;
            match done {
                true => drop(self.0.remove(at)),
                false => at += 1,
            }
        }
        Ok(moved)
    }
}
