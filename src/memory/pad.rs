//! The signal pad: the words that peers write, and the counters of epochs.
//!
//! Each communicator has one symmetric allocation with the same layout on all ranks. Signals number givers among all
//! ranks of the world; barriers are of the ranks of a node and number them there:
//!
//! ```text
//! words     [channel][giver]   SIGNAL_STRIDE bytes apart; each giver writes its own
//! given     [channel][peer]    counter: signals this rank has given     (used by this rank only)
//! waited    [channel][peer]    counter: signals this rank has waited for        (likewise)
//! arrivals  [channel][peer]    by which the blocks of a put find the last       (likewise)
//! departures [channel][peer]   by which the blocks of a waiting grid do         (likewise)
//! aborted                      set by the first wait that sees an abort         (likewise)
//! ```
//!
//! The first [`CHANNELS`] channels are for signals, the [`BARRIER_CHANNELS`] after them for barriers,
//! whose one counter is `given[channel][0]`. With [`SignalPlacementCode::HOST`] words are in a memory file
//! that all ranks map and register with their device, and the host keeps the counters.

use crate::backend::Device;
use crate::backend::abi::{
    Barrier, DeviceAddress, Handle, HostMemory, MAX_RANKS, SIGNAL_STRIDE, SignalPlacementCode,
    SignalTarget, SignalWait, Watch,
};
use crate::base::error::{Error, Result};
use crate::base::limits::{BARRIER_CHANNELS, CHANNELS};
use crate::base::placement::Placement;
use crate::base::shared_file;
use crate::base::shared_file::SharedFile;
use crate::rank::allocation::Allocation;
use crate::rank::context::{Closing, Context};
use crate::rank::driver::Driver;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const ALL: u64 = (CHANNELS + BARRIER_CHANNELS) as u64;

/// The signal pad of a communicator.
pub struct SignalPad {
    world: u64,
    rank: u64,
    placement: Arc<Placement>,
    allocation: Arc<Allocation>,
    host: Option<HostPad>,
}

impl SignalPad {
    /// Returns the bytes of the device allocation.
    pub fn bytes(world: usize) -> u64 {
        let world = world as u64;
        Self::aborted_offset(world) + 4
    }

    /// Makes a pad in `allocation`, which is zeroed.
    pub fn new(
        rank: usize,
        placement: Arc<Placement>,
        allocation: Arc<Allocation>,
        host: Option<HostPad>,
    ) -> Self {
        Self {
            world: placement.world() as u64,
            rank: rank as u64,
            placement,
            allocation,
            host,
        }
    }

    /// Returns the offset of the word about aborts, in a cache line of its own: waits read it while kernels count.
    fn aborted_offset(world: u64) -> u64 {
        (ALL * world * (SIGNAL_STRIDE + 4 * 4)).next_multiple_of(SIGNAL_STRIDE)
    }

    /// Returns the address of [`Watch::aborted`] on this rank. The pad is new and zeroed in each communicator, a rebuilt
    /// one included, so no communicator sees the abort of another.
    pub fn aborted(&self) -> DeviceAddress {
        let offset = Self::aborted_offset(self.world);
        self.allocation.at(self.rank as usize, offset)
    }

    fn word(&self, at: u64, channel: u64, giver: u64) -> DeviceAddress {
        let offset = (channel * self.world + giver) * SIGNAL_STRIDE;
        self.allocation.at(at as usize, offset)
    }

    fn counter(&self, kind: u64, channel: u64, peer: u64) -> DeviceAddress {
        let words = ALL * self.world * SIGNAL_STRIDE;
        let offset = words + ((kind * ALL + channel) * self.world + peer) * 4;
        self.allocation.at(self.rank as usize, offset)
    }

    /// Returns the placement of the words.
    pub fn placement(&self) -> SignalPlacementCode {
        match self.host {
            Some(_) => SignalPlacementCode::HOST,
            None => SignalPlacementCode::DEVICE,
        }
    }

    /// Returns the address of this rank's word for the signals of `giver` on `channel`.
    pub fn arrival(&self, channel: u32, giver: usize) -> DeviceAddress {
        let (channel, giver) = (u64::from(channel), giver as u64);
        match &self.host {
            None => self.word(self.rank, channel, giver),
            Some(host) => host.word(self.rank, channel, giver).1,
        }
    }

