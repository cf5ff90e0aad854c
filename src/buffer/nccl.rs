//! Communicators of NCCL or RCCL, and buffers registered as their symmetric windows.

use crate::base::element::Element;
use crate::base::error::Result;
use crate::buffer::symmetric::SymmetricBuffer;
use crate::group::nccl::{self, NcclLibrary};
use crate::world::communicator::Communicator;

impl Communicator {
    /// Opens NCCL or RCCL and joins these ranks to a communicator of it. Afterwards
    /// [`crate::Provider::Nccl`], or with `windows` [`crate::Provider::NcclWindows`], can be requested, and
    /// tuning rows that name NCCL take effect. Returns the library's description; does nothing else if it is
    /// open already. Collective. Blocks until all ranks have joined, for at most the setup deadline.
    ///
    /// Over nodes, each rail ([`Communicator::rails`]) gets a communicator, and collectives then send by it what goes between
    /// nodes: all-reduce, reduce, reduce-scatter, all-gather and broadcast of all ranks, and of groups with the same rails.
    /// 16-bit integers, 8-bit floats and averages of integers stay on UCX, and so do all-to-all, gather, scatter, sends and
    /// receives.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`], which names the library, if it is missing or too old for windows; over nodes, with
    /// `windows`, or if the nodes have different numbers of ranks; the errors of any collective call.
    pub fn open_nccl(&self, windows: bool) -> Result<NcclLibrary> {
        let world = self.world();
        nccl::open(world, &world.collectives.nccl, windows)
    }
}

impl<T: Element> SymmetricBuffer<T> {
    /// Registers the buffer as a symmetric window of NCCL; requires [`Communicator::open_nccl`] with windows.
    /// Collective; blocks for at most the setup deadline in each step. The registration lasts until the buffer is
    /// given up.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if NCCL was not opened with windows, or the buffer is registered
    /// already; [`crate::Error::Unsupported`] if the library cannot register it; the errors of any collective
    /// call.
    pub fn register_with_nccl(&self) -> Result<()> {
        let world = self.world();
        nccl::register(world, &world.collectives.nccl, self.allocation())
    }
}
