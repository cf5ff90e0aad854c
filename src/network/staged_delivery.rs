//! Delivery into GPU memory, through pinned memory and on a stream of the network's own.

use super::copies::{Copies, Ticket};
use super::delivery::{Data, Delivery, Signal, not_granted};
use super::message::SMALL;
use super::pinned::{PIECE, Pinned, Pool};
use crate::backend::Failure;
use crate::backend::abi::{DeviceAddress, SignalPlacementCode, WordOperation};
use std::collections::VecDeque;
use std::time::Duration;

/// Time that copies under way may take when the communicator closes.
const DRAIN: Duration = Duration::from_millis(500);

/// A delivery that waits for a slot, or for those before it.
struct Waiting {
    to: DeviceAddress,
    kind: Kind,
    signal: Option<Signal>,
}

enum Kind {
    /// No bytes.
    Empty,
    /// Bytes of a message: in memory that senders bound, since each has few small messages under way.
    Message(Vec<u8>),
    Piece {
        slot: u64,
        bytes: u64,
    },
    Update(WordOperation),
}

/// A delivery that the stream executes.
struct Started {
    ticket: Ticket,
    slot: Slot,
}

/// What becomes free with a delivery.
enum Slot {
    None,
    Small(u64),
    Piece(u64),
    Result(u64),
}

/// Delivers by copies from pinned memory. Its stream orders copies, signals and updates of words.
pub struct StagedDelivery<W> {
    copies: Copies,
    pinned: Pinned,
    small: Pool,
    pieces: Pool,
    /// The slots that peers have.
    granted: Vec<u64>,
    waiting: VecDeque<Waiting>,
    started: VecDeque<Started>,
    /// Returns the address of the word of a rank's signals on a channel.
    word: W,
    placement: SignalPlacementCode,
}

impl<W: Fn(u32, usize) -> DeviceAddress + Send> StagedDelivery<W> {
    /// Takes a stream, pinned memory, slots for small messages and for pieces, and the function that returns the address
    /// of the word of a rank's signals on a channel.
    ///
    /// # Safety
    /// The words are signal words of this placement, and live as long as the stream has work, as the pinned memory does.
    pub unsafe fn new(
        copies: Copies,
        pinned: Pinned,
        (small, pieces): (Pool, Pool),
        word: W,
        placement: SignalPlacementCode,
    ) -> Self {
        Self {
            copies,
            pinned,
            small,
            pieces,
            granted: Vec::new(),
            waiting: VecDeque::new(),
            started: VecDeque::new(),
            word,
            placement,
        }
    }

    /// Starts the deliveries that have what they need, in order.
    fn start(&mut self) -> Result<(), Failure> {
        while let Some(next) = self.waiting.front() {
            let needs_slot = matches!(next.kind, Kind::Message(_) | Kind::Update(_));
            let small = match needs_slot {
                false => None,
                true => match self.small.take() {
                    // A slot becomes free with an earlier delivery.
                    None => return Ok(()),
                    slot => slot,
                },
            };
            let Some(next) = self.waiting.pop_front() else {
                return Ok(());
            };
            let slot = self.enqueue(&next, small.unwrap_or_default())?;
            let ticket = self.copies.count()?;
            self.started.push_back(Started { ticket, slot });
        }
        Ok(())
    }

    fn enqueue(&mut self, delivery: &Waiting, small: u64) -> Result<Slot, Failure> {
        // SAFETY: `put` and `update` are told that the memory is registered, and what is registered lives as long as the
        // stream has work; the slots are nobody else's until the ticket is done. The words live as `new` was told.
        unsafe {
            let slot = match &delivery.kind {
                Kind::Empty => Slot::None,
                Kind::Message(data) => {
                    self.pinned.fill(small, data);
                    let from = self.pinned.device(small);
                    self.copies.copy(delivery.to, from, data.len() as u64)?;
                    Slot::Small(small)
                }
                Kind::Piece { slot, bytes } => {
                    let from = self.pinned.device(*slot);
                    self.copies.copy(delivery.to, from, *bytes)?;
                    Slot::Piece(*slot)
                }
                Kind::Update(operation) => {
                    self.pinned.fill(small, &[0; 8]);
                    self.copies.update(&WordOperation {
                        result: self.pinned.device(small),
                        ..*operation
                    })?;
                    Slot::Result(small)
                }
            };
            if let Some(signal) = delivery.signal {
                let word = (self.word)(signal.channel, signal.source);
                self.copies.signal(word, signal.value, self.placement)?;
            }
            Ok(slot)
        }
    }
}

impl<W: Fn(u32, usize) -> DeviceAddress + Send> Delivery for StagedDelivery<W> {
    unsafe fn put(
        &mut self,
        address: DeviceAddress,
        data: Data<'_>,
        signal: Option<Signal>,
    ) -> Result<(), Failure> {
        let kind = match data {
            Data::Message([]) => Kind::Empty,
            Data::Message(data) if data.len() as u64 <= SMALL => Kind::Message(data.to_vec()),
            Data::Message(_) => return Err(not_granted()),
            Data::Piece { slot, bytes } => {
                let at = self.granted.iter().position(|&granted| granted == slot);
                let fits = at.filter(|_| bytes <= PIECE).ok_or_else(not_granted);
                self.granted.swap_remove(fits?);
                Kind::Piece { slot, bytes }
            }
        };
        self.waiting.push_back(Waiting {
            to: address,
            kind,
            signal,
        });
        self.start()
    }

    unsafe fn update(&mut self, operation: WordOperation) -> Result<(), Failure> {
        self.waiting.push_back(Waiting {
            to: DeviceAddress::NULL,
            kind: Kind::Update(operation),
            signal: None,
        });
        self.start()
    }

    fn take_done(&mut self) -> Result<Option<u64>, Failure> {
        let Some(oldest) = self.started.front() else {
            return Ok(None);
        };
        if !self.copies.is_done(oldest.ticket) {
            self.copies.check()?;
            return Ok(None);
        }
        let slot = self.started.pop_front().map(|started| started.slot);
        let mut result = 0;
        match slot {
            None | Some(Slot::None) => {}
            Some(Slot::Small(slot)) => self.small.give_back(slot),
            Some(Slot::Piece(slot)) => self.pieces.give_back(slot),
            Some(Slot::Result(slot)) => {
                // SAFETY: the device has written the result, and the slot is still this delivery's.
                result = unsafe { self.pinned.number(slot) };
                self.small.give_back(slot);
            }
        }
        self.start()?;
        Ok(Some(result))
    }

    fn grant(&mut self) -> Option<u64> {
        let slot = self.pieces.take()?;
        self.granted.push(slot);
        Some(slot)
    }

    fn abandon(&mut self) {
        self.waiting.clear();
        self.started.clear();
    }

    fn drain(&self) -> bool {
        self.copies.drain(DRAIN)
    }
}
