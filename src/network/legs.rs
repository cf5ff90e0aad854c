//! Legs of collectives over the wires: which messages are whose, and what a put needs before its tag may be sent.

use super::fault::{Cause, Fault};
use super::leg::fault::LegFault;
use super::leg::leg::{Leg, Running};
use super::leg::progress::Progress;
use super::leg_name::LegName;
use super::message::{Header, kind};
use super::wire::Wire;
use super::wires::Wires;
use crate::base::lock::lock;
use std::sync::Arc;
use symmem_ucx::{Operation, Poll};

/// A leg, its members and their regions.
#[derive(Clone, Debug)]
pub struct LegCall {
    /// Identifies the group and its channel: the same at all members, and another for every other set of members. The
    /// members begin the legs of a key in one order.
    pub key: u64,
    /// The world's rank of each member; all are on different nodes, unless none of their parts goes between them.
    pub members: Arc<[usize]>,
    /// This rank's number among them.
    pub own: usize,
    /// Number of the allocation that the regions are in, and their offset.
    pub place: (u64, u64),
    /// Address of this rank's region.
    pub address: u64,
    /// Bytes of a region.
    pub bytes: u64,
    /// Address and bytes of what this rank's parts are sent from, if that is not its region.
    pub source: Option<(u64, u64)>,
    /// What is done.
    pub leg: Leg,
}

/// A put whose tag has not been sent.
struct Put {
    to: usize,
    tag: u32,
    operation: Operation,
    flush: Operation,
}

/// A leg under way.
pub struct Run {
    name: LegName,
    running: Option<Running>,
    puts: Vec<Put>,
    /// Whether the last poll has moved anything.
    moved: bool,
}

/// The wires as one leg sees them.
struct LegWire<'w> {
    wires: &'w mut Wires,
    call: &'w LegCall,
    name: LegName,
    puts: &'w mut Vec<Put>,
    taken: Vec<u8>,
    moved: bool,
}

impl Run {
    /// Begins a leg.
    pub fn begin(wires: &mut Wires, call: &LegCall) -> Self {
        let name = LegName {
            key: call.key,
            number: wires.next_leg(call.key),
        };
        Self {
            name,
            running: Some(call.leg.begin(call.members.len(), call.own)),
            puts: Vec::new(),
            moved: true,
        }
    }

    /// Returns whether the last poll has moved anything.
    pub fn moved(&self) -> bool {
        self.moved
    }

    /// Does what can be done. Returns whether the leg is done.
    ///
    /// # Errors
    /// UCX's, and a member that sends what this rank does not expect.
    pub fn poll(&mut self, wires: &mut Wires, call: &LegCall) -> Result<bool, Fault> {
        let Some(running) = &mut self.running else {
            // Else a thread that waits would look again and again for the legs that are left.
            self.moved = false;
            return Ok(true);
        };
        let mut wire = LegWire {
            wires,
            call,
            name: self.name,
            puts: &mut self.puts,
            taken: Vec::new(),
            moved: false,
        };
        wire.advance_puts()?;
        let progress = running.poll(&mut wire).map_err(|fault| match fault {
            LegFault::Wire(fault) => fault,
            LegFault::Length {
                member,
                expected,
                seen,
            } => Fault {
                peer: call.members[member],
                operation: "collective",
                bytes: Some(seen),
                cause: Cause::Length { expected, seen },
            },
        })?;
        self.moved = wire.moved || progress != Progress::Waiting;
        if progress == Progress::Done {
            self.running = None;
            lock(&wires.inbox).end_leg(self.name);
        }
        Ok(progress == Progress::Done)
    }
}

impl LegWire<'_> {
    fn header(&self, tag: u32) -> Header {
        Header {
            kind: kind::LEG,
            number: self.name.key,
            request: self.name.number,
            value: tag,
            ..Header::default()
        }
    }

    /// Sends the tags of puts that have arrived.
    fn advance_puts(&mut self) -> Result<(), Fault> {
        let mut at = 0;
        while at < self.puts.len() {
            let put = &self.puts[at];
            let peer = self.call.members[put.to];
            let mut landed = true;
            for operation in [&put.operation, &put.flush] {
                match operation.poll() {
                    Poll::Done => {}
                    Poll::Pending => landed = false,
                    Poll::Failed(failure) => return Err(Fault::of_connection(peer, failure)),
                }
            }
            if landed {
                let put = self.puts.swap_remove(at);
                self.wires.send(peer, self.header(put.tag), None)?;
                self.moved = true;
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}

impl Wire for LegWire<'_> {
    type Fault = Fault;

    fn members(&self) -> usize {
        self.call.members.len()
    }

    fn own(&self) -> usize {
        self.call.own
    }

    fn region(&self) -> (*mut u8, u64) {
        let address = std::ptr::with_exposed_provenance_mut(self.call.address as usize);
        (address, self.call.bytes)
    }

    fn source(&self) -> (*const u8, u64) {
        let (address, bytes) = (self.call.source).unwrap_or((self.call.address, self.call.bytes));
        (std::ptr::with_exposed_provenance(address as usize), bytes)
    }

    fn send(&mut self, to: usize, tag: u32, data: &[u8]) -> Result<(), Fault> {
        self.moved = true;
        let address = data.as_ptr().expose_provenance() as u64;
        let header = self.header(tag);
        self.wires
            .send(self.call.members[to], header, Some((address, data.len())))
    }

    unsafe fn put(
        &mut self,
        to: usize,
        tag: u32,
        source: *const u8,
        bytes: u64,
        at: u64,
    ) -> Result<(), Fault> {
        self.moved = true;
        let peer = self.call.members[to];
        let (number, offset) = self.call.place;
        let from = source.expose_provenance() as u64;
        // SAFETY: guaranteed by the caller; the regions are inside of the allocation, which the call keeps.
        let operation = unsafe { self.wires.put(peer, (number, offset + at), from, bytes)? };
        let flush = self.wires.flush(peer)?;
        self.puts.push(Put {
            to,
            tag,
            operation,
            flush,
        });
        Ok(())
    }

    fn take(&mut self, from: usize, tag: u32) -> Option<&[u8]> {
        let rank = self.call.members[from];
        self.taken = lock(&self.wires.inbox).take_leg(self.name, rank, tag)?;
        self.moved = true;
        Some(&self.taken)
    }

    fn settled(&mut self) -> bool {
        self.puts.is_empty()
    }
}
