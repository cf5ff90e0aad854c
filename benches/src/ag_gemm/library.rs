//! A product by the vendor's library alone, in its fastest way.

use super::element::Real;
use crate::clock::Clock;
use crate::outcome::Outcome;
use crate::report::ag_gemm::{Order, Product};
use crate::{BenchError, Result};
use symmem::backend::abi::{DeviceAddress, GemmOperands, GemmShape, RawGemm, RawStream, Status};
use symmem::backend::{Backend, CallResult, Gemm};
use symmem::tuning::order;
use symmem::{Communicator, Queue, Stream};

/// Ways that are tried at most, the library's best guess first.
const MOST: u32 = 16;
/// Timed runs of each.
const RUNS: u32 = 3;

/// A whole product, of matrices without gaps, as a backend takes it.
pub(super) fn raw_shape<T: Real>(product: &Product) -> GemmShape {
    let (m, n, k) = (product.m as u64, product.n as u64, product.k as u64);
    GemmShape {
        m,
        n,
        k,
        a_stride: k,
        b_stride: match product.b_order {
            Order::RowMajor => n,
            Order::ColumnMajor => k,
        },
        c_stride: n,
        element: T::TYPE.into(),
        b_order: order(product).into(),
        bias: product.bias.into(),
        reserved: 0,
    }
}

/// A product that the library has prepared; given back when dropped.
pub(super) struct Library<'a> {
    backend: &'a Backend,
    rank: usize,
    gemm: RawGemm,
    ways: u32,
    way: u32,
}

impl<'a> Library<'a> {
    /// Prepares a product, or says why there is none.
    pub(super) fn new<T: Real>(
        communicator: &'a Communicator,
        product: &Product,
    ) -> Result<Outcome<Self>> {
        let shape = raw_shape::<T>(product);
        // SAFETY: it prepares products, which are given back, and has them enqueued by those who promise that the
        // matrices outlive them.
        let backend = unsafe { communicator.backend() };
        let rank = communicator.rank();
        let prepared = backend.gemm_prepare(&shape).map(|gemm| {
            // SAFETY: prepared just now.
            let ways = unsafe { backend.gemm_candidates(gemm) };
            Self {
                backend,
                rank,
                gemm,
                ways: ways.unwrap_or(1).max(1),
                way: 0,
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

    /// Times the library's ways, and goes on with the fastest. `work` enqueues a call on
    /// `stream`.
    pub(super) fn choose(
        mut self,
        clock: &Clock<'_>,
        stream: &Stream,
        work: impl Fn(&Self) -> Result<()>,
    ) -> Result<Self> {
        let mut best: Option<(f64, u32)> = None;
        for way in 0..self.ways.min(MOST) {
            self.way = way;
            // A way that the library offers and then refuses is none.
            if work(&self).is_err() {
                stream.synchronize()?;
                continue;
            }
            let times = clock.each(stream, RUNS, false, &|| work(&self))?;
            let least = times.into_iter().fold(f64::INFINITY, f64::min);
            if best.is_none_or(|(so_far, _)| least < so_far) {
                best = Some((least, way));
            }
        }
        self.way = best.map_or(0, |(_, way)| way);
        Ok(self)
    }

    /// The same product once more, in the same way.
    pub(super) fn again<T: Real>(
        &self,
        communicator: &'a Communicator,
        product: &Product,
    ) -> Result<Outcome<Self>> {
        let other = Self::new::<T>(communicator, product)?;
        Ok(other.map(|mut other| {
            other.way = self.way;
            other
        }))
    }

    /// Which of its ways it goes.
    pub(super) fn how(&self) -> String {
        format!("way {} of {}", self.way + 1, self.ways)
    }

    /// Enqueues the product of `A` and `B` into `C`.
    ///
    /// # Safety
    /// The matrices are there, without gaps, until the stream has passed this point and graphs that have
    /// captured it are gone.
    pub(super) unsafe fn enqueue(
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
        };
        // SAFETY: the product is live, and used on one stream; the matrices are the caller's word.
        let enqueued: CallResult<()> = unsafe {
            self.backend
                .gemm(self.gemm, self.way, &operands, RawStream(on.raw()))
        };
        enqueued.map_err(|failure| failed(self.rank, failure))
    }
}

impl Drop for Library<'_> {
    fn drop(&mut self) {
        // SAFETY: prepared by `new`; streams are idle and graphs gone before what is measured ends. Nobody
        // is left to tell of a failure.
        let _ = unsafe { self.backend.gemm_release(self.gemm) };
    }
}

fn failed(rank: usize, failure: symmem::backend::Failure) -> BenchError {
    BenchError::Backend {
        rank,
        operation: "a product by the vendor's library",
        failure,
    }
}
