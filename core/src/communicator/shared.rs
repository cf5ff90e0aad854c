//! What a communicator, its buffers, streams and graphs share.

use super::agreement::Agreement;
use super::allocation::{self, Allocation};
use super::pad::SignalPad;
use crate::backend::abi::{
    Capabilities, DeviceAddress, DeviceDescription, Direction, HostMemory, Method, RawStream,
    ShareKind, Transfer, TransferRow,
};
use crate::backend::{Backend, CallResult, Device, RemoteAccess};
use crate::control::RankState;
use crate::error::{Error, Result};
use crate::health::Health;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of pinned host memory through which host copies go.
pub const STAGING_BYTES: u64 = 4 << 20;

/// Deadlines and placements that every rank agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bound of every wait on a peer's signal, counted from the kernel's start.
    pub deadline: Duration,
    /// Bound of every step in which ranks set something up together.
    pub setup_deadline: Duration,
}

/// A stream that the communicator knows of.
#[derive(Clone, Copy)]
pub struct KnownStream {
    pub raw: RawStream,
    /// Made here, so destroyed here.
    pub owned: bool,
    /// Its handle was dropped; it goes once it is idle.
    pub closing: bool,
}

/// Shared by everything that belongs to one communicator.
pub struct Shared {
    pub rank: usize,
    pub world: usize,
    pub options: Options,
    pub capabilities: Capabilities,
    pub description: DeviceDescription,
    pub health: Arc<Health>,
    pub agreement: Agreement,
    /// The strategy that the signal pad proved; later allocations use it.
    pub kind: OnceLock<ShareKind>,
    pub pad: OnceLock<SignalPad>,
    /// Peers in this very process.
    pub same_process: Vec<bool>,
    pub live_buffers: AtomicUsize,
    pub(super) words: HostMemory,
    pub(super) staging: Mutex<Staging>,
    pub(super) streams: Mutex<Vec<KnownStream>>,
    pub(super) dropped: Mutex<Vec<Arc<Allocation>>>,
    pub(super) dropped_count: AtomicUsize,
    pub(super) watcher: Mutex<Option<JoinHandle<()>>>,
    /// Last, so that it is dropped last: everything above calls it.
    pub backend: Backend,
}

