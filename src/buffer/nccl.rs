//! Opening NCCL or RCCL, and buffers as its symmetric windows.

use crate::base::element::Element;
use crate::base::error::Result;
use crate::buffer::symmetric::SymmetricBuffer;
use crate::group::nccl::{self, VendorLibrary};
use crate::world::communicator::Communicator;

impl Communicator {
    /// Opens the vendor's library of collectives for these ranks: [`crate::Provider::Vendor`], or with
    /// `windows` [`crate::Provider::VendorWindows`], can be asked for from then on, and rows of the
    /// selector that name it hold. Collective. Blocks until the library has joined all ranks, at most
    /// the setup deadline. Where it is open already, says only what it is.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] names the library where it is missing, or too old for windows; as any
    /// collective call.
    pub fn open_vendor(&self, windows: bool) -> Result<VendorLibrary> {
        let world = self.world();
        nccl::open(world, &world.collectives.nccl, windows)
    }
}

impl<T: Element> SymmetricBuffer<T> {
    /// Makes the buffer a symmetric window of NCCL ([`Communicator::open_vendor`] with windows). Collective. It
    /// stays one until the buffer is given up.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if there is no such communicator, or it is a window already;
    /// [`crate::Error::Unsupported`] where the library cannot; as any collective call.
    pub fn register_with_vendor(&self) -> Result<()> {
        let world = self.world();
        nccl::register(world, &world.collectives.nccl, self.allocation())
    }
}
