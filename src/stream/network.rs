//! Commands to ranks of other nodes on a queue.
//!
//! The stream starts a command through a word in host memory, and waits for it through another. Commands that follow
//! each other chain inside of the network, without returning to the stream: the stream waits once it has other work.

use crate::backend::Signals;
use crate::backend::abi::SignalPlacementCode;
use crate::base::error::{Error, Result};
use crate::base::lock::lock;
use crate::health::host_waits::HostWait;
use crate::network::command::{Action, Command, Place};
use crate::network::lane::Lane;
use crate::network::network::Network;
use crate::network::section::Section;
use crate::network::slots::Slot;
use crate::rank::driver::Driver;
use crate::rank::memory_range::MemoryRange;
use crate::rank::release::{Progress, Resource};
use crate::rank::submit::{Launched, Submit};
use crate::stream::queue::Queue;
use crate::stream::remote::Overlap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use symmem_core::epoch::reached;

impl Queue {
    /// Returns whether `peer` is a rank of another node.
    #[inline]
    pub(crate) fn is_remote(&self, peer: usize) -> bool {
        let world = self.world();
        world.network.is_some() && !world.placement.share_node(world.rank, peer)
    }

    /// Lets work that is enqueued run beside the legs of collectives enqueued before it, until the value is dropped. The
    /// caller waits for those whose results it needs. A graph's work waits for them.
    pub(crate) fn overlap(&self) -> Overlap<'_> {
        Overlap::of(self.remote())
    }

    /// Returns the number of the last command enqueued; `None` if there is none, or it is recorded.
    pub(crate) fn last_leg(&self) -> Option<u32> {
        let lane = self.remote().lane.get()?;
        (!self.is_capturing()).then(|| lane.enqueued().commands)
    }

    /// Makes the stream wait for a command and those before it.
    ///
    /// # Errors
    /// The backend's.
    pub(crate) fn wait_for_legs(&self, command: Option<u32>) -> Result<()> {
        const NAME: &str = "wait for the network";
        let Some(lane) = self.remote().lane.get() else {
            return self.join_network();
        };
        match command {
            None => self.join_network(),
            Some(number) if reached(lane.slot.done(), number) => Ok(()),
            Some(number) => self.wait_for_network(NAME, lane, number),
        }
    }

    fn network(&self, operation: &'static str) -> Result<&Arc<Network>> {
        let world = self.world();
        let network = world.network.as_ref();
        network.ok_or_else(|| self.invalid(operation, "all ranks are on this node"))
    }

    fn remote_lane(&self, network: &Network) -> Result<&Arc<Lane>> {
        let known = &self.remote().lane;
        if let Some(lane) = known.get() {
            return Ok(lane);
        }
        let lane = network.open_lane(self.world())?;
        if let Err(lane) = known.set(lane) {
            // Another thread was faster.
            lane.close();
            network.give_back(lane.slot);
        }
        known.get().ok_or_else(|| Error::Aborted {
            rank: self.world().rank,
        })
    }

    /// Enqueues a transfer to or from a rank of another node.
    pub(crate) fn transfer_remote(
        &self,
        operation: &'static str,
        peer: usize,
        (destination, source): (&MemoryRange<'_>, &MemoryRange<'_>),
        is_get: bool,
        channel: Option<u32>,
    ) -> Result<()> {
        let submit = self.submit_chained(operation);
        let rank = submit.rank();
        let (far, near) = match is_get {
            true => (source, destination),
            false => (destination, source),
        };
        let bytes = near.bytes();
        let Some((number, offset)) = submit.place(far) else {
            return Err(self.invalid(operation, "the peer's memory is not symmetric"));
        };
        let place = Place { number, offset };
        let near = submit.address(near, rank).0;
        let action = match is_get {
            true => Action::Get {
                peer,
                from: place,
                to: near,
                bytes,
            },
            false => Action::Put {
                peer,
                to: place,
                from: near,
                bytes,
                channel,
            },
        };
        self.enqueue_remote(&submit, operation, self.world().deadlines.wait, action)
    }

    /// Enqueues a command. The caller keeps its memory alive by `submit`.
    pub(crate) fn enqueue_remote(
        &self,
        submit: &Submit<'_>,
        operation: &'static str,
        deadline: Duration,
        action: Action,
    ) -> Result<()> {
        let command = Network::command(operation, deadline, action);
        match self.is_capturing() {
            true => self.record_remote(submit, operation, command),
            false => self.start_remote(submit, operation, command),
        }
    }

    fn start_remote(
        &self,
        submit: &Submit<'_>,
        operation: &'static str,
        command: Command,
    ) -> Result<()> {
        let network = self.network(operation)?;
        if self.query_capturing(operation)? {
            return Err(Error::Unsupported {
                rank: submit.rank(),
                operation,
                message: "the driver's API captures the stream; operations to ranks of other nodes are captured by \
                    `Stream::capture` only"
                    .into(),
            });
        }
        let lane = self.remote_lane(network)?;
        {
            let mut enqueued = lane.enqueued();
            if !enqueued.chained {
                let start = enqueued.starts.wrapping_add(1);
                // SAFETY: the slot lives until the stream is idle.
                unsafe { give_start(submit, operation, &lane.slot, Some(start)) }?;
                enqueued.starts = start;
                enqueued.chained = true;
            }
            network.count();
            lane.push(&mut enqueued, command);
        }
        network.kick(lane)?;
        if self.remote().is_exposed() {
            self.join_network()?;
        }
        Ok(())
    }

    fn record_remote(
        &self,
        submit: &Submit<'_>,
        operation: &'static str,
        command: Command,
    ) -> Result<()> {
        let network = self.network(operation)?;
        let mut open = lock(&self.remote().section);
        if let Some(section) = &*open {
            section.push(command);
            return Ok(());
        }
        let slot = network.take_slot(self.world())?;
        let section = Arc::new(Section::new(slot, network.clone()));
        submit.hold(&section);
        // SAFETY: the graph holds the section, and with it the slot.
        unsafe { give_start(submit, operation, &slot, None) }?;
        section.push(command);
        *open = Some(section);
        Ok(())
    }

    /// Makes the stream wait for the commands enqueued so far, if it does not yet.
    ///
    /// # Errors
    /// The backend's.
    pub(crate) fn join_network(&self) -> Result<()> {
        const NAME: &str = "wait for the network";
        if let Some(lane) = self.remote().lane.get() {
            let mut enqueued = lane.enqueued();
            enqueued.chained = false;
            if enqueued.owed {
                let value = enqueued.commands;
                if !reached(lane.slot.done(), value) {
                    self.wait_for_network(NAME, lane, value)?;
                }
                enqueued.owed = false;
            }
        }
        if self.is_capturing()
            && let Some(section) = lock(&self.remote().section).take()
        {
            let network = self.network(NAME)?;
            let world = self.world();
            let submit = self.submit_chained(NAME);
            section.finish();
            let wait = section.slot.wait(None, world.watch(Duration::MAX));
            let placement = SignalPlacementCode::DEVICE;
            // SAFETY: the graph holds the section, and with it the slot.
            let enqueued = unsafe {
                submit
                    .backend()
                    .signal_wait(&wait, placement, submit.stream())
            };
            let launched: Arc<dyn Launched> = section.clone();
            submit.launch(&launched);
            submit.end(enqueued)?;
            network.add_section(section)?;
        }
        Ok(())
    }

    fn wait_for_network(&self, operation: &'static str, lane: &Lane, value: u32) -> Result<()> {
        let world = self.world();
        let wait = lane.slot.wait(Some(value), world.watch(Duration::MAX));
        let in_hardware = Network::waits_in_hardware(world);
        let placement = match in_hardware {
            true => SignalPlacementCode::HOST,
            false => SignalPlacementCode::DEVICE,
        };
        let submit = self.submit_chained(operation);
        // SAFETY: the slot lives until the stream is idle.
        let enqueued = unsafe {
            submit
                .backend()
                .signal_wait(&wait, placement, submit.stream())
        };
        submit.end(enqueued)?;
        if in_hardware {
            // Released if the communicator is poisoned; the network bounds each command.
            world.health.guard(HostWait {
                word: lane.slot.done_word(),
                value,
                peer: world.rank,
                channel: 0,
                since: Instant::now(),
                limit: Duration::MAX,
            });
        }
        Ok(())
    }

    /// Lets the stream wait for something that does not depend on the commands so far: they go on meanwhile.
    pub(crate) fn unchain_network(&self) -> Result<()> {
        if self.is_capturing() {
            return self.join_network();
        }
        if let Some(lane) = self.remote().lane.get() {
            lane.enqueued().chained = false;
        }
        Ok(())
    }

    /// Ends the queue's use of the network: the stream waits for what is left, and the words are given up.
    pub(crate) fn leave_network(&self) {
        let world = self.world();
        let (Some(network), Some(lane)) = (&world.network, self.remote().lane.get()) else {
            return;
        };
        if world.health.is_fork() {
            return;
        }
        // A failure has poisoned the communicator, and the network's commands have ended.
        let _ = self.join_network();
        lane.close();
        world.give_up(Arc::new(ClosedLane {
            lane: lane.clone(),
            network: network.clone(),
        }));
    }
}

/// Makes the stream start the commands of a slot, which counts as [`Slot::start`].
///
/// # Safety
/// The slot lives until the stream has passed this point.
unsafe fn give_start(
    submit: &Submit<'_>,
    operation: &'static str,
    slot: &Slot,
    value: Option<u32>,
) -> Result<()> {
    let (backend, placement) = (submit.backend(), SignalPlacementCode::DEVICE);
    // SAFETY: guaranteed by the caller.
    unsafe { backend.signal_give(&slot.start(value), placement, submit.stream()) }
        .map_err(|failure| submit.driver().failed(operation, failure))
}

/// The lane of a queue that is gone.
struct ClosedLane {
    lane: Arc<Lane>,
    network: Arc<Network>,
}

impl Resource for ClosedLane {
    fn release(&self, _driver: &Driver, quiet: bool, _unheld: bool) -> Progress {
        if quiet {
            self.network.give_back(self.lane.slot);
        }
        Progress::done(quiet)
    }
}