/// Pinned memory and a stream for host copies.
pub struct Staging {
    pub memory: HostMemory,
    pub stream: RawStream,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A wait that will be long is not worth a core.
fn back_off(waited: Duration) {
    match waited.as_micros() {
        0..200 => std::hint::spin_loop(),
        200..5_000 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

impl Shared {
    /// The signal pad.
    pub fn pad(&self) -> &SignalPad {
        self.pad
            .get()
            .expect("set before a communicator is handed out")
    }

    /// Whether a peer is a thread of this process.
    pub fn is_same_process(&self, peer: usize) -> bool {
        self.same_process[peer]
    }

    /// A failed call to the backend as this rank's error.
    pub fn failed(&self, operation: &'static str, failure: crate::backend::Failure) -> Error {
        Error::backend(self.rank, operation, failure)
    }

    /// Waits until a stream is idle, the deadline passes or the communicator is poisoned (then until
    /// the stream has drained, since waiting kernels leave by the abort word).
    pub fn wait_idle(&self, stream: RawStream, deadline: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            // SAFETY: every stream that reaches this is live.
            match unsafe { self.backend.stream_idle(stream) } {
                Ok(0) => {}
                Ok(_) => return self.health.look(),
                Err(failure) => {
                    let error = self.failed("synchronize", failure);
                    self.health.poison(error);
                    return self.health.check();
                }
            }
            let waited = start.elapsed();
            if waited > deadline {
                let operation = "synchronize";
                self.health.poison(Error::HostTimeout {
                    rank: self.rank,
                    operation,
                    waited,
                });
                return self.health.check();
            }
            back_off(waited);
        }
    }

    /// Whether no stream of this rank has work; an error if work failed or is being captured.
    fn idle_now(&self) -> CallResult<bool> {
        for stream in lock(&self.streams).iter() {
            // SAFETY: known streams are live while the list is locked.
            if unsafe { self.backend.stream_idle(stream.raw) }? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether no stream of this rank has work.
    pub fn all_idle(&self) -> bool {
        self.idle_now().unwrap_or(false)
    }

    /// Waits until no stream of this rank has work.
    pub fn wait_all_idle(&self, deadline: Duration) -> Result<()> {
        let start = Instant::now();
        while !self
            .idle_now()
            .map_err(|failure| self.failed("drain streams", failure))?
        {
            let waited = start.elapsed();
            if waited > deadline {
                return Err(Error::HostTimeout {
                    rank: self.rank,
                    operation: "drain streams",
                    waited,
                });
            }
            back_off(waited);
        }
        self.health.look()
    }

    /// Copies host bytes to an address of this device or a mapped peer. Blocking, bounded.
    pub fn write_bytes(&self, destination: DeviceAddress, bytes: &[u8]) -> Result<()> {
        let staging = lock(&self.staging);
        self.write_through(&staging, staging.stream, destination, bytes)
    }

    /// Copies bytes at an address of this device or a mapped peer to the host. Blocking, bounded.
    pub fn read_bytes(&self, source: DeviceAddress, bytes: &mut [u8]) -> Result<()> {
        let staging = lock(&self.staging);
        self.read_through(&staging, staging.stream, source, bytes)
    }

    /// As [`Shared::write_bytes`], after all earlier work on `stream`.
    pub fn write_on(&self, stream: RawStream, to: DeviceAddress, bytes: &[u8]) -> Result<()> {
        self.write_through(&lock(&self.staging), stream, to, bytes)
    }

    /// As [`Shared::read_bytes`], after all earlier work on `stream`.
    pub fn read_on(&self, stream: RawStream, from: DeviceAddress, bytes: &mut [u8]) -> Result<()> {
        self.read_through(&lock(&self.staging), stream, from, bytes)
    }

    fn write_through(
        &self,
        staging: &Staging,
        stream: RawStream,
        destination: DeviceAddress,
        bytes: &[u8],
    ) -> Result<()> {
        let mut address = destination.0;
        for chunk in bytes.chunks(STAGING_BYTES as usize) {
            // SAFETY: the staging memory is this long, locked, and no copy from it is under way:
            // each is waited for below.
            unsafe {
                (staging.memory.host as *mut u8)
                    .copy_from_nonoverlapping(chunk.as_ptr(), chunk.len())
            };
            self.copy(
                stream,
                DeviceAddress(address),
                staging.memory.device,
                chunk.len(),
            )?;
            address += chunk.len() as u64;
        }
        Ok(())
    }

    fn read_through(
        &self,
        staging: &Staging,
        stream: RawStream,
        source: DeviceAddress,
        bytes: &mut [u8],
    ) -> Result<()> {
        let mut address = source.0;
        for chunk in bytes.chunks_mut(STAGING_BYTES as usize) {
            self.copy(
                stream,
                staging.memory.device,
                DeviceAddress(address),
                chunk.len(),
            )?;
            // SAFETY: as above; the copy has completed.
            unsafe {
                chunk
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(staging.memory.host as *const u8, chunk.len())
            };
            address += chunk.len() as u64;
        }
        Ok(())
    }

    fn copy(
        &self,
        stream: RawStream,
        destination: DeviceAddress,
        source: DeviceAddress,
        bytes: usize,
    ) -> Result<()> {
        let bytes = bytes as u64;
        let transfer = Transfer {
            destination,
            source,
            bytes,
            direction: Direction::PUT,
            row: TransferRow {
                bytes,
                method: Method::COPY_ENGINE,
                ..TransferRow::default()
            },
            ..Transfer::default()
        };
        // SAFETY: the caller names live memory; the copy is waited for, so both ranges stay live.
        unsafe { self.backend.transfer(&transfer, stream) }
            .map_err(|failure| self.failed("host copy", failure).about(None, bytes))?;
        self.wait_idle(stream, self.options.deadline)
    }

    /// Remembers a stream, so that nothing it may use is released while it has work.
    pub fn add_stream(&self, raw: RawStream, owned: bool) {
        let mut streams = lock(&self.streams);
        // A caller's stream may be wrapped more than once.
        streams.push(KnownStream {
            raw,
            owned,
            closing: false,
        });
    }

    /// Forgets a stream; one made here is destroyed as soon as it is idle.
    pub fn close_stream(&self, raw: RawStream) {
        {
            let mut streams = lock(&self.streams);
            if let Some(stream) = streams
                .iter_mut()
                .find(|stream| stream.raw == raw && !stream.closing)
            {
                stream.closing = true;
            }
        }
        self.close_idle_streams();
    }

    fn close_idle_streams(&self) {
        lock(&self.streams).retain(|stream| {
            // SAFETY: known streams are live; a closing one has no handle left.
            unsafe {
                if !stream.closing || !matches!(self.backend.stream_idle(stream.raw), Ok(1)) {
                    return true;
                }
                if stream.owned
                    && let Err(failure) = self.backend.stream_destroy(stream.raw)
                {
                    tracing::warn!(rank = self.rank, %failure, "stream_destroy");
                }
            }
            false
        });
    }

    /// Takes a dropped buffer's allocation; it is released when every rank has dropped its own.
    pub fn give_up(&self, allocation: Arc<Allocation>) {
        let mut dropped = lock(&self.dropped);
        dropped.push(allocation);
        allocation::reclaim(self, &mut dropped);
        self.dropped_count.store(dropped.len(), Ordering::Release);
    }

    /// Releases what was dropped and is no longer used. A load where nothing was dropped.
    pub fn reclaim(&self) {
        if self.dropped_count.load(Ordering::Acquire) == 0 {
            return;
        }
        self.close_idle_streams();
        let mut dropped = lock(&self.dropped);
        allocation::reclaim(self, &mut dropped);
        self.dropped_count.store(dropped.len(), Ordering::Release);
    }

    /// Dropped allocations that some rank still uses.
    pub fn unreclaimed(&self) -> usize {
        self.dropped_count.load(Ordering::Acquire)
    }
}

impl Drop for Shared {
    /// Gives everything back. Work still running is waited for, but not for ever: what a stuck
    /// device may still touch is left to the end of the process.
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        let drained = self.wait_all_idle(PATIENCE).is_ok() || self.all_idle();
        self.close_idle_streams();
        let mut dropped = std::mem::take(&mut *lock(&self.dropped));
        if drained {
            for allocation in &dropped {
                allocation.unmap(self);
            }
            if let Some(pad) = self.pad.get() {
                pad.close(self);
                pad.allocation().unmap(self);
            }
        }
        let state = match self.health.check() {
            Ok(()) => RankState::Left,
            Err(_) => RankState::FailedAndLeft,
        };
        self.health
            .control()
            .set_state(self.rank, state, self.health.culprit());
        if drained {
            let start = Instant::now();
            let pad = self.pad.get().map(SignalPad::allocation);
            dropped.retain(|allocation| !allocation.try_free(self));
            // Memory shared by file may go at once: peers' mappings keep it. Other kinds wait a
            // while for peers that leave later.
            while !(dropped.is_empty() && pad.is_none_or(|pad| pad.try_free(self)))
                && start.elapsed() < PATIENCE
            {
                std::thread::sleep(Duration::from_millis(1));
                dropped.retain(|allocation| !allocation.try_free(self));
            }
        }
        if let Some(watcher) = lock(&self.watcher).take() {
            self.health.stop_watcher(watcher);
        }
        if drained {
            let staging = lock(&self.staging);
            // SAFETY: no work is left, and nothing else holds these.
            unsafe {
                let _ = self.backend.stream_destroy(staging.stream);
                let _ = self.backend.host_free(staging.memory);
                let _ = self.backend.host_free(self.words);
            }
        }
    }
}
