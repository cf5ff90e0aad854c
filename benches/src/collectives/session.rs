//! One rank's buffers, stream and clock, and the four ways to run a collective with them: checked,
//! looped, replayed, one at a time.

use super::data::{Content, Data, GUARD, POISON};
use super::element::Sample;
use super::how::How;
use super::shape::{ROOT, Shape};
use crate::Result;
use crate::clock::Clock;
use crate::outcome::{Outcome, not_here};
use crate::poison::poison;
use crate::report::{Collective, Placement};
use std::cell::Cell;
use std::time::Instant;
use symmem::tuning::operation;
use symmem::{
    Algorithm, Choice, CollectiveCall, CollectiveOptions, Communicator, Graph, Queue, ReduceOp,
    Slice, Stream, SymmetricBuffer,
};

/// One call, as all ranks make it.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub shape: Shape,
    pub placement: Placement,
    pub how: How,
    /// `how`, as the library takes it.
    options: CollectiveOptions<'static>,
}

impl Call {
    pub(crate) fn new(shape: Shape, placement: Placement, how: How) -> Self {
        Self {
            shape,
            placement,
            how,
            options: how.options(),
        }
    }
}

/// How a call would be done; alike on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the algorithm that it names, or by the selector's choice where it names none.
    AsNamed(Choice),
    /// By another one than it names.
    Otherwise(Algorithm),
    /// Not at all, and why.
    Refused(String),
}

/// What a rank holds while it is measured.
pub(crate) struct Session<'a, T: Sample> {
    pub communicator: &'a Communicator,
    pub stream: Stream,
    source: SymmetricBuffer<T>,
    destination: SymmetricBuffer<T>,
    clock: Clock<'a>,
    data: Data<T>,
    /// What the sources hold now.
    content: Cell<Option<Content>>,
}

impl<'a, T: Sample> Session<'a, T> {
    /// Allocates for nccl-tests' sizes of at most `largest` bytes. Collective.
    pub(crate) fn new(communicator: &'a Communicator, largest: u64) -> Result<Self> {
        let elements = (largest as usize).div_ceil(size_of::<T>()) + GUARD;
        Ok(Self {
            stream: communicator.stream()?,
            source: communicator.allocate::<T>(&[elements])?,
            destination: communicator.allocate::<T>(&[elements])?,
            clock: Clock::new(communicator, 1)?,
            data: Data::new(communicator.world_size()),
            content: Cell::new(None),
            communicator,
        })
    }

    /// Whether the buffers are reached by multicast, or as if.
    pub(crate) fn is_in_multicast(&self) -> bool {
        self.source.is_in_multicast() && self.destination.is_in_multicast()
    }

    /// How a call would be done.
    pub(crate) fn way(&self, call: &Call) -> Result<Way> {
        Ok(match self.explain(call)? {
            Ok(choice) => match call.how.algorithm {
                Some(named) if named != choice.algorithm() => Way::Otherwise(choice.algorithm()),
                _ => Way::AsNamed(choice),
            },
            Err(why) => Way::Refused(why),
        })
    }

    fn explain(&self, call: &Call) -> Result<Outcome<Choice>> {
        let name = call.shape.collective.name();
        let Some(operation) = operation(name) else {
            return Ok(Err(format!("there is no operation {name}")));
        };
        let bytes = (call.shape.whole * size_of::<T>()) as u64;
        let asked = CollectiveCall {
            in_place: call.placement == Placement::InPlace,
            in_multicast: self.is_in_multicast(),
            ..CollectiveCall::new(operation, bytes, T::TYPE)
        };
        let choice = self.communicator.explain_call(&asked, &call.options);
        not_here(choice.map_err(Into::into))
    }

    /// Makes the buffers windows of the vendor's library. Collective.
    pub(super) fn register(&self) -> symmem::Result<()> {
        self.source.register_with_vendor()?;
        self.destination.register_with_vendor()
    }

    /// Fills the sources with what an operation takes. Blocks.
    fn fill(&self, shape: &Shape) -> Result<()> {
        let content = Content::of(shape);
        if self.content.get() != Some(content) {
            let rank = self.communicator.rank();
            self.data.fill(rank, content, &self.source, &self.stream)?;
            self.content.set(Some(content));
        }
        Ok(())
    }

    /// Destination and source of a call.
    fn ranges(&self, call: &Call) -> Result<(Slice<'_, T>, Slice<'_, T>)> {
        let rank = self.communicator.rank();
        let to = call.shape.output(rank, call.placement);
        let from = call.shape.input(rank, call.placement);
        let source = match call.placement {
            Placement::OutOfPlace => &self.source,
            Placement::InPlace => &self.destination,
        };
        Ok((self.destination.slice(to)?, source.slice(from)?))
    }

    /// Barriers of all ranks, to be timed as calls are.
    pub(crate) fn barriers(&self) -> impl Fn(&Queue) -> Result<()> {
        |on| Ok(on.barrier()?)
    }

    /// A call, to be timed.
    pub(crate) fn calls<'c>(&'c self, call: &'c Call) -> impl Fn(&Queue) -> Result<()> + 'c {
        |on| self.issue(on, call)
    }

