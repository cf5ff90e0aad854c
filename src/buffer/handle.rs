//! Handles by which the user's kernels reach peers.

use crate::backend::abi::Handle;
use crate::base::element::Element;
use crate::base::error::{Error, Result};
use crate::base::limits::{CHANNELS, check_channel};
use crate::buffer::symmetric::SymmetricBuffer;
use std::time::Duration;

impl<T: Element> SymmetricBuffer<T> {
    /// Returns the handle that a kernel takes by value to put to this buffer at every rank, get from it, signal
    /// and wait, with the functions of `symmem/handle.h`. Waits give up after the communicator's deadline.
    ///
    /// `channel` is one of [`CHANNELS`]. Kernels and streams share its counts: a [`crate::Queue::wait_signal`]
    /// consumes a kernel's signal, and a kernel's wait consumes a stream's signal. Work that signals one peer,
    /// or waits for it, on one channel must be ordered, by one stream or by events.
    ///
    /// The handle is plain data and keeps nothing alive: see [`crate::Queue::launch`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such channel; [`Error::Unsupported`] if signals live in host
    /// memory, whose counts kernels cannot see, or if the ranks are on several nodes; the error that poisoned the communicator.
    pub fn handle(&self, channel: u32) -> Result<Handle> {
        self.handle_within(channel, self.world().deadlines.wait)
    }

    /// [`SymmetricBuffer::handle`] with a deadline for its waits, each counted from its own start.
    ///
    /// # Errors
    /// As [`SymmetricBuffer::handle`].
    pub fn handle_within(&self, channel: u32, deadline: Duration) -> Result<Handle> {
        let (shared, operation) = (self.world(), "handle");
        shared.health.check()?;
        shared.check_one_node(operation, "signal ranks of one node by `Queue::put_signal`")?;
        check_channel(channel, CHANNELS).map_err(|message| shared.invalid(operation, message))?;
        let watch = shared.watch(deadline);
        let Some(mut handle) = shared.pad.handle(channel, watch) else {
            return Err(Error::Unsupported {
                rank: shared.rank,
                operation,
                message: "kernels cannot use signals in host memory, which the host counts; open the communicator \
                    with `SignalPlacement::Device`"
                    .into(),
            });
        };
        for (rank, base) in handle.bases.iter_mut().enumerate().take(shared.world) {
            *base = self.allocation().at(rank, 0);
        }
        handle.bytes = (self.len() * size_of::<T>()) as u64;
        Ok(handle)
    }
}