    /// Returns this rank's next signal to `peer` on `channel`. With words on the host, counts it.
    pub fn target(&self, channel: u32, peer: usize) -> SignalTarget {
        let (channel, peer) = (u64::from(channel), peer as u64);
        let arrivals = self.counter(2, channel, peer);
        match &self.host {
            None => SignalTarget {
                word: self.word(peer, channel, self.rank),
                epoch: self.counter(0, channel, peer),
                arrivals,
                value: 0,
                reserved: 0,
            },
            Some(host) => SignalTarget {
                word: host.word(peer, channel, self.rank).1,
                epoch: DeviceAddress::NULL,
                arrivals,
                value: host
                    .given(channel, peer)
                    .fetch_add(1, Ordering::Relaxed)
                    .wrapping_add(1),
                reserved: 0,
            },
        }
    }

    /// Takes back a signal whose work was refused: a gap in the count would satisfy a later wait too early.
    /// Counters on the device have not moved.
    pub fn untarget(&self, channel: u32, peer: usize, target: &SignalTarget) {
        if let Some(host) = &self.host {
            uncount(host.given(u64::from(channel), peer as u64), target.value);
        }
    }

    /// Takes back a wait whose work was refused.
    pub fn unwait(&self, channel: u32, peer: usize, wait: &SignalWait) {
        if let Some(host) = &self.host {
            uncount(host.waited(u64::from(channel), peer as u64), wait.value);
        }
    }

    /// Returns this rank's wait for `peer`'s next signal on `channel`; with words on the host, also the host's
    /// pointer to the word.
    pub fn wait(
        &self,
        channel: u32,
        peer: usize,
        watch: Watch,
    ) -> (SignalWait, Option<*const AtomicU32>) {
        let slot = channel;
        let (channel, peer) = (u64::from(channel), peer as u64);
        let mut wait = SignalWait {
            word: self.word(self.rank, channel, peer),
            epoch: self.counter(1, channel, peer),
            watch,
            value: 0,
            peer: peer as u32,
            slot,
            reserved: 0,
        };
        let Some(host) = &self.host else {
            return (wait, None);
        };
        let (pointer, address) = host.word(self.rank, channel, peer);
        wait.word = address;
        wait.epoch = DeviceAddress::NULL;
        wait.value = host
            .waited(channel, peer)
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1);
        (wait, Some(pointer))
    }

    /// Returns a handle with the words and counters of `channel`, for kernels that signal and wait themselves;
    /// the caller fills in the rest. `None` with words on the host: kernels cannot see the host's counters. All ranks are
    /// on one node.
    pub fn handle(&self, channel: u32, watch: Watch) -> Option<Handle> {
        if self.host.is_some() {
            return None;
        }
        let index = u64::from(channel);
        let mut signals = [DeviceAddress::NULL; MAX_RANKS];
        for peer in 0..self.world {
            signals[peer as usize] = self.word(peer, index, 0);
        }
        Some(Handle {
            size: Handle::SIZE,
            version: Handle::VERSION,
            watch,
            bases: [DeviceAddress::NULL; MAX_RANKS],
            signals,
            given: self.counter(0, index, 0),
            waited: self.counter(1, index, 0),
            arrivals: self.counter(2, index, 0),
            departures: self.counter(3, index, 0),
            bytes: 0,
            rank: self.rank as u32,
            world: self.world as u32,
            channel,
            reserved: 0,
        })
    }

    /// Returns a barrier of the ranks of this node on barrier channel `channel`.
    pub fn barrier(&self, channel: u32, watch: Watch) -> Barrier {
        let index = u64::from(CHANNELS + channel);
        let rank = self.rank as usize;
        let (members, own) = (
            self.placement.node_members(rank),
            self.placement.local_rank(rank),
        );
        let mut peers = [DeviceAddress::NULL; MAX_RANKS];
        for (address, &peer) in peers.iter_mut().zip(members) {
            *address = self.word(peer as u64, index, own as u64);
        }
        Barrier {
            // The ranks of a barrier are numbered on their node.
            watch: Watch {
                rank: own as u32,
                ..watch
            },
            epoch: self.counter(0, index, 0),
            own: self.word(self.rank, index, 0),
            peers,
            world: members.len() as u32,
            slot: channel,
        }
    }
}

