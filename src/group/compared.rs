//! What members have compared in debug mode so far, so that they compare the same.

use crate::base::limits::COLLECTIVE_CHANNELS;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What has been compared so far, so that members compare the same.
#[derive(Default)]
pub struct Compared {
    /// Calls of all members, by channel.
    calls: [AtomicU64; COLLECTIVE_CHANNELS as usize],
    /// Messages of two members, by channel, the other one, and whether this rank sends.
    messages: Mutex<HashMap<(u32, usize, bool), u64>>,
}

impl Compared {
    /// The number of the next call of all members on a channel.
    pub fn next_call(&self, channel: u32) -> u64 {
        self.calls[channel as usize].fetch_add(1, Ordering::Relaxed)
    }

    /// The number of the next message to or from a member on a channel.
    pub fn next_message(&self, channel: u32, member: usize, sends: bool) -> u64 {
        // A count is whole whatever became of who held it.
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let next = messages.entry((channel, member, sends)).or_default();
        let number = *next;
        *next += 1;
        number
    }
}
