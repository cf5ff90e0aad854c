//! Recorded work, replayed any number of times.

use crate::backend::Device;
use crate::backend::abi::RawGraphExec;
use crate::communicator::Shared;
use crate::communicator::shared::Kept;
use crate::error::Result;
use crate::stream::Stream;
use std::sync::Arc;

/// Work recorded from one stream, ready to be launched. It keeps the buffers and
/// modules that it uses.
///
/// Signals and barriers count on the device, so a graph can be launched any number of times and mixed
/// with eager calls. Launches of one graph run one after the other.
pub struct Graph {
    exec: RawGraphExec,
    uses: Vec<Kept>,
    shared: Arc<Shared>,
}

impl Graph {
    /// Records what `work` enqueues on `stream`, without running it; so is what other threads enqueue
    /// there meanwhile.
    ///
    /// # Errors
    /// `work`'s own error, which ends the recording; [`crate::Error::InvalidArgument`] if the stream is
    /// being captured already; the backend's.
    pub fn capture(stream: &Stream, work: impl FnOnce(&Stream) -> Result<()>) -> Result<Self> {
        let shared = stream.shared();
        shared.health.check()?;
        stream.begin_keeping()?;
        // SAFETY: the stream is live.
        if let Err(failure) = unsafe { shared.backend.capture_begin(stream.raw_handle()) } {
            stream.end_keeping();
            return Err(shared.failed("capture", failure));
        }
        let recording = Recording { stream };
        work(stream)?;
        // SAFETY: the capture began above.
        let graph = unsafe { shared.backend.capture_end(stream.raw_handle()) }
            .map_err(|failure| shared.failed("capture", failure))?;
        std::mem::forget(recording);
        let uses = stream.end_keeping();
        // SAFETY: ended above; used only here.
        let exec = unsafe { shared.backend.graph_instantiate(graph) }
            .map_err(|failure| shared.failed("capture", failure))?;
        Ok(Self {
            exec,
            uses,
            shared: shared.clone(),
        })
    }

    /// Runs the recorded work after all earlier work on `stream`.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for a stream of another communicator; the backend's; what
    /// poisoned the communicator.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        stream.check_same(&self.shared, "graph launch")?;
        self.shared.health.check()?;
        let raw = stream.raw_handle();
        // SAFETY: both are live; the graph keeps the buffers it uses, and `shared` the rest.
        unsafe { self.shared.backend.graph_launch(self.exec, raw) }
            .map_err(|failure| self.shared.failed("graph launch", failure))
    }
}

/// Ends a capture whose work failed or panicked, so that the stream can be used and dropped.
struct Recording<'a> {
    stream: &'a Stream,
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.end();
        self.stream.end_keeping();
    }
}

impl Recording<'_> {
    fn end(&self) {
        let shared = self.stream.shared();
        let raw = self.stream.raw_handle();
        // SAFETY: the stream is live.
        if matches!(unsafe { shared.backend.stream_capturing(raw) }, Ok(false)) {
            // An attempt to end it has failed, and has ended it all the same.
            return;
        }
        // SAFETY: the capture began before this value; the graph is used only here.
        let ended = unsafe {
            shared
                .backend
                .capture_end(raw)
                .and_then(|graph| shared.backend.graph_instantiate(graph))
                .and_then(|exec| shared.backend.graph_destroy(exec))
        };
        if let Err(failure) = ended {
            tracing::warn!(rank = shared.rank, %failure, "ending the capture of work that failed");
        }
    }
}

/// Gives the graph up without waiting: it goes once this rank's streams are idle.
impl Drop for Graph {
    fn drop(&mut self) {
        self.shared
            .give_up_graph(self.exec, std::mem::take(&mut self.uses));
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Graph")
            .field("raw", &self.exec.0)
            .finish_non_exhaustive()
    }
}
