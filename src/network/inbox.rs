//! What arrives from ranks of other nodes. The handler runs inside of the worker's progress.

use super::delivery::{Data, Delivery, Signal};
use super::fault::Cause;
use super::leg_name::LegName;
use super::message::{Header, NO_CHANNEL, kind};
use crate::backend::abi::{DeviceAddress, WordOperation, WordUpdate};
use crate::base::limits::{BARRIER_CHANNELS, CHANNELS};
use std::collections::{HashMap, VecDeque};

/// Most steps of a barrier among nodes: the logarithm of more ranks than a world can have.
const BARRIER_STEPS: usize = 16;

/// What this rank knows of a rank of another node.
#[derive(Clone, Copy, Default)]
struct Sender {
    /// Number of its acknowledged messages that were handled here.
    handled: u64,
    /// Whether it has not been told of all of them.
    due: bool,
    /// Number of this rank's messages that it has handled.
    acknowledged: u64,
    departed: bool,
}

/// Memory of this rank that peers address.
#[derive(Clone)]
struct Window {
    base: DeviceAddress,
    bytes: u64,
    /// The ranks that no longer address it.
    given_up: Vec<usize>,
}

/// A delivery under way: whose, and the request that it answers, if it is an update.
struct Pending {
    source: usize,
    request: Option<u64>,
}

/// What a peer asks to be sent of this rank's memory.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The peer.
    pub source: usize,
    /// Its request.
    pub request: u64,
    /// The first byte.
    pub from: DeviceAddress,
    /// Number of bytes, at most a piece.
    pub bytes: u64,
    /// The peer's slot for them.
    pub slot: u64,
}

/// What has arrived.
pub struct Inbox {
    session: u64,
    delivery: Box<dyn Delivery>,
    senders: Vec<Sender>,
    windows: HashMap<u64, Window>,
    answers: HashMap<u64, u64>,
    /// Deliveries that are not complete, in order.
    pending: VecDeque<Pending>,
    /// Peers that wait for a slot for a piece, with their requests.
    asking: VecDeque<(usize, u64)>,
    /// Requests of peers for this rank's memory.
    wanted: VecDeque<Wanted>,
    /// The bytes of this rank's requests that came in messages; none of those in slots.
    got: HashMap<u64, Vec<u8>>,
    /// Answers to send.
    outbox: Vec<(usize, Header)>,
    /// Messages of legs, by sender and tag: of those under way, and of those that this rank has not begun.
    legs: HashMap<LegName, HashMap<(usize, u32), Vec<u8>>>,
    /// Messages of barriers, by channel and step.
    barriers: Vec<[u32; BARRIER_STEPS]>,
    fault: Option<(usize, Cause)>,
    /// Whether this rank's memory is going.
    closed: bool,
}

impl Inbox {
    /// Makes an empty inbox of a rank in a world of `world`.
    pub fn new(session: u64, world: usize, delivery: Box<dyn Delivery>) -> Self {
        Self {
            session,
            delivery,
            senders: vec![Sender::default(); world],
            windows: HashMap::new(),
            answers: HashMap::new(),
            pending: VecDeque::new(),
            asking: VecDeque::new(),
            wanted: VecDeque::new(),
            got: HashMap::new(),
            outbox: Vec::new(),
            legs: HashMap::new(),
            barriers: vec![[0; BARRIER_STEPS]; BARRIER_CHANNELS as usize],
            fault: None,
            closed: false,
        }
    }

    /// Makes an allocation known, which peers address from now on.
    pub fn open_window(&mut self, number: u64, base: DeviceAddress, bytes: u64) {
        let window = Window {
            base,
            bytes,
            given_up: Vec::new(),
        };
        self.windows.insert(number, window);
    }

    /// Delivers nothing from here on.
    pub fn close(&mut self) {
        self.closed = true;
        self.windows.clear();
        self.wanted.clear();
        self.asking.clear();
        self.pending.clear();
        self.delivery.abandon();
    }

    /// Waits a moment for deliveries under way, after [`Inbox::close`]. Returns whether none is left.
    pub fn drain(&self) -> bool {
        self.delivery.drain()
    }

    /// Forgets an allocation.
    pub fn close_window(&mut self, number: u64) {
        self.windows.remove(&number);
    }

    /// Returns whether a rank still addresses this rank's copy of an allocation.
    pub fn is_addressed_by(&self, number: u64, rank: usize) -> bool {
        let window = self.windows.get(&number);
        window.is_some_and(|window| !window.given_up.contains(&rank))
            && !self.senders[rank].departed
    }

