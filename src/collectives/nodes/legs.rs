//! Legs of a collective over nodes, by the network.
//!
//! Where the host does not address the device's memory, legs work on a mirror of the staging memory in pinned host memory:
//! the stream copies what a leg reads there before it, and what it writes back after it.

use super::layout::{BUFFER, windows};
use super::rehearsal::Purpose;
use super::stages::Nodes;
use super::task::{Task, Work};
use crate::backend::abi::{DeviceAddress, HostMemory};
use crate::base::error::Result;
use crate::base::names::{Direction, Method};
use crate::base::planner::TransferOptions;
use crate::collectives::explanation::NodeLeg;
use crate::group::far::CHANNEL;
use crate::network::command::Action;
use crate::network::leg::leg::Leg;
use crate::network::leg::parts::Span;
use crate::network::legs::LegCall;
use crate::rank::memory_range::MemoryRange;
use crate::rank::submit::Submit;
use crate::stream::queue::Queue;

/// The refusal of a reduction that legs do not know.
pub const NO_SUCH_REDUCTION: &str = "the legs between nodes do not know this type and operator";

/// Legs under way.
#[derive(Default)]
#[must_use]
pub struct Legs {
    /// What they write, to be copied from the mirror of the staging memory.
    results: Vec<Span>,
}

impl<'n> Nodes<'n> {
    /// Enqueues `begin` for each window: stages, and a leg on the buffer at the offset that it gets; then `finish` for what
    /// `begin` has returned, once the leg is complete. A leg runs beside the first stages of the next window.
    pub fn in_turn<T>(
        &self,
        windows: impl Iterator<Item = (u64, u64)>,
        begin: impl Fn(u64, (u64, u64)) -> Result<(Legs, T)>,
        finish: impl Fn(T) -> Result<()>,
    ) -> Result<()> {
        let Purpose::Enqueue(queue) = self.purpose else {
            for (index, window) in windows.enumerate() {
                finish(begin(index as u64 % 2 * BUFFER, window)?.1)?;
            }
            return Ok(());
        };
        let end = |(number, (legs, begun)): (_, (Legs, T))| {
            queue.wait_for_legs(number)?;
            self.take_results(queue, legs)?;
            finish(begun)
        };
        // The first stages wait for what was enqueued before this call.
        queue.join_network()?;
        let overlap = queue.overlap();
        let mut previous = None;
        for (index, window) in windows.enumerate() {
            let begun = begin(index as u64 % 2 * BUFFER, window)?;
            previous
                .replace((queue.last_leg(), begun))
                .map_or(Ok(()), end)?;
        }
        previous.map_or(Ok(()), end)?;
        drop(overlap);
        Ok(())
    }

    /// Returns the windows of parts of `bytes` bytes, of at most `most` bytes. A rehearsal has the first and the last one:
    /// those between are like the first.
    pub fn windows(&self, bytes: u64, most: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let all = windows(bytes, most);
        let step = match self.purpose {
            Purpose::Enqueue(_) => 1,
            Purpose::Rehearse(_) => bytes.div_ceil(most.max(1)).saturating_sub(1).max(1),
        };
        all.step_by(step as usize)
    }

    /// Returns the network's leg that does some work among `members`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if it does not know the type and the operator.
    pub fn leg(&self, work: Work, members: usize) -> Result<Leg> {
        // An average divides by all members of the group.
        work.leg(members, self.members())
            .ok_or_else(|| self.invalid(NO_SUCH_REDUCTION))
    }

    /// Describes a leg, whoever carries it.
    ///
    /// # Errors
    /// As [`Nodes::leg`].
    pub fn describe(&self, task: &Task) -> Result<NodeLeg> {
        let members = task.members.len();
        let leg = self.leg(task.work.clone(), members)?;
        Ok(NodeLeg {
            shape: self.library.is_err().then(|| leg.shape()),
            members,
            bytes: leg.data_bytes(members, task.own),
        })
    }

    /// Logs a leg that is about to be enqueued.
    ///
    /// # Errors
    /// As [`Nodes::leg`].
    pub fn log_leg(&self, task: &Task) -> Result<()> {
        if tracing::enabled!(tracing::Level::TRACE) {
            let leg = self.describe(task)?;
            tracing::trace!(
                rank = self.world.rank,
                operation = self.name,
                carrier = if self.library.is_ok() { "NCCL" } else { "UCX" },
                shape = leg.shape.map_or("", |shape| shape.name()),
                members = leg.members,
                bytes = leg.bytes,
                "leg between nodes"
            );
        }
        Ok(())
    }

    /// Returns the network's leg of a task on the staging memory.
    fn call(&self, task: Task) -> Result<LegCall> {
        self.log_leg(&task)?;
        let Task { members, own, work } = task;
        let leg = self.leg(work, members.len())?;
        let channel = self.staged(0, CHANNEL);
        Ok(LegCall {
            key: key(self.far.staging.number, self.options.channel, &members),
            members,
            own,
            place: (self.far.staging.number, channel.offset()),
            address: match self.far.mirror {
                Some(mirror) => mirror.host + channel.offset(),
                None => channel.start(self.world.rank),
            },
            bytes: CHANNEL,
            source: None,
            leg,
        })
    }

