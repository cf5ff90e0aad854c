//! A kernel in front of each call of a loop, as a model has one between its collectives.
//!
//! In a loop of kernel, call, kernel, call, … each call has a kernel before and after it. Times are of the whole loop,
//! per call; the kernel alone is timed in the same way.

use crate::by_caller::is_by_caller;
use crate::report::ag_gemm::MatrixOrder;
use crate::{BenchError, Result, exchange};
use half::bf16;
use serde::{Deserialize, Serialize};
use symmem::backend::abi::{DeviceAddress, GemmLayout, GemmOperands, RawGemm, RawStream};
use symmem::backend::{Backend, Failure, Gemm, read_text};
use symmem::{Communicator, Method, Queue, Reducible, SymmetricBuffer, TransferOptions};

/// A kernel between calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Between {
    /// A copy in device memory.
    Copy,
    /// A vector times a matrix, by cuBLASLt or hipBLASLt.
    Gemv,
    /// A GEMM, by cuBLASLt or hipBLASLt.
    Gemm,
}

/// Bytes of the copy: as many as 2048 rows of 4096 activations in bf16.
const COPY_BYTES: usize = 16 << 20;
/// Blocks and threads of the copy on a device.
const COPY_GRID: (u32, u32) = (264, 512);
/// Rows, columns and depth of the products: a projection of a model with hidden size 4096, in bf16.
const GEMV: [u64; 3] = [1, 4096, 4096];
const GEMM: [u64; 3] = [512, 4096, 4096];

impl Between {
    /// All kernels.
    pub const ALL: [Self; 3] = [Self::Copy, Self::Gemv, Self::Gemm];

    /// Returns the name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Gemv => "gemv",
            Self::Gemm => "gemm",
        }
    }

    /// Returns the kernel with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    fn shape(self) -> Option<[u64; 3]> {
        match self {
            Self::Copy => None,
            Self::Gemv => Some(GEMV),
            Self::Gemm => Some(GEMM),
        }
    }

    /// Describes the kernel for a report.
    pub(super) fn describe(self) -> String {
        match self.shape() {
            None => format!("{} of {} MiB", self.name(), COPY_BYTES >> 20),
            Some([m, n, k]) => format!("{} of {m}×{n}×{k} in bf16", self.name()),
        }
    }
}

/// A prepared kernel and its memory.
pub(super) struct Kernel<'a> {
    rank: usize,
    work: Prepared<'a>,
    program_options: Vec<String>,
}

enum Prepared<'a> {
    Copy([SymmetricBuffer<u8>; 2], TransferOptions),
    Product([SymmetricBuffer<bf16>; 3], Library<'a>),
}

/// A prepared GEMM; released when dropped.
struct Library<'a>(&'a Backend, RawGemm);

