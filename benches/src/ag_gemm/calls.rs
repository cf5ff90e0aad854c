//! The calls that use a session's matrices.

use super::element::Real;
use super::kernel::Kernel;
use super::library::Library;
use super::session::Session;
use super::side::Side;
use super::windows::Windows;
use crate::Result;
use symmem::backend::abi::CAPABILITY_COPY_ENGINE;
use symmem::{Algorithm, AllGatherGemm, CollectiveOptions, Provider, Queue};

/// Who does what is checked or timed.
pub(super) enum By<'a, T: Real> {
    /// The vendor's library multiplies an A that is here.
    Gemm(Library<'a>),
    /// The same by our own kernel.
    Own(Box<Kernel<'a>>),
    /// A is gathered, and nothing else.
    Gather,
    /// Both at once on two streams, and neither waits for the other: what devices have to give.
    Together(Library<'a>, Side<'a>),
    /// One after the other, A between windows of the vendor's library of collectives.
    Windows(Windows<'a, T>),
    /// Both, by an algorithm of ours.
    Ours(Box<AllGatherGemm<T>>),
    /// Both, by PyTorch, in this way: its process does it.
    Torch(&'static str),
}

impl<T: Real> By<'_, T> {
    /// Whether its C can be compared: not where C is that of a gather at another time, or another process's.
    pub(super) fn is_checked(&self) -> bool {
        matches!(self, Self::Own(_) | Self::Windows(_) | Self::Ours(_))
    }
}

impl<T: Real> Session<'_, T> {
    /// Enqueues a call. PyTorch's is nothing here.
    pub(super) fn issue(&self, on: &Queue, by: &By<'_, T>) -> Result<()> {
        match by {
            By::Gather => self.gather(on, &CollectiveOptions::default())?,
            By::Together(library, side) => {
                let flags = self.communicator.capabilities().flags;
                // No compute unit is taken from the product where that can be.
                let algorithm = match flags & CAPABILITY_COPY_ENGINE {
                    0 => None,
                    _ => Some(Algorithm::CopyEngine),
                };
                let options = CollectiveOptions::new()
                    .algorithm(algorithm)
                    .provider(Provider::Own);
                let here = || self.multiply(on, library);
                side.both(on, |beside| self.gather(beside, &options), here)?;
            }
            By::Ours(operation) => on.all_gather_gemm(operation, &self.operands()?)?,
            By::Gemm(library) => self.multiply(on, library)?,
            By::Own(kernel) => {
                let (matrices, bias) = self.addresses();
                // SAFETY: as in `multiply`.
                unsafe { kernel.enqueue(matrices, bias, on) }?;
            }
            By::Windows(windows) => windows.enqueue(self, on)?,
            By::Torch(_) => {}
        }
        Ok(())
    }
}
