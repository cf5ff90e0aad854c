//! Signals and barriers. The library owns the words that they count on.

use crate::backend::{CollectiveKernels, Signals};
use crate::base::error::Result;
use crate::base::limits::{BARRIER_CHANNELS, CHANNELS};
use crate::health::host_waits::HostWait;
use crate::network::command::Action;
use crate::stream::queue::Queue;
use std::time::{Duration, Instant};

/// Time by which the wait for this node's ranks outlasts that for the other nodes.
const VERDICT_GRACE: Duration = Duration::from_secs(1);

impl Queue {
    /// Enqueues a wait for `peer`'s next signal on `channel`. Later work of this stream sees everything that
    /// the peer put before it signaled. The host does not wait.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, left: usize, x: &SymmetricBuffer<f32>) -> Result<()> {
    /// stream.wait_signal(left, 0)?; // the stream waits for `put_signal` of rank `left` on channel 0
    /// stream.all_reduce(x, x, ReduceOp::Sum)?; // starts after the signal
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if there is no such peer or channel; [`crate::Error::Unsupported`] in
    /// a capture, if signals live in host memory; the backend's errors; the error that poisoned the
    /// communicator. If the peer dies or does not signal within the deadline, [`crate::Stream::synchronize`]
    /// returns the error.
    pub fn wait_signal(&self, peer: usize, channel: u32) -> Result<()> {
        self.wait_signal_within(peer, channel, self.world().deadlines.wait)
    }

    /// [`Queue::wait_signal`] with its own deadline, counted from the start of the wait on the device; with signals
    /// in host memory, from this call.
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
        let (wait, word) = pad.wait(channel, peer, world.watch(deadline));
        let submit = self.submit_wait("wait_signal")?;
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

    /// Enqueues a barrier on channel 0: later work of this stream starts once every rank's stream has reached
    /// its barrier. Work before the barrier at any rank is visible after it at every rank. Every rank must
    /// enqueue it. Each rank must order its barriers on one channel among themselves, by one stream or by
    /// events. The host does not wait.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, peer: usize, x: &SymmetricBuffer<f32>, y: &SymmetricBuffer<f32>) -> Result<()> {
    /// stream.put(peer, y, x)?;
    /// stream.barrier()?; // all ranks' puts have arrived
    /// stream.all_reduce(y, y, ReduceOp::Sum)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The backend's errors; the error that poisoned the communicator. If a rank dies or does not come within the
    /// deadline, [`crate::Stream::synchronize`] returns the error.
    pub fn barrier(&self) -> Result<()> {
        self.barrier_within(0, self.world().deadlines.wait)
    }

    /// [`Queue::barrier`] on `channel`, one of [`BARRIER_CHANNELS`], with its own deadline.
    ///
    /// # Errors
    /// As [`Queue::barrier`]; [`crate::Error::InvalidArgument`] if there is no such channel.
    pub fn barrier_within(&self, channel: u32, deadline: Duration) -> Result<()> {
        let world = self.world();
        world.health.check()?;
        self.check_channel("barrier", channel, BARRIER_CHANNELS)?;
        if world.network.is_none() {
            return self.node_barrier(channel, deadline);
        }
        // The ranks of the node meet, their first rank meets those of the other nodes, and lets the others go on.
        let neighbors = world.placement.node_members(world.rank);
        let several = neighbors.len() > 1;
        if several {
            self.node_barrier(channel, deadline)?;
        }
        if neighbors[0] == world.rank {
            let submit = self.submit_chained("barrier");
            let action = Action::Barrier { channel };
            self.enqueue_remote(&submit, "barrier", deadline, action)?;
        }
        match several {
            // The first rank reports a node that does not come, which says more.
            true => self.node_barrier(channel, deadline.saturating_add(VERDICT_GRACE)),
            false => Ok(()),
        }
    }

    /// Enqueues a barrier of the ranks of this node.
    fn node_barrier(&self, channel: u32, deadline: Duration) -> Result<()> {
        let world = self.world();
        let barrier = world.pad.barrier(channel, world.watch(deadline));
        let submit = self.submit("barrier");
        // SAFETY: as in `wait_signal_within`.
        let enqueued = unsafe { submit.backend().barrier(&barrier, submit.stream()) };
        submit.end(enqueued)
    }
}
