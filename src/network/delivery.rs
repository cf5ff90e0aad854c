//! Delivery of what other nodes send into this rank's memory.

use crate::backend::Failure;
use crate::backend::abi::{DeviceAddress, WordOperation};
use std::collections::VecDeque;

/// Bytes of a peer.
#[derive(Clone, Copy, Debug)]
pub enum Data<'d> {
    /// Bytes of a message, which is gone after the call.
    Message(&'d [u8]),
    /// Bytes that the peer has put into a slot of this rank's pinned memory, which [`Delivery::grant`] gave it.
    Piece {
        /// The slot.
        slot: u64,
        /// Number of bytes.
        bytes: u64,
    },
}

/// A signal of a peer.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    /// The channel.
    pub channel: u32,
    /// The rank that signals.
    pub source: usize,
    /// The value of the word from then on.
    pub value: u32,
}

/// Writes into this rank's memory on behalf of ranks of other nodes. Called by the thread that progresses the network.
///
/// Deliveries are started, become complete in the order of the calls, and take effect in that order, too. Nothing here
/// blocks.
pub trait Delivery: Send {
    /// Starts to write bytes, maybe none, and raises a signal behind them, and behind all earlier deliveries.
    ///
    /// # Errors
    /// The backend's; a slot that was not granted.
    ///
    /// # Safety
    /// The bytes at `address` are in a registered allocation of this rank.
    unsafe fn put(
        &mut self,
        address: DeviceAddress,
        data: Data<'_>,
        signal: Option<Signal>,
    ) -> Result<(), Failure>;

    /// Starts to update a word, behind all earlier deliveries.
    ///
    /// # Errors
    /// The backend's; an error for a number that names no operation.
    ///
    /// # Safety
    /// The word is in a registered allocation of this rank.
    unsafe fn update(&mut self, operation: WordOperation) -> Result<(), Failure>;

    /// Advances the deliveries, and takes the oldest if it is complete: the earlier value of an update, 0 of a put.
    ///
    /// # Errors
    /// The backend's.
    fn take_done(&mut self) -> Result<Option<u64>, Failure>;

    /// Takes a slot of pinned memory for a piece of a peer, if one is free. It is free again once the piece is delivered.
    fn grant(&mut self) -> Option<u64>;

    /// Drops the deliveries that have not been started. Those that have may go on.
    fn abandon(&mut self);

    /// Returns once no delivery is under way, or after a moment: then the device is stuck.
    fn drain(&self) -> bool;
}

/// Delivery into memory that the host addresses as the device does.
pub struct HostDelivery<W> {
    /// Returns the address of the word of a rank's signals on a channel.
    word: W,
    done: VecDeque<u64>,
}

impl<W: Fn(u32, usize) -> DeviceAddress + Send> HostDelivery<W> {
    /// Takes the function that returns the address of the word of a rank's signals on a channel.
    ///
    /// # Safety
    /// The words are signal words in host memory, and live as long as the value.
    pub unsafe fn new(word: W) -> Self {
        Self {
            word,
            done: VecDeque::new(),
        }
    }
}

impl<W: Fn(u32, usize) -> DeviceAddress + Send> Delivery for HostDelivery<W> {
    unsafe fn put(
        &mut self,
        address: DeviceAddress,
        data: Data<'_>,
        signal: Option<Signal>,
    ) -> Result<(), Failure> {
        let Data::Message(data) = data else {
            return Err(not_granted());
        };
        if !data.is_empty() {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(address.0 as usize);
            // SAFETY: guaranteed by the caller; UCX's buffer is not in it.
            unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        }
        if let Some(signal) = signal {
            let word = (self.word)(signal.channel, signal.source);
            // SAFETY: guaranteed to `new`.
            unsafe { symmem_core::host::raise_signal(word, signal.value) };
        }
        self.done.push_back(0);
        Ok(())
    }

    unsafe fn update(&mut self, operation: WordOperation) -> Result<(), Failure> {
        let mut old = 0_u64;
        let operation = WordOperation {
            result: DeviceAddress((&raw mut old).expose_provenance() as u64),
            ..operation
        };
        // SAFETY: the caller guarantees the word; the result is this function's.
        unsafe { symmem_core::host::update_word(&operation)? };
        // SAFETY: written by address above, which the compiler does not see.
        self.done
            .push_back(unsafe { (&raw const old).read_volatile() });
        Ok(())
    }

    fn take_done(&mut self) -> Result<Option<u64>, Failure> {
        Ok(self.done.pop_front())
    }

    /// Returns none: peers put into this memory directly.
    fn grant(&mut self) -> Option<u64> {
        None
    }

    fn abandon(&mut self) {
        self.done.clear();
    }

    fn drain(&self) -> bool {
        true
    }
}

/// Makes the failure of a piece in a slot that its sender does not have.
pub fn not_granted() -> Failure {
    Failure::new(
        crate::backend::abi::Status::INVALID_ARGUMENT,
        "deliver",
        "a piece is in a slot that was not granted",
    )
}