    /// Returns whether a rank has left in good order.
    pub fn has_departed(&self, rank: usize) -> bool {
        self.senders[rank].departed
    }

    /// Returns how many of this rank's messages a peer has handled.
    pub fn acknowledged(&self, rank: usize) -> u64 {
        self.senders[rank].acknowledged
    }

    /// Returns how many messages of a peer were handled here, which the caller tells it.
    pub fn acknowledge(&mut self, rank: usize) -> u64 {
        let sender = &mut self.senders[rank];
        sender.due = false;
        sender.handled
    }

    /// Returns the ranks that wait for an acknowledgement.
    pub fn due(&self) -> impl Iterator<Item = usize> {
        let senders = self.senders.iter().enumerate();
        senders
            .filter(|(_, sender)| sender.due)
            .map(|(rank, _)| rank)
    }

    /// Takes the answers to send.
    pub fn take_outbox(&mut self) -> Vec<(usize, Header)> {
        std::mem::take(&mut self.outbox)
    }

    /// Takes the answer to a request, if it has come.
    pub fn take_answer(&mut self, request: u64) -> Option<u64> {
        self.answers.remove(&request)
    }

    /// Takes the bytes of a request, if they have come; none of those in this rank's slot.
    pub fn take_got(&mut self, request: u64) -> Option<Vec<u8>> {
        self.got.remove(&request)
    }

    /// Takes the next request of a peer for this rank's memory.
    pub fn take_wanted(&mut self) -> Option<Wanted> {
        self.wanted.pop_front()
    }