    /// Enqueues the call.
    fn issue(&self, on: &Queue, call: &Call) -> Result<()> {
        let (to, from) = self.ranges(call)?;
        let on = on.with(&call.options);
        let sum = ReduceOp::Sum;
        match call.shape.collective {
            Collective::AllReduce => on.all_reduce(to, from, sum)?,
            Collective::AllGather => on.all_gather(to, from)?,
            Collective::ReduceScatter => on.reduce_scatter(to, from, sum)?,
            Collective::AllToAll => on.all_to_all(to, from)?,
            Collective::Broadcast => on.broadcast(ROOT, to, from)?,
            Collective::Reduce => on.reduce(ROOT, to, from, sum)?,
            Collective::Gather => on.gather(ROOT, to, from)?,
            Collective::Scatter => on.scatter(ROOT, to, from)?,
        }
        Ok(())
    }

    /// Calls back to back: nanoseconds for each at this rank. All ranks make as many, after one that
    /// is not timed, as the programs beside us do.
    pub(crate) fn looped(&self, issue: impl Fn(&Queue) -> Result<()>, calls: u32) -> Result<f64> {
        issue(&self.stream)?;
        let total = self.clock.timed(&self.stream, || {
            (0..calls).try_for_each(|_| issue(&self.stream))
        })?;
        Ok(total / f64::from(calls))
    }

    /// A graph of so many calls.
    pub(crate) fn graph(&self, issue: impl Fn(&Queue) -> Result<()>, calls: u32) -> Result<Graph> {
        let mut outcome = Ok(());
        let graph = self.communicator.stream()?.capture(|queue| {
            outcome = (0..calls).try_for_each(|_| issue(queue));
            Ok(())
        });
        outcome?;
        Ok(graph?)
    }

    /// Replays a graph of `calls` calls `launches` times, after one that is not timed: nanoseconds for
    /// each call at this rank.
    pub(crate) fn replayed(&self, graph: &Graph, calls: u32, launches: u32) -> Result<f64> {
        self.stream.launch_graph(graph)?;
        let launch = || (0..launches).try_for_each(|_| Ok(self.stream.launch_graph(graph)?));
        let total = self.clock.timed(&self.stream, launch)?;
        Ok(total / f64::from(calls) / f64::from(launches))
    }

    /// One call at a time: nanoseconds by the host's clock from a barrier to its end, at this rank.
    pub(crate) fn single(
        &self,
        issue: impl Fn(&Queue) -> Result<()>,
        samples: u32,
    ) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(samples as usize);
        for _ in 0..samples {
            self.stream.barrier()?;
            self.stream.synchronize()?;
            let start = Instant::now();
            issue(&self.stream)?;
            self.stream.synchronize()?;
            times.push(start.elapsed().as_nanos() as f64);
        }
        Ok(times)
    }

    /// Calls once into poisoned memory: elements that are wrong at this rank, guard included, and
    /// elements that were looked at.
    pub(crate) fn check(&self, call: &Call) -> Result<(u64, u64)> {
        self.check_after(call, || self.issue(&self.stream, call))
    }

    /// As [`Session::check`], by a replay.
    pub(crate) fn check_replay(&self, call: &Call, graph: &Graph) -> Result<(u64, u64)> {
        self.check_after(call, || Ok(self.stream.launch_graph(graph)?))
    }

    fn check_after(&self, call: &Call, work: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
        let (rank, shape) = (self.communicator.rank(), &call.shape);
        self.fill(shape)?;
        poison(
            self.communicator,
            &self.destination,
            shape.whole + GUARD,
            POISON,
            &self.stream,
        )?;
        if call.placement == Placement::InPlace {
            self.put_input(call)?;
        }
        self.clock.start_together(&self.stream)?;
        work()?;
        self.stream.barrier()?;
        self.stream.synchronize()?;
        if !shape.receives(rank) {
            return Ok((0, 0));
        }
        let output = shape.output(rank, call.placement);
        let guard = match call.placement {
            Placement::OutOfPlace => output.end,
            Placement::InPlace => shape.whole,
        };
        self.data
            .wrong_elements(shape, rank, &self.destination, output, guard, &self.stream)
    }

    /// Puts this rank's source where a call in place takes it from.
    fn put_input(&self, call: &Call) -> Result<()> {
        let rank = self.communicator.rank();
        let from = call.shape.input(rank, Placement::OutOfPlace);
        let to = call.shape.input(rank, Placement::InPlace);
        let is_source = call.shape.collective != Collective::Broadcast || rank == ROOT;
        if is_source {
            let to = self.destination.slice(to)?;
            let from = self.source.slice(from)?;
            self.stream.put(rank, to, from)?;
        }
        Ok(())
    }

    /// Makes an element of this rank's source another one, for a test. Blocks.
    #[cfg(test)]
    pub(crate) fn spoil(&self) {
        self.source
            .write(&self.stream, 0, &[T::number(T::LARGEST_EXACT)])
            .unwrap();
    }

    /// Frees the buffers. Collective.
    pub(crate) fn finish(self) -> Result<()> {
        self.source.free()?;
        self.destination.free()?;
        Ok(())
    }
}
