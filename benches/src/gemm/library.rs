//! The GEMM alone by cuBLASLt or hipBLASLt, with its fastest heuristic.

use super::element::MatrixFloat;
use crate::clock::Clock;
use crate::outcome::Outcome;
use crate::report::ag_gemm::MatrixOrder;
use crate::{BenchError, Result};
use symmem::backend::abi::{DeviceAddress, GemmLayout, GemmOperands, RawGemm, RawStream, Status};
use symmem::backend::{Backend, CallResult, Gemm};
use symmem::{Communicator, Queue, Stream};

/// Maximum number of heuristics to try; the library orders them by its own estimate.
const MOST: u32 = 16;
/// Timed runs of each heuristic.
const RUNS: u32 = 3;

/// The whole GEMM, with matrices without padding, in the backend's form.
pub(crate) fn layout<T: MatrixFloat>(
    [m, n, k]: [usize; 3],
    b_order: MatrixOrder,
    bias: bool,
) -> GemmLayout {
    let [m, n, k] = [m, n, k].map(|size| size as u64);
    GemmLayout {
        m,
        n,
        k,
        a_stride: k,
        b_stride: match b_order {
            MatrixOrder::Rows => n,
            MatrixOrder::Columns => k,
        },
        c_stride: n,
        element: T::TYPE.into(),
        b_order: b_order.into(),
        bias: bias.into(),
        addend: 0,
    }
}

/// A prepared GEMM of the library; released when dropped.
pub(crate) struct Library<'a> {
    backend: &'a Backend,
    rank: usize,
    shape: GemmLayout,
    gemm: RawGemm,
    candidates: u32,
    candidate: u32,
}

impl<'a> Library<'a> {
    /// Prepares a GEMM; returns the reason if the library is missing or does not support it.
    pub(crate) fn new(communicator: &'a Communicator, shape: GemmLayout) -> Result<Outcome<Self>> {
        // SAFETY: the backend only prepares GEMMs, which `drop` releases, and enqueues them in `enqueue`, whose callers
        // promise that the matrices outlive them.
        let backend = unsafe { communicator.backend() };
        let rank = communicator.rank();
        let prepared = backend.gemm_prepare(&shape).map(|gemm| {
            // SAFETY: the GEMM was just prepared and is still live.
            let candidates = unsafe { backend.gemm_candidates(gemm) };
            Self {
                backend,
                rank,
                shape,
                gemm,
                candidates: candidates.unwrap_or(1).max(1),
                candidate: 0,
            }
        });
        match prepared {
            Ok(library) => Ok(Ok(library)),
            Err(failure)
                if matches!(
                    failure.status,
                    Status::LIBRARY_MISSING | Status::UNSUPPORTED
                ) =>
            {
                Ok(Err(failure.to_string()))
            }
            Err(failure) => Err(failed(rank, failure)),
        }
    }

    /// Times the library's heuristics and keeps the fastest. `work` enqueues a call on `stream`.
    pub(crate) fn choose(
        mut self,
        clock: &Clock<'_>,
        stream: &Stream,
        work: impl Fn(&Self) -> Result<()>,
    ) -> Result<Self> {
        let mut best: Option<(f64, u32)> = None;
        for candidate in 0..self.candidates.min(MOST) {
            self.candidate = candidate;
            // The library may refuse a heuristic that it offered.
            if work(&self).is_err() {
                stream.synchronize()?;
                continue;
            }
            let times = clock.each(stream, RUNS, false, &|| work(&self))?;
            let least = times.into_iter().fold(f64::INFINITY, f64::min);
            if best.is_none_or(|(so_far, _)| least < so_far) {
                best = Some((least, candidate));
            }
        }
        self.candidate = best.map_or(0, |(_, candidate)| candidate);
        Ok(self)
    }

    /// Prepares the same GEMM once more, with the same heuristic.
    pub(crate) fn again(&self, communicator: &'a Communicator) -> Result<Outcome<Self>> {
        let other = Self::new(communicator, self.shape)?;
        Ok(other.map(|mut other| {
            other.candidate = self.candidate;
            other
        }))
    }

    /// Names the heuristic in use.
    pub(crate) fn how(&self) -> String {
        format!("heuristic {} of {}", self.candidate + 1, self.candidates)
    }

    /// Enqueues the GEMM of `A` and `B` into `C`.
    ///
    /// # Safety
    /// The matrices must be valid and without padding until the stream has passed this point and all graphs that
    /// captured it are gone.
    pub(crate) unsafe fn enqueue(
        &self,
        [a, b, c]: [DeviceAddress; 3],
        bias: Option<DeviceAddress>,
        on: &Queue,
    ) -> Result<()> {
        let operands = GemmOperands {
            a,
            b,
            c,
            bias: bias.unwrap_or(DeviceAddress::NULL),
            addend: DeviceAddress::NULL,
            scale: DeviceAddress::NULL,
        };
        // SAFETY: the prepared GEMM is live and used on one stream; the caller promises valid matrices.
        let enqueued: CallResult<()> = unsafe {
            self.backend
                .gemm(self.gemm, self.candidate, &operands, RawStream(on.raw()))
        };
        enqueued.map_err(|failure| failed(self.rank, failure))
    }
}

impl Drop for Library<'_> {
    fn drop(&mut self) {
        // SAFETY: `new` prepared the GEMM, and only this releases it; streams are idle and graphs gone before a
        // contender is dropped. A failure cannot be reported from here.
        let _ = unsafe { self.backend.gemm_release(self.gemm) };
    }
}

fn failed(rank: usize, failure: symmem::backend::Failure) -> BenchError {
    BenchError::Backend {
        rank,
        operation: "GEMM by cuBLASLt or hipBLASLt",
        failure,
    }
}
