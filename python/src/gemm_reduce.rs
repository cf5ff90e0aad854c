//! GEMM + reduce-scatter and GEMM + all-reduce.

use crate::element;
use crate::failure::{Result, invalid};
use crate::gemm::{Request, check_bias, find, matrix};
use crate::number::Number;
use crate::operand::Memory;
use crate::rank::{Rank, Where};
use crate::stream;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Weak};
use symmem::{
    Communicator, ElementType, GemmElement, GemmPartials, GemmReduceAlgorithm, GemmReduceOperands,
    GemmReduceOptions, GemmReduceShape, GemmTransport, Matrix, MatrixOrder, Queue, Reduction,
};

/// A GEMM of one shape whose results are added up over the ranks: each has its own A[m, k] and B[k, n] and gets its rows of the
/// sum, or all of it.
#[pyclass(frozen, module = "symmem")]
pub struct GemmReduce {
    rank: Weak<Rank>,
    request: Request,
    gemm: ReducedGemm,
}

/// The operation, by its element type.
pub enum ReducedGemm {
    F16(symmem::GemmReduce<half::f16>),
    Bf16(symmem::GemmReduce<half::bf16>),
}

/// Memory of A, B, C and the bias.
pub type Matrices<'a> = (&'a Memory, &'a Memory, &'a Memory, Option<&'a Memory>);

/// Returns the options that a program gives by name.
///
/// # Errors
/// For an unknown name, or a value of the wrong type.
pub fn options(given: Option<&Bound<'_, PyDict>>) -> Result<GemmReduceOptions> {
    use {GemmReduceAlgorithm as A, GemmTransport as T};
    let mut options = GemmReduceOptions::default();
    for (key, value) in given.into_iter().flat_map(|given| given.iter()) {
        let key: String = key.extract()?;
        if value.is_none() {
            continue;
        }
        match key.as_str() {
            "algorithm" => {
                let all = [A::Automatic, A::Baseline, A::Pipeline, A::Push, A::Packets];
                options.algorithm = named(&value, &all, |it| it.name())?;
            }
            "transport" => {
                let all = [T::Automatic, T::Put, T::Kernel];
                options.transport = named(&value, &all, |it| it.name())?;
            }
            "partials" => {
                let all = [GemmPartials::Element, GemmPartials::F32];
                options.partials = named(&value, &all, |it| it.name())?;
            }
            "streams" => options.streams = value.extract::<Number>()?.0,
            "chunks" => options.chunks = Some(value.extract::<Number>()?.0),
            "symmetric_result" => options.symmetric_result = value.extract()?,
            _ => {
                let message = format!("there is no option {key}");
                return Err(PyTypeError::new_err(message).into());
            }
        }
    }
    Ok(options)
}

/// Returns what has this name.
fn named<T: Copy>(
    name: &Bound<'_, PyAny>,
    all: &[T],
    name_of: impl Fn(&T) -> &'static str,
) -> Result<T> {
    let name: String = name.extract()?;
    let found = all.iter().copied().find(|one| name_of(one) == name);
    found.ok_or_else(|| {
        let names: Vec<_> = all.iter().map(name_of).collect();
        invalid(format!("there is no {name:?}; use {}", names.join(", ")))
    })
}

impl ReducedGemm {
    /// Prepares an operation. Collective; blocks.
    ///
    /// # Errors
    /// The library's.
    pub fn prepare(
        rank: &Arc<Rank>,
        asked: &Request,
        reduction: Reduction,
        options: &GemmReduceOptions,
    ) -> Result<Self> {
        let shape = GemmReduceShape {
            b_order: asked.b_order(),
            bias: asked.bias,
            ..GemmReduceShape::new(asked.m, asked.n, asked.k)
        };
        let communicator = &rank.communicator;
        Ok(match asked.element {
            ElementType::F16 => Self::F16(make(communicator, &shape, reduction, options)?),
            ElementType::Bf16 => Self::Bf16(make(communicator, &shape, reduction, options)?),
            other => {
                let name = element::name_of(other);
                return Err(invalid(format!(
                    "a product that is added up over the ranks takes float16 and bfloat16, not {name}"
                )));
            }
        })
    }

    /// Enqueues the operation.
    ///
    /// # Errors
    /// What is wrong with the matrices, or failed.
    ///
    /// # Safety
    /// The matrices have the operation's shape and are on the rank's device, until the stream has passed the work; the stream is
    /// one of the device.
    pub unsafe fn enqueue(&self, rank: &Rank, place: Where, matrices: Matrices<'_>) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self {
                Self::F16(gemm) => rank.enqueue(place, call(rank, gemm, matrices)?),
                Self::Bf16(gemm) => rank.enqueue(place, call(rank, gemm, matrices)?),
            }
        }
    }
}

