//! Signals and barriers, counted on words that the library owns.

use crate::backend::{Collectives, Signals};
use crate::base::error::Result;
use crate::base::limits::{BARRIER_CHANNELS, CHANNELS};
use crate::health::watcher::HostWait;
use crate::stream::queue::Queue;
use std::time::{Duration, Instant};

impl Queue {
    /// Holds the stream until `peer`'s next signal on `channel`; later work of this stream sees what
    /// the peer had put before it.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`], the backend's, what poisoned the communicator. A peer that does
    /// not signal within the deadline, or dies, is an error of [`crate::Stream::synchronize`].
    pub fn wait_signal(&self, peer: usize, channel: u32) -> Result<()> {
        self.wait_signal_within(peer, channel, self.world().deadlines.wait)
    }

    /// [`Queue::wait_signal`] with a deadline of its own, counted from when the wait starts.
    ///
    /// # Errors
    /// As [`Queue::wait_signal`].
    pub fn wait_signal_within(&self, peer: usize, channel: u32, deadline: Duration) -> Result<()> {
        let world = self.world();
        world.health.check()?;
        world.check_peer(peer, "wait_signal")?;
        self.check_channel("wait_signal", channel, CHANNELS)?;
        self.check_placement("wait_signal")?;
        let pad = &world.pad;
        let (wait, word) = pad.wait(channel, peer, world.health.watch(deadline));
        let submit = self.submit("wait_signal");
        let (backend, stream) = (submit.backend(), submit.stream());
        // SAFETY: the pad, the abort word and the record live as long as the world, which this queue holds and
        // which drains its streams before it lets them go.
        let enqueued = unsafe { backend.signal_wait(&wait, pad.placement(), stream) };
        submit.end(enqueued).map_err(|error| {
            pad.unwait(channel, peer, &wait);
            error.about(Some(peer), 0)
        })?;
        if let Some(word) = word {
            world.health.guard(HostWait {
                word,
                value: wait.value,
                peer,
                channel,
                since: Instant::now(),
                limit: deadline,
            });
        }
        Ok(())
    }

    /// Holds the stream until every rank's stream has reached its barrier on this channel; work
    /// before it at any rank is visible after it at every rank. Collective on the device: barriers
    /// on one channel must be ordered among themselves at each rank.
    ///
    /// # Errors
    /// As [`Queue::wait_signal`].
    pub fn barrier(&self) -> Result<()> {
        self.barrier_within(0, self.world().deadlines.wait)
    }

    /// [`Queue::barrier`] on one of [`BARRIER_CHANNELS`] channels, with a deadline of its own.
    ///
    /// # Errors
    /// As [`Queue::wait_signal`].
    pub fn barrier_within(&self, channel: u32, deadline: Duration) -> Result<()> {
        let world = self.world();
        world.health.check()?;
        self.check_channel("barrier", channel, BARRIER_CHANNELS)?;
        let barrier = world.pad.barrier(channel, world.health.watch(deadline));
        let submit = self.submit("barrier");
        // SAFETY: as in `wait_signal_within`.
        let enqueued = unsafe { submit.backend().barrier(&barrier, submit.stream()) };
        submit.end(enqueued)
    }
}
