//! Numbers that several folders share.

use std::time::Duration;

/// Channels for signals. Signals on different channels do not wait for each other.
pub const CHANNELS: u32 = 32;
/// Channels for barriers.
pub const BARRIER_CHANNELS: u32 = 8;
/// Channels of collectives. Those on different channels do not wait for each other.
pub const COLLECTIVE_CHANNELS: u32 = 4;

/// Says why `channel` is refused where there are only so many.
pub fn check_channel(channel: u32, channels: u32) -> Result<(), String> {
    match channel < channels {
        true => Ok(()),
        false => Err(format!("channel {channel}; there are {channels}, from 0")),
    }
}

/// Lanes by which a copy to a peer can go where devices share their links; the first is the caller's own
/// stream. Two hide each other's steps: a third would find the link busy.
pub const LANES: usize = 2;

/// How long teardown waits in good order for work that is under way, and for peers.
pub const GOOD_ORDER: Duration = Duration::from_secs(3);
/// How long waiting kernels and streams have to leave once all is lost.
pub const DRAIN: Duration = Duration::from_secs(2);

/// Allocations that can be live, or dropped and not yet released by all ranks, at once.
pub const MAX_ALLOCATIONS: usize = 4096;

/// How often each rank's watcher looks at its peers, and says that it runs.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(50);
