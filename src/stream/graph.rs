//! Graphs: recorded work, replayed any number of times.

use crate::backend::Device;
use crate::backend::abi::{RawGraphExec, RawStream};
use crate::base::error::Result;
use crate::rank::driver::Driver;
use crate::rank::release::{Held, Progress, Resource};
use crate::rank::submit::{Collectives, Launched};
use crate::stream::queue::{Queue, Stream};
use crate::world::world::World;
use std::sync::Arc;

/// Work recorded from one stream, ready to be launched. It keeps alive the buffers, modules and graphs that it
/// uses.
///
/// Signals and barriers count on the device, so a graph can be launched any number of times and mixed with
/// eager calls. Launches of one graph run one after the other.
pub struct Graph {
    /// `None` only during the drop.
    recorded: Option<Arc<Recorded>>,
    world: Arc<World>,
}

/// A graph on the device, and the resources that its work uses.
struct Recorded {
    exec: RawGraphExec,
    collectives: Collectives,
    /// What each launch runs outside of the stream.
    launched: Vec<Arc<dyn Launched>>,
    _uses: Vec<Held>,
}

impl Resource for Recorded {
    fn release(&self, driver: &Driver, quiet: bool, unheld: bool) -> Progress {
        if !quiet || !unheld {
            return Progress::Waits;
        }
        // SAFETY: live; no stream runs it or can any more: its handle is gone, and so are graphs that launch it.
        if let Err(failure) = unsafe { driver.backend.graph_destroy(self.exec) } {
            tracing::warn!(rank = driver.rank, %failure, "graph_destroy failed");
        }
        Progress::done(true)
    }
}

impl Stream {
    /// Records the work that `record` enqueues on the queue passed to it, without running it. Until it returns,
    /// the stream is borrowed exclusively: nothing else can be enqueued on it, host copies included.
    ///
    /// ```
    /// # use symmem::ReduceOp;
    /// # fn main() -> symmem::Result<()> {
    /// # let communicator = symmem::init()?;
    /// # let x = communicator.allocate::<f32>(&[64])?;
    /// let mut stream = communicator.stream()?;
    /// let graph = stream.capture(|queue| queue.all_reduce(&x, &x, ReduceOp::Average))?;
    /// stream.launch_graph(&graph)?; // any number of times
    /// stream.launch_graph(&graph)?;
    /// stream.synchronize()?;
    /// # communicator.finalize().map(drop)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `record`'s own error, which ends the recording; [`crate::Error::InvalidArgument`] while the stream is
    /// already being captured, for example through the driver's API; the backend's errors; the error that
    /// poisoned the communicator.
    pub fn capture(&mut self, record: impl FnOnce(&Queue) -> Result<()>) -> Result<Graph> {
        let capture = Capture::begin(self)?;
        record(&capture.queue)?;
        capture.queue.join_network()?;
        capture.end()
    }
}

impl Queue {
    /// Enqueues a graph's work after all earlier work of this queue. In a capture, the recorded graph keeps
    /// this one alive.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for a graph of another communicator, for a graph whose grids were chosen
    /// before more collectives were allowed at once than they have room for, and if more collectives than allowed
    /// could be under way at once ([`crate::Communicator::allow_concurrent_collectives`]); the backend's errors;
    /// the error that poisoned the communicator.
    pub fn launch_graph(&self, graph: &Graph) -> Result<()> {
        self.check_same(&graph.world, "graph launch")?;
        self.world().health.check()?;
        let Some(recorded) = &graph.recorded else {
            return Ok(());
        };
        self.admit_graph(&recorded.collectives)?;
        let submit = self.submit("graph launch");
        submit.hold(recorded);
        let Collectives { sequences, fits } = &recorded.collectives;
        for sequence in sequences {
            submit.follow(sequence, *fits);
        }
        recorded
            .launched
            .iter()
            .for_each(|work| submit.launch(work));
        let exec = recorded.exec;
        // SAFETY: both are live; the graph keeps what it uses, and `submit` the graph.
        let enqueued = unsafe { submit.backend().graph_launch(exec, submit.stream()) };
        if enqueued.is_err() {
            recorded
                .launched
                .iter()
                .for_each(|work| submit.take_back(work));
        }
        submit.end(enqueued)
    }