impl GemmReduce {
    /// Returns an operation that was prepared.
    pub fn new(rank: &Arc<Rank>, request: Request, gemm: ReducedGemm) -> Self {
        Self {
            rank: Arc::downgrade(rank),
            request,
            gemm,
        }
    }

    fn reduction(&self) -> Reduction {
        match &self.gemm {
            ReducedGemm::F16(gemm) => gemm.reduction(),
            ReducedGemm::Bf16(gemm) => gemm.reduction(),
        }
    }
}

#[pymethods]
impl GemmReduce {
    /// How the operation works, as text.
    fn explain(&self) -> String {
        match &self.gemm {
            ReducedGemm::F16(gemm) => gemm.explain(),
            ReducedGemm::Bf16(gemm) => gemm.explain(),
        }
    }

    /// Enqueues the operation.
    #[pyo3(signature = (a, b, c, bias=None, *, stream=None))]
    fn __call__(
        &self,
        a: &Bound<'_, PyAny>,
        b: &Bound<'_, PyAny>,
        c: &Bound<'_, PyAny>,
        bias: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let gone = || invalid("the communicator was finalized, left or rebuilt");
        let rank = self.rank.upgrade().ok_or_else(gone)?;
        let python = b.py();
        let Request { m, n, k, .. } = self.request;
        let find = |object, name, is_written, expected| {
            find(
                &rank,
                object,
                (name, is_written),
                (expected, self.request.element),
            )
        };
        check_bias(self.request.bias, bias)?;
        let rows = match self.reduction() {
            Reduction::Scatter => m / rank.communicator.world_size(),
            _ => m,
        };
        let (a_memory, _) = find(a, "a", false, m * k)?;
        let (b_memory, _) = find(b, "b", false, k * n)?;
        let (c_memory, library) = find(c, "c", true, rows * n)?;
        let bias_memory = bias.map(|bias| find(bias, "the bias", false, n));
        let bias_memory = bias_memory.transpose()?.map(|(memory, _)| memory);
        let operands: Vec<_> = [Some(a), Some(b), Some(c), bias]
            .into_iter()
            .flatten()
            .collect();
        let place = stream::place(&rank, stream, library, &operands)?;
        let matrices = (&a_memory, &b_memory, &c_memory, bias_memory.as_ref());
        // SAFETY: as in `calls::collective`.
        python.detach(|| unsafe { self.gemm.enqueue(&rank, place, matrices) })
    }
}

fn make<T: GemmElement>(
    communicator: &Communicator,
    shape: &GemmReduceShape,
    reduction: Reduction,
    options: &GemmReduceOptions,
) -> symmem::Result<symmem::GemmReduce<T>> {
    match reduction {
        Reduction::Scatter => communicator.gemm_reduce_scatter(shape, options),
        _ => communicator.gemm_all_reduce(shape, options),
    }
}

/// Returns what enqueues a call on these matrices.
///
/// # Safety
/// The matrices are on the rank's device, until the stream has passed the work.
unsafe fn call<'a, T: GemmElement>(
    rank: &Rank,
    gemm: &'a symmem::GemmReduce<T>,
    (a, b, c, bias): Matrices<'a>,
) -> Result<impl FnOnce(&Queue) -> symmem::Result<()> + 'a> {
    let shape = gemm.shape();
    let (m, n, k) = (shape.m, shape.n, shape.k);
    let rows = match gemm.reduction() {
        Reduction::Scatter => m / rank.communicator.world_size(),
        _ => m,
    };
    // SAFETY: guaranteed by the caller.
    let operands = unsafe {
        GemmReduceOperands {
            a: matrix(a, "a", m, k, MatrixOrder::Rows)?,
            b: matrix(b, "b", k, n, shape.b_order)?,
            c: match gemm.has_symmetric_result() {
                true => Matrix::of(c.slice()?.cast::<T>()?, rows, n)?,
                false => matrix(c, "c", rows, n, MatrixOrder::Rows)?,
            },
            bias: match bias {
                Some(bias) => Some(matrix(bias, "the bias", 1, n, MatrixOrder::Rows)?),
                None => None,
            },
        }
    };
    Ok(move |queue: &Queue| queue.gemm_reduce(gemm, &operands))
}