impl Closing for SignalPad {
    /// Ends the use of host words by the device.
    fn close(&self, driver: &Driver) {
        if let Some(host) = &self.host {
            // SAFETY: registered by `HostPad::new`; no work uses the words.
            if let Err(failure) = unsafe { driver.backend.host_unregister(host.memory.host) } {
                tracing::warn!(rank = driver.rank, %failure, "host_unregister failed");
            }
        }
    }
}

/// Decrements `counter` if `value` was counted last. Signals to one peer on one channel are ordered, so it was,
/// unless the caller broke that order; the caller then sees the gap.
fn uncount(counter: &AtomicU32, value: u32) {
    let _ = counter.compare_exchange(
        value,
        value.wrapping_sub(1),
        Ordering::Relaxed,
        Ordering::Relaxed,
    );
}

/// Signal words in host memory: `[owner][channel][giver]`, one file for all ranks of a node.
pub struct HostPad {
    memory: HostMemory,
    /// Keeps the words mapped.
    _file: SharedFile,
    world: u64,
    placement: Arc<Placement>,
    given: Vec<AtomicU32>,
    waited: Vec<AtomicU32>,
}

// SAFETY: the mapping is only accessed through atomics and by the device.
unsafe impl Send for HostPad {}
// SAFETY: as above.
unsafe impl Sync for HostPad {}

impl HostPad {
    /// Returns the bytes of the file for the `owners` of a node in a world of `world` ranks.
    pub fn bytes(owners: usize, world: usize) -> u64 {
        let bytes = owners as u64 * u64::from(CHANNELS) * world as u64 * SIGNAL_STRIDE;
        // Devices register whole pages, which can have 64 KiB on aarch64.
        bytes.next_multiple_of(rustix::param::page_size() as u64)
    }

    /// Creates the file for the `owners` of a node in a world of `world` ranks, on the node's lowest rank, which hands it to
    /// the others.
    ///
    /// # Errors
    /// The operating system's errors.
    pub fn create_file(owners: usize, world: usize) -> rustix::io::Result<OwnedFd> {
        shared_file::create("symmem-signals", Self::bytes(owners, world) as usize)
    }

    /// Maps the file and registers it with the device.
    ///
    /// # Errors
    /// The operating system's or the backend's errors.
    pub fn new(shared: &Context, file: OwnedFd) -> Result<Self> {
        let (rank, world) = (shared.rank, shared.world);
        let placement = shared.placement.clone();
        let bytes = Self::bytes(placement.node_members(rank).len(), world);
        let file = SharedFile::map(file, bytes as usize).map_err(|error| Error::System {
            rank,
            call: "mapping the signals' file",
            reason: error.to_string(),
        })?;
        // SAFETY: mapped above, page-aligned, and unmapped only after `close` has unregistered it.
        let registered = unsafe { shared.backend.host_register(file.pointer() as u64, bytes) };
        let memory = registered
            .map_err(|failure| Error::backend(rank, "host_register", failure).about(None, bytes))?;
        let counters = || (0..u64::from(CHANNELS) * world as u64).map(|_| AtomicU32::new(0));
        Ok(Self {
            memory,
            _file: file,
            world: world as u64,
            placement,
            given: counters().collect(),
            waited: counters().collect(),
        })
    }

    fn word(&self, owner: u64, channel: u64, giver: u64) -> (*const AtomicU32, DeviceAddress) {
        let owner = self.placement.local_rank(owner as usize) as u64;
        let index = (owner * u64::from(CHANNELS) + channel) * self.world + giver;
        let offset = index * SIGNAL_STRIDE;
        (
            (self.memory.host + offset) as *const AtomicU32,
            DeviceAddress(self.memory.device.0 + offset),
        )
    }

    fn given(&self, channel: u64, peer: u64) -> &AtomicU32 {
        &self.given[(channel * self.world + peer) as usize]
    }

    fn waited(&self, channel: u64, peer: u64) -> &AtomicU32 {
        &self.waited[(channel * self.world + peer) as usize]
    }
}