    /// Admits the collectives of a graph. Their grids were chosen at the capture: a graph with larger grids than
    /// there is room for now is refused, since grids cannot be changed in it.
    fn admit_graph(&self, Collectives { sequences, fits }: &Collectives) -> Result<()> {
        const NAME: &str = "graph launch";
        let residency = self.world().collectives.selector.residency();
        residency
            .check_room(*fits, "the graph's grids have", "capture it again")
            .map_err(|message| self.invalid(NAME, message))?;
        let mut sequences = sequences.iter();
        sequences.try_for_each(|sequence| self.admit(NAME, sequence))
    }
}

/// A stream that is being captured.
struct Capture {
    queue: Queue,
    ended: bool,
}

impl Capture {
    fn begin(stream: &Stream) -> Result<Self> {
        let world = stream.world();
        world.health.check()?;
        let raw = stream.raw_handle();
        // Another thread may be asking for the progress of this stream, which would invalidate the capture.
        let _beginning = world.streams.begin_capture();
        // Another capture of this stream may be under way, through the driver's API or another value that wraps
        // the stream.
        stream.refuse_capture("capture")?;
        // SAFETY: the stream is live.
        unsafe { world.backend.capture_begin(raw) }
            .map_err(|failure| world.failed("capture", failure))?;
        Ok(Self {
            queue: Queue::recording(world.clone(), raw),
            ended: false,
        })
    }

    fn end(mut self) -> Result<Graph> {
        let (world, raw) = (self.queue.world().clone(), self.queue.raw_handle());
        world.health.check_process()?;
        // SAFETY: the capture began in `begin`.
        let graph = unsafe { world.backend.capture_end(raw) }
            .map_err(|failure| world.failed("capture", failure))?;
        self.ended = true;
        let recording = self.queue.take_recording();
        let (uses, collectives, launched) = recording.unwrap_or_default().finish();
        // SAFETY: ended above; used only here.
        let exec = unsafe { world.backend.graph_instantiate(graph) }
            .map_err(|failure| world.failed("capture", failure))?;
        Ok(Graph {
            recorded: Some(Arc::new(Recorded {
                exec,
                collectives,
                launched,
                _uses: uses,
            })),
            world,
        })
    }
}

/// Ends a capture whose recording failed or panicked, so that the stream can be used and dropped.
impl Drop for Capture {
    fn drop(&mut self) {
        if !self.ended {
            end_capture(self.queue.world(), self.queue.raw_handle());
        }
    }
}

fn end_capture(world: &World, raw: RawStream) {
    if world.health.is_fork() {
        // The capture is its parent's.
        return;
    }
    // SAFETY: the stream is live.
    if matches!(unsafe { world.backend.stream_capturing(raw) }, Ok(false)) {
        // An attempt to end the capture failed, and ended it.
        return;
    }
    // SAFETY: the capture began before; the graph is used only here.
    let ended = unsafe {
        world
            .backend
            .capture_end(raw)
            .and_then(|graph| world.backend.graph_instantiate(graph))
            .and_then(|exec| world.backend.graph_destroy(exec))
    };
    if let Err(failure) = ended {
        tracing::warn!(rank = world.rank, %failure, "could not end the capture of work that failed");
    }
}

/// Gives the graph up without waiting. It is destroyed once this rank's streams are idle and no other graph
/// holds it.
impl Drop for Graph {
    fn drop(&mut self) {
        if let Some(recorded) = self.recorded.take() {
            self.world.give_up(recorded);
        }
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Graph")
            .field(
                "raw",
                &self.recorded.as_ref().map(|recorded| recorded.exec.0),
            )
            .finish_non_exhaustive()
    }
}