    /// Enqueues legs as [`Nodes::begin_legs`] does, from `from` to `to`, which are symmetric: the ranges of their work are
    /// in these, and not in the staging memory. Not for NCCL, nor where the host does not address the memory.
    pub fn begin_direct_legs(
        &self,
        tasks: impl Iterator<Item = Task>,
        (to, from): (MemoryRange<'_>, MemoryRange<'_>),
    ) -> Result<()> {
        let queue = match self.purpose {
            Purpose::Enqueue(queue) => queue,
            Purpose::Rehearse(rehearsal) => {
                for task in tasks {
                    rehearsal.add_leg(self.describe(&task)?);
                }
                return Ok(());
            }
        };
        let submit = queue.submit_chained(self.name);
        let place = submit
            .place(&to)
            .ok_or_else(|| self.invalid("the destination is not symmetric"))?;
        let call = |task: Task| {
            let call = self.call(task)?;
            Ok(LegCall {
                place,
                address: submit.address(&to, self.world.rank).0,
                bytes: to.bytes(),
                source: Some((submit.address(&from, self.world.rank).0, from.bytes())),
                ..call
            })
        };
        let calls = tasks.map(call).collect::<Result<Vec<_>>>()?;
        match calls.is_empty() {
            true => Ok(()),
            false => self.enqueue_legs(queue, &submit, calls),
        }
    }

    /// Enqueues the command of some legs.
    fn enqueue_legs(&self, queue: &Queue, submit: &Submit<'_>, calls: Vec<LegCall>) -> Result<()> {
        let deadline = self.options.deadline.unwrap_or(self.world.deadlines.wait);
        queue.enqueue_remote(submit, self.name, deadline, Action::Legs(calls))
    }

    /// Enqueues legs that run beside each other, and makes their results stages' input.
    pub fn legs(&self, tasks: Vec<Task>) -> Result<()> {
        let legs = self.begin_legs(tasks)?;
        match self.purpose {
            Purpose::Enqueue(queue) => self.take_results(queue, legs),
            Purpose::Rehearse(_) => Ok(()),
        }
    }

    /// Enqueues legs that run beside each other. Later work that is enqueued while the queue overlaps does not wait for them:
    /// see [`Queue::wait_for_legs`]. Stages find their results after `take_results`.
    pub fn begin_legs(&self, tasks: Vec<Task>) -> Result<Legs> {
        if tasks.is_empty() {
            return Ok(Legs::default());
        }
        let queue = match self.purpose {
            Purpose::Enqueue(queue) => queue,
            Purpose::Rehearse(rehearsal) => {
                for task in &tasks {
                    rehearsal.add_leg(self.describe(task)?);
                }
                return Ok(Legs::default());
            }
        };
        if let Ok(library) = self.library {
            let region = self.staged(0, CHANNEL);
            tasks
                .iter()
                .try_for_each(|task| self.by_rail(library, task, region))?;
            return Ok(Legs::default());
        }
        let calls = tasks.into_iter().map(|task| self.call(task));
        let calls = calls.collect::<Result<Vec<_>>>()?;
        let mut results = Vec::new();
        if let Some(mirror) = self.far.mirror {
            for call in &calls {
                let members = call.members.len();
                for span in call.leg.reads(members, call.own) {
                    self.copy_staged(queue, self.mirrored(mirror, span), self.staged_span(span))?;
                }
                results.extend(call.leg.writes(members, call.own));
            }
        }
        let submit = queue.submit_chained(self.name);
        submit.hold(&self.far.staging);
        self.enqueue_legs(queue, &submit, calls)?;
        Ok(Legs { results })
    }

    /// Makes the results of legs stages' input: copies them from the mirror, if there is one. While the queue overlaps, the
    /// caller has waited for the legs.
    fn take_results(&self, queue: &Queue, legs: Legs) -> Result<()> {
        let Some(mirror) = self.far.mirror else {
            return Ok(());
        };
        legs.results.into_iter().try_for_each(|span| {
            self.copy_staged(queue, self.staged_span(span), self.mirrored(mirror, span))
        })
    }

    fn staged_span(&self, span: Span) -> MemoryRange<'n> {
        self.staged(span.offset, span.bytes)
    }

    /// Returns a range of the mirror of the channel's staging memory. It lives as long as that.
    fn mirrored(&self, mirror: HostMemory, span: Span) -> MemoryRange<'n> {
        let offset = self.staged_span(span).offset();
        MemoryRange::own(DeviceAddress(mirror.device.0 + offset), span.bytes)
    }

    /// Enqueues a copy between the staging memory and its mirror.
    fn copy_staged(&self, queue: &Queue, to: MemoryRange<'_>, from: MemoryRange<'_>) -> Result<()> {
        let world = self.world;
        // Never by a copy engine, in which the copy of a stream that waits would hold up those of others.
        let options = TransferOptions::new().method(Method::Vector);
        let transfer = (Direction::Put, world.rank);
        queue.copy(
            self.name,
            transfer,
            (&to, world.rank),
            (&from, world.rank),
            &options,
            None,
        )
    }
}

/// Returns the key of the legs of a set of ranks: FNV-1a.
fn key(group: u64, channel: u32, members: &[usize]) -> u64 {
    let words = [group, channel.into()].into_iter();
    let words = words.chain(members.iter().map(|&member| member as u64));
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
    })
}
