//! A graph's commands between two pieces of other work, run at each replay.

use super::command::Command;
use super::slots::Slot;
use crate::base::lock::lock;
use crate::rank::driver::Driver;
use crate::rank::release::{Progress, Resource};
use crate::rank::submit::Launched;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// What a section needs of the network that runs it.
pub trait Runs: Send + Sync {
    /// Makes the network look at its sections.
    fn wake(&self);
    /// Takes back a pair of words that no stream uses.
    fn give_back(&self, slot: Slot);
}

/// Recorded commands with words of their own. The device counts starts and waits.
pub struct Section {
    /// The words through which the graph starts the commands and waits for them.
    pub slot: Slot,
    commands: Mutex<Arc<[Command]>>,
    recorded: Mutex<Vec<Command>>,
    /// Number of launches.
    launched: AtomicU32,
    closed: AtomicBool,
    network: Arc<dyn Runs>,
}

impl Section {
    /// Makes an empty section.
    pub fn new(slot: Slot, network: Arc<dyn Runs>) -> Self {
        Self {
            slot,
            commands: Mutex::new(Arc::new([])),
            recorded: Mutex::default(),
            launched: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            network,
        }
    }

    /// Records a command.
    pub fn push(&self, command: Command) {
        lock(&self.recorded).push(command);
    }

    /// Ends the recording.
    pub fn finish(&self) {
        *lock(&self.commands) = std::mem::take(&mut *lock(&self.recorded)).into();
    }

    /// Returns the commands.
    pub fn commands(&self) -> Arc<[Command]> {
        lock(&self.commands).clone()
    }

    /// Returns the number of launches, which wraps.
    pub fn launches(&self) -> u32 {
        self.launched.load(Ordering::Acquire)
    }

    /// Returns whether its graph is gone.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Launched for Section {
    fn launch(&self) {
        self.launched.fetch_add(1, Ordering::AcqRel);
        self.network.wake();
    }

    fn take_back(&self) {
        self.launched.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Resource for Section {
    fn release(&self, _driver: &Driver, quiet: bool, unheld: bool) -> Progress {
        if quiet && unheld && !self.closed.swap(true, Ordering::AcqRel) {
            self.network.give_back(self.slot);
        }
        Progress::done(quiet && unheld)
    }
}
