//! The calls of the contenders on a session's matrices.

use super::kernel::Kernel;
use super::session::Session;
use super::side::Side;
use super::windows::Windows;
use crate::Result;
use crate::gemm::element::MatrixFloat;
use crate::gemm::library::Library;
use symmem::backend::abi::CAPABILITY_COPY_ENGINE;
use symmem::{Algorithm, AllGatherGemm, CollectiveOptions, Provider, Queue};

/// The call of a contender.
pub(super) enum ContenderKind<'a, T: MatrixFloat> {
    /// The GEMM alone by cuBLASLt or hipBLASLt, with A already gathered.
    Gemm(Library<'a>),
    /// The GEMM alone by symmem's kernel, with A already gathered.
    Own(Box<Kernel<'a>>),
    /// The all-gather alone.
    Gather,
    /// GEMM and all-gather at once on two streams, without a dependency: a limit for overlap.
    Together(Library<'a>, Side<'a>),
    /// The all-gather by NCCL or RCCL between symmetric windows, then the GEMM.
    Windows(Windows<'a, T>),
    /// All-gather + GEMM by an algorithm of symmem.
    Ours(Box<AllGatherGemm<T>>),
    /// All-gather + GEMM by PyTorch's process, in the named way.
    Torch(&'static str),
}

impl<T: MatrixFloat> ContenderKind<'_, T> {
    /// Whether C can be checked here. Not for the parts whose A comes from another gather or not at all, and not for
    /// PyTorch, whose process checks by itself.
    pub(super) fn is_checked(&self) -> bool {
        matches!(self, Self::Own(_) | Self::Windows(_) | Self::Ours(_))
    }
}

impl<T: MatrixFloat> Session<'_, T> {
    /// Enqueues a call; does nothing for PyTorch, whose process makes its own calls.
    pub(super) fn issue(&self, on: &Queue, by: &ContenderKind<'_, T>) -> Result<()> {
        match by {
            ContenderKind::Gather => self.gather(on, &CollectiveOptions::default())?,
            ContenderKind::Together(library, side) => {
                let flags = self.communicator.capabilities().flags;
                // The copy engine, if there is one, takes no compute unit from the GEMM.
                let algorithm = match flags & CAPABILITY_COPY_ENGINE {
                    0 => None,
                    _ => Some(Algorithm::CopyEngine),
                };
                let options = CollectiveOptions::new()
                    .algorithm(algorithm)
                    .provider(Provider::Symmem);
                let here = || self.multiply(on, library);
                side.both(on, |beside| self.gather(beside, &options), here)?;
            }
            ContenderKind::Ours(operation) => on.all_gather_gemm(operation, &self.operands()?)?,
            ContenderKind::Gemm(library) => self.multiply(on, library)?,
            ContenderKind::Own(kernel) => {
                let (matrices, bias) = self.addresses();
                // SAFETY: as in `multiply`: the buffers have the sizes of the shape that the kernel was made for, and
                // live until the streams that use them are idle and the graphs gone.
                unsafe { kernel.enqueue(matrices, bias, on) }?;
            }
            ContenderKind::Windows(windows) => windows.enqueue(self, on)?,
            ContenderKind::Torch(_) => {}
        }
        Ok(())
    }
}
