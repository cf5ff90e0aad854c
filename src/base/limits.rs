//! Numbers that several folders share.

use std::time::Duration;

/// Number of channels for signals. Signals on different channels do not wait for each other.
pub const CHANNELS: u32 = 32;
/// Number of channels for [`crate::Queue::barrier_within`].
pub const BARRIER_CHANNELS: u32 = 8;
/// Number of channels for collectives. Collectives on different channels do not wait for each other.
pub const COLLECTIVE_CHANNELS: u32 = 4;

/// Checks that `channel` is below `channels`; returns the error text if it is not.
pub fn check_channel(channel: u32, channels: u32) -> Result<(), String> {
    match channel < channels {
        true => Ok(()),
        false => Err(format!(
            "channel {channel} is out of range; there are {channels} channels, numbered from 0"
        )),
    }
}

/// Number of lanes of copies to a peer where devices share their links; the first is the caller's own stream.
/// Two lanes hide each other's latency; a third would find the link busy.
pub const LANES: usize = 2;

/// Time that an orderly teardown waits for work under way, and for peers.
pub const GOOD_ORDER: Duration = Duration::from_secs(3);
/// Time that waiting kernels and streams have to leave once the communicator is poisoned.
pub const DRAIN: Duration = Duration::from_secs(2);

/// Most allocations that can be live, or dropped and not yet released by all ranks, at once.
pub const MAX_ALLOCATIONS: usize = 4096;

/// Interval at which each rank's watcher checks its peers and updates its heartbeat.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(50);

/// Most ranks of a world that spans nodes. A node has at most [`MAX_RANKS`](crate::backend::abi::MAX_RANKS) of them, as
/// many as a kernel addresses.
pub const MAX_WORLD: usize = 512;

/// Shortest time of silence after which a rank can count as dead: several rounds of its watcher.
pub const LEAST_SILENCE: Duration = Duration::from_millis(300);
