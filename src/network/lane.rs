//! A queue's commands: the side that enqueues them, and what the engine takes.

use super::command::Command;
use super::slots::Slot;
use crate::base::lock::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use symmem_core::epoch::reached;

/// What a queue has enqueued.
#[derive(Default)]
pub struct Enqueued {
    /// Value of the last start that the stream gives.
    pub starts: u32,
    /// Number of the last command.
    pub commands: u32,
    /// Whether a further command may follow without a start of its own: the stream has nothing else since.
    pub chained: bool,
    /// Whether the stream does not wait for the last command yet.
    pub owed: bool,
}

struct Waiting {
    /// The start that it waits for.
    start: u32,
    number: u32,
    command: Command,
}

/// The commands of one queue.
pub struct Lane {
    /// The words through which the stream starts commands and waits for them.
    pub slot: Slot,
    enqueued: Mutex<Enqueued>,
    waiting: Mutex<VecDeque<Waiting>>,
    /// Number of commands that wait.
    count: AtomicUsize,
    closed: AtomicBool,
}

impl Lane {
    /// Makes an empty lane.
    pub fn new(slot: Slot) -> Self {
        Self {
            slot,
            enqueued: Mutex::default(),
            waiting: Mutex::default(),
            count: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Locks what the queue has enqueued, for as long as a call enqueues.
    pub fn enqueued(&self) -> MutexGuard<'_, Enqueued> {
        lock(&self.enqueued)
    }

    /// Adds a command, which begins once the stream has given the current start.
    pub fn push(&self, enqueued: &mut Enqueued, command: Command) {
        enqueued.commands = enqueued.commands.wrapping_add(1);
        enqueued.owed = true;
        lock(&self.waiting).push_back(Waiting {
            start: enqueued.starts,
            number: enqueued.commands,
            command,
        });
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Returns whether commands wait for the stream.
    pub fn waits(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Takes the next command, if the stream has started it.
    pub fn take(&self) -> Option<(u32, Command)> {
        if !self.waits() {
            return None;
        }
        let started = self.slot.started();
        let mut waiting = lock(&self.waiting);
        if !reached(started, waiting.front()?.start) {
            return None;
        }
        self.count.fetch_sub(1, Ordering::Release);
        waiting.pop_front().map(|one| (one.number, one.command))
    }

    /// Drops the commands that wait, and releases the stream. Returns how many commands were not complete.
    pub fn abandon(&self) -> u32 {
        let enqueued = self.enqueued();
        let dropped = std::mem::take(&mut *lock(&self.waiting));
        self.count.fetch_sub(dropped.len(), Ordering::Release);
        let left = enqueued.commands.wrapping_sub(self.slot.done());
        self.slot.finish(enqueued.commands);
        left
    }

    /// Ends the lane: its queue is gone.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Returns whether the queue is gone.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}
