//! What a rank has given up (streams, graphs, modules, allocations) and when it is released: once no
//! work can use it any more.

use crate::backend::Device;
use crate::backend::abi::{RawGraphExec, RawStream};
use crate::gemm::workspace::Workspace;
use crate::rank::allocation;
use crate::rank::allocation::Allocation;
use crate::rank::context::{GivenUpGraph, Inner, Kept, KnownStream, Loaded, lock};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Inner {
    /// Remembers a stream, so that nothing it may use is released while it has work.
    pub fn add_stream(&self, raw: RawStream, owned: bool) {
        let mut streams = lock(&self.streams);
        // A caller's stream may be wrapped more than once.
        streams.push(KnownStream {
            raw,
            owned,
            event: None,
            closing: false,
        });
    }

    /// Forgets a stream; one made here is destroyed as soon as it is idle. A stream made here may have
    /// been wrapped as the caller's too, and must outlive that wrapper: so `owned` says which of the two
    /// is dropped.
    pub fn close_stream(&self, raw: RawStream, owned: bool) {
        {
            let mut streams = lock(&self.streams);
            if let Some(stream) = streams
                .iter_mut()
                .find(|stream| stream.raw == raw && stream.owned == owned && !stream.closing)
            {
                stream.closing = true;
                self.given_up.fetch_add(1, Ordering::AcqRel);
            }
        }
        self.reclaim();
    }

    /// Takes a dropped graph; it is destroyed once this rank's streams are idle.
    pub fn give_up_graph(&self, exec: RawGraphExec, uses: Vec<Kept>) {
        lock(&self.graphs).push(GivenUpGraph { exec, _uses: uses });
        self.given_up.fetch_add(1, Ordering::AcqRel);
        self.reclaim();
    }

    /// Takes a dropped buffer's allocation; it is released when every rank has dropped its own.
    pub fn give_up(&self, allocation: Arc<Allocation>) {
        lock(&self.dropped).push(allocation);
        self.given_up.fetch_add(1, Ordering::AcqRel);
        self.reclaim();
    }

    /// Takes a module whose handles were dropped; it is unloaded once no graph holds it and this
    /// rank's streams are idle.
    pub fn give_up_module(&self, module: Arc<Loaded>) {
        lock(&self.modules).push(module);
        self.given_up.fetch_add(1, Ordering::AcqRel);
        self.reclaim();
    }

    /// Takes what an operation kept whose handle was dropped; it is given back once no graph holds it and
    /// this rank's streams are idle.
    pub fn give_up_workspace(&self, workspace: Arc<Workspace>) {
        lock(&self.workspaces).push(workspace);
        self.given_up.fetch_add(1, Ordering::AcqRel);
        self.reclaim();
    }

    /// Keeps what a graph may use as long as the communicator.
    #[cold]
    pub fn keep(&self, uses: Vec<Kept>) {
        lock(&self.kept).extend(uses);
    }

    /// Releases what was given up and is no longer used. A load where nothing was.
    pub fn reclaim(&self) {
        if self.given_up.load(Ordering::Acquire) == 0 {
            return;
        }
        self.close_idle_streams();
        self.destroy_graphs();
        self.unload_modules();
        self.release_workspaces();
        let mut dropped = lock(&self.dropped);
        let before = dropped.len();
        allocation::reclaim(self, &mut dropped);
        self.released(before - dropped.len());
    }

    fn released(&self, count: usize) {
        self.given_up.fetch_sub(count, Ordering::AcqRel);
    }

    pub(crate) fn close_idle_streams(&self) {
        lock(&self.streams).retain(|stream| {
            if !stream.closing || !matches!(self.is_idle(stream.raw), Ok(true)) {
                return true;
            }
            if stream.owned {
                // SAFETY: live, idle, and no handle is left.
                let destroyed = unsafe { self.backend.stream_destroy(stream.raw) };
                if let Err(failure) = destroyed {
                    tracing::warn!(rank = self.rank, %failure, "stream_destroy");
                }
            }
            if let Some(event) = stream.event {
                // SAFETY: made with the stream, and used by its forks and joins only.
                if let Err(failure) = unsafe { self.backend.event_destroy(event) } {
                    tracing::warn!(rank = self.rank, %failure, "event_destroy");
                }
            }
            self.released(1);
            false
        });
    }

    /// Gives up the streams that are left when all handles are gone: side streams.
    pub(crate) fn close_remaining_streams(&self) {
        let mut streams = lock(&self.streams);
        for stream in streams.iter_mut().filter(|stream| !stream.closing) {
            stream.closing = true;
            self.given_up.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn destroy_graphs(&self) {
        let mut graphs = lock(&self.graphs);
        if graphs.is_empty() || !self.all_idle() {
            return;
        }
        for graph in graphs.drain(..) {
            // SAFETY: live, and no stream runs it or can any more: its handle is gone.
            if let Err(failure) = unsafe { self.backend.graph_destroy(graph.exec) } {
                tracing::warn!(rank = self.rank, %failure, "graph_destroy");
            }
            self.released(1);
        }
    }

    /// Unloads what no graph holds. An unload may wait for the device, which may wait for a peer that
    /// needs this rank: so only once nothing runs.
    pub(crate) fn unload_modules(&self) {
        let mut modules = lock(&self.modules);
        if modules.is_empty() || !self.all_idle() {
            return;
        }
        modules.retain(|module| {
            if Arc::strong_count(module) > 1 {
                return true;
            }
            // SAFETY: live, and no stream runs a kernel of it or can any more: its handles and the
            // graphs that had it are gone.
            if let Err(failure) = unsafe { self.backend.module_unload(module.0) } {
                tracing::warn!(rank = self.rank, %failure, "module_unload");
            }
            self.released(1);
            false
        });
    }

    /// Gives back what operations kept that no graph holds: once nothing runs, as modules are unloaded.
    pub(crate) fn release_workspaces(&self) {
        let mut workspaces = lock(&self.workspaces);
        if workspaces.is_empty() || !self.all_idle() {
            return;
        }
        let free = |workspace: &mut Arc<Workspace>| Arc::strong_count(workspace) == 1;
        // Locked until here: what is given up from now on may have been enqueued since all was idle.
        let released: Vec<_> = workspaces.extract_if(.., free).collect();
        drop(workspaces);
        for workspace in released {
            // Streams are closed on the way, which looks here again: the list is not locked any more.
            let memory = workspace.release(self);
            drop(workspace);
            self.given_up.fetch_add(memory.len(), Ordering::AcqRel);
            lock(&self.dropped).extend(memory);
            self.released(1);
        }
    }

    /// Dropped allocations that some rank still uses.
    pub fn unreclaimed(&self) -> usize {
        lock(&self.dropped).len()
    }

    /// Frees what peers have given up; says whether that was everything.
    pub(crate) fn free_given_up(&self) -> bool {
        lock(&self.dropped).retain(|allocation| !allocation.try_free(self));
        let permanent = self.permanent().filter(|left| !left.try_free(self)).count();
        permanent + self.unreclaimed() == 0
    }
}
