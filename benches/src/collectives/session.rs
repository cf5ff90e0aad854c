//! One rank's buffers, stream and clock, with four ways to run a collective: checked, looped, replayed, and
//! as single calls.

use super::between::{Between, Kernel};
use super::call::{Call, Work};
use super::data::{Content, Data, GUARD, POISON};
use super::element::SampleType;
use super::memory::{self, Memory};
use super::shape::{ROOT, Shape};
use crate::clock::Clock;
use crate::outcome::{Outcome, not_here};
use crate::report::{Collective, Placement};
use crate::{BenchError, Result};
use std::cell::Cell;
use std::time::Instant;
use symmem::tuning::operation;
use symmem::{Algorithm, CollectiveCall, Communicator, Explanation, Graph, Queue, Stream};

/// How the library would make a call; the same on all ranks of a world of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedAlgorithm {
    /// With the algorithm that the call names, or with the selector's choice if it names none. Over nodes, in the stages that
    /// have it.
    AsNamed(Explanation),
    /// With another algorithm than the call names.
    Otherwise(Algorithm),
    /// The call is refused for this reason.
    Refused(String),
}

/// The buffers, stream and clock of one rank.
pub(crate) struct Session<'a> {
    pub communicator: &'a Communicator,
    pub stream: Stream,
    pub element: SampleType,
    memory: Box<dyn Memory>,
    clock: Clock<'a>,
    data: Data,
    /// The current content of the sources.
    content: Cell<Option<Content>>,
    /// In front of each call of a loop.
    between: Option<Kernel<'a>>,
}

impl<'a> Session<'a> {
    /// Allocates buffers for nccl-tests' sizes of at most `largest` bytes, with the element type that nccl-tests calls
    /// `element`. Collective.
    ///
    /// # Errors
    /// [`BenchError::World`] for an unsupported type; any error of the backend.
    pub(crate) fn new(communicator: &'a Communicator, element: &str, largest: u64) -> Result<Self> {
        let Some(memory) = memory::allocate(communicator, element, largest, GUARD)? else {
            return Err(BenchError::World {
                rank: communicator.rank(),
                message: format!("element type `{element}` is not supported"),
            });
        };
        let element = memory.element();
        Ok(Self {
            stream: communicator.stream()?,
            clock: Clock::new(communicator, 1)?,
            data: Data::new(element, communicator.world_size()),
            content: Cell::new(None),
            element,
            memory,
            communicator,
            between: None,
        })
    }

    /// Puts a kernel in front of each call of a loop, but not of checked and single calls. Collective.
    pub(super) fn put_between(&mut self, between: Between) -> Result<()> {
        self.between = Some(Kernel::new(self.communicator, between)?);
        Ok(())
    }

    /// Returns the options by which an external program puts the same kernel in front of its calls; none without a
    /// kernel.
    pub(super) fn between_options(&self) -> Vec<String> {
        let kernel = self.between.as_ref();
        kernel.map_or(Vec::new(), |kernel| kernel.program_options().into())
    }

    /// Whether multicast, real or emulated, reaches the buffers.
    pub(crate) fn is_in_multicast(&self) -> bool {
        self.memory.is_in_multicast()
    }

    /// Returns how the library would make a call.
    pub(crate) fn resolved(&self, call: &Call) -> Result<ResolvedAlgorithm> {
        Ok(match self.explain(call)? {
            Ok(explanation) => {
                let on_one_node = explanation.between_nodes.is_none();
                let choice = explanation.choice().filter(|_| on_one_node);
                match (call.how.algorithm, choice) {
                    (Some(named), Some(choice)) if named != choice.algorithm() => {
                        ResolvedAlgorithm::Otherwise(choice.algorithm())
                    }
                    // Over nodes, ranks differ in their stages.
                    _ => ResolvedAlgorithm::AsNamed(explanation),
                }
            }
            Err(why) => ResolvedAlgorithm::Refused(why),
        })
    }

    fn explain(&self, call: &Call) -> Result<Outcome<Explanation>> {
        let name = call.shape.collective.name();
        let Some(operation) = operation(name) else {
            return Ok(Err(format!("there is no operation {name}")));
        };
        let bytes = (call.shape.whole * self.element.size) as u64;
        let asked = CollectiveCall {
            in_place: call.placement == Placement::InPlace,
            in_multicast: self.is_in_multicast(),
            own_memory: call.how.own_memory,
            ..CollectiveCall::new(operation, bytes, self.element.kind)
        };
        let explanation = self.communicator.explain_call(&asked, &call.options);
        not_here(explanation.map_err(Into::into))
    }

    /// Registers the buffers as symmetric windows of NCCL or RCCL. Collective.
    pub(super) fn register(&self) -> symmem::Result<()> {
        self.memory.register()
    }