impl<'a> Kernel<'a> {
    /// Prepares a kernel. Collective.
    ///
    /// # Errors
    /// [`BenchError::World`] for a product on the host; [`BenchError::Backend`] if cuBLASLt or hipBLASLt is missing.
    pub(super) fn new(communicator: &'a Communicator, between: Between) -> Result<Self> {
        let rank = communicator.rank();
        let Some([m, n, k]) = between.shape() else {
            let buffer = || communicator.allocate::<u8>(&[COPY_BYTES]);
            // On a device, a kernel, and not the copy engine, which would leave the device to the call before.
            let options = match is_by_caller(communicator) {
                true => TransferOptions::new(),
                false => TransferOptions::new()
                    .method(Method::Vector)
                    .geometry(COPY_GRID.0, COPY_GRID.1),
            };
            let program_options = [
                "--copy".into(),
                COPY_BYTES.to_string(),
                COPY_GRID.0.to_string(),
                COPY_GRID.1.to_string(),
            ];
            return Ok(Self {
                rank,
                work: Prepared::Copy([buffer()?, buffer()?], options),
                program_options: program_options.into(),
            });
        };
        if is_by_caller(communicator) {
            let name = between.name();
            let message = format!(
                "--between {name} multiplies by cuBLASLt or hipBLASLt, which the host backend does not have; use \
                 --between copy"
            );
            return Err(BenchError::World { rank, message });
        }
        let layout = GemmLayout {
            m,
            n,
            k,
            a_stride: k,
            b_stride: n,
            c_stride: n,
            element: bf16::TYPE.into(),
            b_order: MatrixOrder::Rows.into(),
            bias: false.into(),
            addend: 0,
        };
        // SAFETY: only prepares a GEMM, which `Library` releases, and enqueues it on memory that lives until `free`.
        let backend = unsafe { communicator.backend() };
        let prepared = backend
            .gemm_prepare(&layout)
            .map(|gemm| Library(backend, gemm));
        let library = prepared
            .and_then(|library| Ok((library, backend.gemm_library()?)))
            .map_err(|failure| failed(rank, failure));
        // A rank without the library must not leave the others waiting in the allocations below.
        let reason = library.as_ref().err().map(ToString::to_string);
        let reasons = exchange::all_gather(communicator, &reason)?;
        // This rank's own error first, since it keeps its type.
        let (library, description) = library?;
        if let Some(message) = reasons.into_iter().flatten().next() {
            return Err(BenchError::World { rank, message });
        }
        let matrix = |elements: u64| communicator.allocate::<bf16>(&[elements as usize]);
        let matrices = [matrix(m * k)?, matrix(k * n)?, matrix(m * n)?];
        let sizes = [m, n, k].map(|size| size.to_string());
        let program_options = [
            vec!["--gemm".into()],
            sizes.into(),
            vec![read_text(&description.file)],
        ];
        Ok(Self {
            rank,
            work: Prepared::Product(matrices, library),
            program_options: program_options.concat(),
        })
    }

    /// Returns the options by which `flashinfer_collectives.cu` runs the same kernel.
    pub(super) fn program_options(&self) -> &[String] {
        &self.program_options
    }

    /// Enqueues the kernel.
    pub(super) fn enqueue(&self, on: &Queue) -> Result<()> {
        match &self.work {
            Prepared::Copy([from, to], options) => {
                on.with(options).put(self.rank, to, from)?;
                Ok(())
            }
            Prepared::Product(matrices, Library(backend, gemm)) => {
                let [a, b, c] = matrices.each_ref().map(|matrix| matrix.local().address());
                let bias = DeviceAddress::NULL;
                let operands = GemmOperands {
                    a,
                    b,
                    c,
                    bias,
                    addend: DeviceAddress::NULL,
                    scale: DeviceAddress::NULL,
                };
                // SAFETY: the GEMM is live and used on one stream at a time; the matrices have its shape and live until
                // streams are idle and graphs gone.
                unsafe { backend.gemm(*gemm, 0, &operands, RawStream(on.raw())) }
                    .map_err(|failure| failed(self.rank, failure))
            }
        }
    }

    /// Frees the memory. No graph may use it any more. Collective.
    pub(super) fn free(self) -> Result<()> {
        match self.work {
            Prepared::Copy(buffers, _) => Ok(buffers.into_iter().try_for_each(|one| one.free())?),
            Prepared::Product(matrices, library) => {
                drop(library);
                Ok(matrices.into_iter().try_for_each(|one| one.free())?)
            }
        }
    }
}

impl Drop for Library<'_> {
    fn drop(&mut self) {
        // SAFETY: `Kernel::new` prepared the GEMM, and only this releases it, when streams are idle and graphs gone. A
        // failure cannot be reported from here.
        let _ = unsafe { self.0.gemm_release(self.1) };
    }
}

fn failed(rank: usize, failure: Failure) -> BenchError {
    BenchError::Backend {
        rank,
        operation: "GEMM between calls, by cuBLASLt or hipBLASLt",
        failure,
    }
}