    /// Returns whether deliveries are under way.
    pub fn is_delivering(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Advances the deliveries, and acknowledges those that are complete. Returns whether there was one.
    pub fn settle(&mut self) -> bool {
        let mut moved = false;
        loop {
            let done = match self.delivery.take_done() {
                Ok(done) => done,
                Err(failure) => {
                    let source = self.pending.front().map_or(0, |pending| pending.source);
                    self.fault.get_or_insert((source, Cause::Backend(failure)));
                    None
                }
            };
            let Some(value) = done else { break };
            moved = true;
            let Some(Pending { source, request }) = self.pending.pop_front() else {
                continue;
            };
            match request {
                None => {
                    let sender = &mut self.senders[source];
                    sender.handled += 1;
                    sender.due = true;
                }
                Some(request) => self.outbox.push((
                    source,
                    Header {
                        kind: kind::ANSWER,
                        request,
                        operand: value,
                        ..Header::default()
                    },
                )),
            }
        }
        while let Some(&(source, request)) = self.asking.front()
            && let Some(slot) = self.delivery.grant()
        {
            self.asking.pop_front();
            moved = true;
            let header = Header {
                kind: kind::GRANT,
                request,
                operand: slot,
                ..Header::default()
            };
            self.outbox.push((source, header));
        }
        moved
    }

    /// Takes a message of a leg, if it has come.
    pub fn take_leg(&mut self, name: LegName, source: usize, tag: u32) -> Option<Vec<u8>> {
        self.legs.get_mut(&name)?.remove(&(source, tag))
    }

    /// Forgets a leg that is done.
    pub fn end_leg(&mut self, name: LegName) {
        self.legs.remove(&name);
    }

    /// Returns how many messages of a barrier's step have come.
    pub fn barriers(&self, channel: u32, step: u32) -> u32 {
        self.barriers[channel as usize][step as usize]
    }

    /// Returns the first message that made no sense, or could not be delivered: its sender, and the reason.
    pub fn fault(&self) -> Option<&(usize, Cause)> {
        self.fault.as_ref()
    }

    /// Handles a message. Messages of strangers are dropped; one of a peer that makes no sense is a fault.
    pub fn handle(&mut self, header: &[u8], data: &[u8]) {
        let Some(header) = Header::read(header) else {
            return;
        };
        let source = header.source as usize;
        if header.session != self.session || source >= self.senders.len() {
            return;
        }
        let sender = &mut self.senders[source];
        sender.acknowledged = sender.acknowledged.max(header.acknowledged);
        if let Err(cause) = self.take(source, &header, data) {
            self.fault.get_or_insert((source, cause));
        }
        self.settle();
    }

    fn take(&mut self, source: usize, header: &Header, data: &[u8]) -> Result<(), Cause> {
        match header.kind {
            kind::ACKNOWLEDGE => Ok(()),
            kind::PUT | kind::PIECE | kind::UPDATE | kind::ASK | kind::GET if self.closed => Ok(()),
            kind::PUT => self.put(source, header, Data::Message(data)),
            kind::PIECE => {
                let (slot, bytes) = (header.compare, header.operand);
                self.put(source, header, Data::Piece { slot, bytes })
            }
            kind::ASK => {
                self.asking.push_back((source, header.request));
                Ok(())
            }
            kind::GRANT => {
                self.answers.insert(header.request, header.operand);
                Ok(())
            }
            kind::GET => {
                let bytes = header.operand;
                self.wanted.push_back(Wanted {
                    source,
                    request: header.request,
                    from: self.at(header, bytes)?,
                    bytes,
                    slot: header.compare,
                });
                Ok(())
            }
            kind::GOT => {
                self.got.insert(header.request, data.to_vec());
                Ok(())
            }
            kind::UPDATE => self.update(source, header),
            kind::ANSWER => {
                self.answers.insert(header.request, header.operand);
                Ok(())
            }
            kind::LEG => {
                let name = LegName {
                    key: header.number,
                    number: header.request,
                };
                let leg = self.legs.entry(name).or_default();
                match leg.insert((source, header.value), data.to_vec()) {
                    None => Ok(()),
                    Some(_) => Err(Cause::Text(format!(
                        "two messages of a leg have tag {:#x}",
                        header.value
                    ))),
                }
            }
            kind::BARRIER => {
                let steps = self.barriers.get_mut(header.channel as usize);
                let count = steps.and_then(|steps| steps.get_mut(header.value as usize));
                let count = count.ok_or_else(|| {
                    Cause::Text("a barrier's message has no such channel or step".into())
                })?;
                *count = count.wrapping_add(1);
                Ok(())
            }
            kind::GIVEN_UP => {
                if let Some(window) = self.windows.get_mut(&header.number) {
                    window.given_up.push(source);
                }
                Ok(())
            }
            kind::FAREWELL => {
                self.senders[source].departed = true;
                Ok(())
            }
            other => Err(Cause::Text(format!(
                "a message is of kind {other}, which is unknown"
            ))),
        }
    }

    /// Returns the address of bytes of an allocation.
    fn at(&self, header: &Header, bytes: u64) -> Result<DeviceAddress, Cause> {
        let (number, offset) = (header.number, header.offset);
        let window = self.windows.get(&number);
        let window = window
            .ok_or_else(|| Cause::Text(format!("allocation {number} is unknown or freed")))?;
        if offset > window.bytes || bytes > window.bytes - offset {
            return Err(Cause::Text(format!(
                "{bytes} bytes at {offset} are outside of allocation {number}"
            )));
        }
        Ok(DeviceAddress(window.base.0 + offset))
    }

    fn put(&mut self, source: usize, header: &Header, data: Data<'_>) -> Result<(), Cause> {
        let bytes = match data {
            Data::Message(data) => data.len() as u64,
            Data::Piece { bytes, .. } => bytes,
        };
        let to = match bytes {
            0 => DeviceAddress::NULL,
            bytes => self.at(header, bytes)?,
        };
        let signal = match header.channel {
            NO_CHANNEL => None,
            channel if channel < CHANNELS => Some(Signal {
                channel,
                source,
                value: header.value,
            }),
            channel => return Err(Cause::Text(format!("there is no channel {channel}"))),
        };
        // SAFETY: the window is a registered allocation, and the bytes are inside.
        unsafe { self.delivery.put(to, data, signal) }.map_err(Cause::Backend)?;
        self.pending.push_back(Pending {
            source,
            request: None,
        });
        Ok(())
    }

    fn update(&mut self, source: usize, header: &Header) -> Result<(), Cause> {
        let bits = header.value >> 16;
        let operation = WordOperation {
            word: self.at(header, u64::from(bits / 8))?,
            result: DeviceAddress::NULL,
            operand: header.operand,
            compare: header.compare,
            update: WordUpdate(header.value & 0xffff),
            bits,
        };
        // SAFETY: the window is a registered allocation, and the word is inside.
        unsafe { self.delivery.update(operation) }.map_err(Cause::Backend)?;
        self.pending.push_back(Pending {
            source,
            request: Some(header.request),
        });
        Ok(())
    }
}