    /// Fills the source with the content that an operation needs. Blocks.
    fn fill(&self, shape: &Shape) -> Result<()> {
        let content = Content::of(shape);
        if self.content.get() != Some(content) {
            let rank = self.communicator.rank();
            self.data.fill(rank, content, &*self.memory, &self.stream)?;
            self.content.set(Some(content));
        }
        Ok(())
    }

    /// Enqueues the work once.
    fn enqueue(&self, on: &Queue, work: Work<'_>) -> Result<()> {
        match work {
            Work::Barrier => Ok(on.barrier()?),
            Work::Between => self.between.iter().try_for_each(|one| one.enqueue(on)),
            Work::Call(call) => self.memory.enqueue(on, self.communicator.rank(), call),
        }
    }

    /// Enqueues the work of one turn of a loop.
    fn turn(&self, on: &Queue, work: Work<'_>) -> Result<()> {
        if let Work::Call(_) = work {
            self.enqueue(on, Work::Between)?;
        }
        self.enqueue(on, work)
    }

    /// Times calls back to back, after one untimed call, like the external programs. Returns nanoseconds per
    /// call at this rank. All ranks must pass the same `calls`.
    pub(crate) fn looped(&self, work: Work<'_>, calls: u32) -> Result<f64> {
        self.turn(&self.stream, work)?;
        let total = self.clock.timed(&self.stream, &|| {
            (0..calls).try_for_each(|_| self.turn(&self.stream, work))
        })?;
        Ok(total / f64::from(calls))
    }

    /// Captures a graph of `calls` calls.
    pub(crate) fn graph(&self, work: Work<'_>, calls: u32) -> Result<Graph> {
        let mut outcome = Ok(());
        let graph = self.communicator.stream()?.capture(|queue| {
            outcome = (0..calls).try_for_each(|_| self.turn(queue, work));
            Ok(())
        });
        outcome?;
        Ok(graph?)
    }

    /// Replays a graph of `calls` calls `launches` times, after one untimed replay. Returns nanoseconds per
    /// call at this rank.
    pub(crate) fn replayed(&self, graph: &Graph, calls: u32, launches: u32) -> Result<f64> {
        self.stream.launch_graph(graph)?;
        let launch = || (0..launches).try_for_each(|_| Ok(self.stream.launch_graph(graph)?));
        let total = self.clock.timed(&self.stream, &launch)?;
        Ok(total / f64::from(calls) / f64::from(launches))
    }

    /// Times single calls on the host, each from a barrier to the call's completion. Returns nanoseconds at
    /// this rank.
    pub(crate) fn single(&self, work: Work<'_>, samples: u32) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(samples as usize);
        for _ in 0..samples {
            self.stream.barrier()?;
            self.stream.synchronize()?;
            let start = Instant::now();
            self.enqueue(&self.stream, work)?;
            self.stream.synchronize()?;
            times.push(start.elapsed().as_nanos() as f64);
        }
        Ok(times)
    }

    /// Calls once with a poisoned destination. Returns the number of wrong elements at this rank, guard
    /// included, and the number of checked elements.
    pub(crate) fn check(&self, call: &Call) -> Result<(u64, u64)> {
        self.check_after(call, || self.enqueue(&self.stream, Work::Call(call)))
    }

    /// Like [`Session::check`], with a graph replay.
    pub(crate) fn check_replay(&self, call: &Call, graph: &Graph) -> Result<(u64, u64)> {
        self.check_after(call, || Ok(self.stream.launch_graph(graph)?))
    }

    fn check_after(&self, call: &Call, work: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
        let (rank, shape) = (self.communicator.rank(), &call.shape);
        self.fill(shape)?;
        let poisoned = shape.whole + GUARD;
        self.memory
            .poison_destination(self.communicator, poisoned, POISON, &self.stream)?;
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
            .wrong_elements(shape, rank, &*self.memory, output, guard, &self.stream)
    }

    /// Copies this rank's source to where an in-place call reads it.
    fn put_input(&self, call: &Call) -> Result<()> {
        let rank = self.communicator.rank();
        let from = call.shape.input(rank, Placement::OutOfPlace);
        let to = call.shape.input(rank, Placement::InPlace);
        let is_source = call.shape.collective != Collective::Broadcast || rank == ROOT;
        if is_source {
            self.memory.copy(&self.stream, rank, to, from)?;
        }
        Ok(())
    }

    /// Changes an element of this rank's source, for a test. Blocks.
    #[cfg(test)]
    pub(crate) fn spoil(&self) {
        let mut bytes = vec![0; self.element.size];
        (self.element.write)(&[self.element.largest_exact], &mut bytes);
        self.memory.write_source(&self.stream, 0, &bytes).unwrap();
    }

    /// Frees the buffers. Collective.
    pub(crate) fn finish(self) -> Result<()> {
        self.between.map_or(Ok(()), Kernel::free)?;
        self.memory.free()
    }
}
