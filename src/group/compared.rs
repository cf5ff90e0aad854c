//! Numbers for the calls that members compare in debug mode.

use crate::base::limits::COLLECTIVE_CHANNELS;
use crate::base::lock::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts calls and messages, so that each member compares its n-th with the others' n-th.
#[derive(Default)]
pub struct Compared {
    /// Number of compared calls of all members, by channel.
    calls: [AtomicU64; COLLECTIVE_CHANNELS as usize],
    /// Number of compared messages, by channel, the other member, and whether this rank sends.
    messages: Mutex<HashMap<(u32, usize, bool), u64>>,
}

impl Compared {
    /// Returns the number of the next call of all members on a channel.
    pub fn next_call(&self, channel: u32) -> u64 {
        self.calls[channel as usize].fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of the next message to or from a member on a channel.
    pub fn next_message(&self, channel: u32, member: usize, sends: bool) -> u64 {
        let mut messages = lock(&self.messages);
        let next = messages.entry((channel, member, sends)).or_default();
        let number = *next;
        *next += 1;
        number
    }
}
