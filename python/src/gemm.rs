//! All-gather + GEMM.

use crate::buffer::Buffer;
use crate::element;
use crate::failure::{Result, invalid};
use crate::memory;
use crate::number::Number;
use crate::operand::Memory;
use crate::rank::{Rank, Where};
use crate::shared::Shared;
use crate::stream::{self, Library};
use pyo3::prelude::*;
use std::sync::{Arc, Weak};
use symmem::{
    DeviceAddress, ElementType, GemmElement, GemmOptions, GemmShape, Matrix, MatrixOrder, Operands,
    Queue, Slice,
};

/// An all-gather + GEMM of one shape: C[m, n] = A[m, k] * B[k, n] (+ bias), where each rank has a shard of A's rows, its own B
/// and its own C.
#[pyclass(frozen, module = "symmem")]
pub struct AllGatherGemm {
    rank: Weak<Rank>,
    gemm: Gemm,
    shard: Py<Buffer>,
}

/// The operation, by its element type.
pub enum Gemm {
    F16(symmem::AllGatherGemm<half::f16>),
    Bf16(symmem::AllGatherGemm<half::bf16>),
}

/// What a communicator prepares.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub element: ElementType,
    /// Whether B is column-major.
    pub b_columns: bool,
    pub bias: bool,
}

impl Request {
    /// Returns the request for sizes m, n and k, and a type, as Python passes them.
    ///
    /// # Errors
    /// For an object that is no type.
    pub fn new(
        [m, n, k]: [Number; 3],
        dtype: &Bound<'_, PyAny>,
        (b_columns, bias): (bool, bool),
    ) -> Result<Self> {
        Ok(Self {
            m: m.0,
            n: n.0,
            k: k.0,
            element: element::of_object(dtype)?,
            b_columns,
            bias,
        })
    }

    /// The storage order of B.
    pub fn b_order(&self) -> MatrixOrder {
        match self.b_columns {
            true => MatrixOrder::Columns,
            false => MatrixOrder::Rows,
        }
    }
}

/// Memory of B, C and the bias.
pub type Matrices<'a> = (&'a Memory, &'a Memory, Option<&'a Memory>);

impl Gemm {
    /// Prepares an operation, and allocates the memory of this rank's rows of A. Collective; blocks.
    ///
    /// # Errors
    /// The library's.
    pub fn prepare(rank: &Arc<Rank>, asked: &Request) -> Result<(Self, Shared)> {
        let shape = GemmShape {
            b_order: asked.b_order(),
            bias: asked.bias,
            ..GemmShape::new(asked.m, asked.n, asked.k)
        };
        let options = GemmOptions::default();
        let communicator = &rank.communicator;
        let gemm = match asked.element {
            ElementType::F16 => Self::F16(communicator.all_gather_gemm(&shape, &options)?),
            ElementType::Bf16 => Self::Bf16(communicator.all_gather_gemm(&shape, &options)?),
            other => {
                let name = element::name_of(other);
                return Err(invalid(format!(
                    "all-gather + GEMM takes float16 and bfloat16, not {name}"
                )));
            }
        };
        let rows = asked.m.div_ceil(communicator.world_size());
        // The operation has checked the shape, so that its bytes can be counted.
        Ok((gemm, Shared::allocate(rank, rows * asked.k * 2)?))
    }

    /// Enqueues `before`, and then the operation on the rows of A in `shard`.
    ///
    /// # Errors
    /// What is wrong with the matrices, or failed.
    ///
    /// # Safety
    /// The matrices have the operation's shape and are on the rank's device, until the stream has passed the work; the stream is
    /// one of the device.
    pub unsafe fn enqueue(
        &self,
        rank: &Rank,
        place: Where,
        before: impl FnOnce(&Queue) -> symmem::Result<()>,
        shard: Slice<'_, u8>,
        matrices: Matrices<'_>,
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self {
                Self::F16(gemm) => {
                    let then = call(gemm, shard, matrices)?;
                    rank.enqueue(place, |queue| before(queue).and_then(|()| then(queue)))
                }
                Self::Bf16(gemm) => {
                    let then = call(gemm, shard, matrices)?;
                    rank.enqueue(place, |queue| before(queue).and_then(|()| then(queue)))
                }
            }
        }
    }

    fn shape(&self) -> &GemmShape {
        match self {
            Self::F16(gemm) => gemm.shape(),
            Self::Bf16(gemm) => gemm.shape(),
        }
    }
}

impl AllGatherGemm {
    /// Returns an operation that was prepared, with a buffer of the memory of this rank's rows of A.
    ///
    /// # Errors
    /// Python's.
    pub fn new(
        python: Python<'_>,
        rank: &Arc<Rank>,
        asked: &Request,
        gemm: Gemm,
        shard: Shared,
    ) -> Result<Self> {
        let rows = asked.m.div_ceil(rank.communicator.world_size());
        let shard = Buffer::whole(shard, vec![rows, asked.k], asked.element);
        Ok(Self {
            rank: Arc::downgrade(rank),
            gemm,
            shard: Py::new(python, shard)?,
        })
    }
}

#[pymethods]
impl AllGatherGemm {
    /// The buffer of this rank's rows of A: those from rank * ceil(m / world) on.
    #[getter]
    fn shard(&self, python: Python<'_>) -> Py<Buffer> {
        self.shard.clone_ref(python)
    }

    /// How the operation works, as text.
    fn explain(&self) -> String {
        match &self.gemm {
            Gemm::F16(gemm) => gemm.explain(),
            Gemm::Bf16(gemm) => gemm.explain(),
        }
    }

    /// Enqueues the operation.
    #[pyo3(signature = (b, c, bias=None, *, stream=None))]
    fn __call__(
        &self,
        b: &Bound<'_, PyAny>,
        c: &Bound<'_, PyAny>,
        bias: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let gone = || invalid("the communicator was finalized, left or rebuilt");
        let rank = self.rank.upgrade().ok_or_else(gone)?;
        let python = b.py();
        let shape = self.gemm.shape();
        let elements = self.shard.get().memory(&rank)?;
        check_bias(shape.bias, bias)?;
        let find = |object, name, is_written, expected| {
            find(
                &rank,
                object,
                (name, is_written),
                (expected, elements.element),
            )
        };
        let (b_memory, _) = find(b, "b", false, shape.k * shape.n)?;
        let (c_memory, library) = find(c, "c", true, shape.m * shape.n)?;
        let bias_memory = bias.map(|bias| find(bias, "the bias", false, shape.n));
        let bias_memory = bias_memory.transpose()?.map(|(memory, _)| memory);
        let operands: Vec<_> = [Some(b), Some(c), bias].into_iter().flatten().collect();
        let place = stream::place(&rank, stream, library, &operands)?;
        let others = (&b_memory, &c_memory, bias_memory.as_ref());
        python.detach(|| {
            let shard = elements.slice()?;
            // SAFETY: as in `calls::collective`.
            unsafe {
                let nothing = |_: &Queue| Ok(());
                self.gemm.enqueue(&rank, place, nothing, shard, others)
            }
        })
    }
}

/// Finds the memory of a matrix, which is called `name`.
///
/// # Errors
/// As [`memory::find`]; if it has other elements than the operation takes.
pub fn find<'a, 'py>(
    rank: &Rank,
    object: &'a Bound<'py, PyAny>,
    (name, is_written): (&str, bool),
    (expected, element): (usize, ElementType),
) -> Result<(Memory, Library<'a, 'py>)> {
    let (memory, library) = memory::find(rank, object, name, is_written)?;
    match (memory.element == element, memory.elements == expected) {
        (true, true) => Ok((memory, library)),
        _ => Err(invalid(format!(
            "{name} has {} elements of {}, and the operation takes {expected} of {}",
            memory.elements,
            element::name_of(memory.element),
            element::name_of(element)
        ))),
    }
}

/// Checks that a call has a bias exactly if the operation was prepared with one.
///
/// # Errors
/// If not.
pub fn check_bias(prepared: bool, passed: Option<&Bound<'_, PyAny>>) -> Result<()> {
    if prepared == passed.is_some() {
        return Ok(());
    }
    Err(invalid(match prepared {
        true => "the operation was prepared with a bias: pass one",
        false => "the operation was prepared without a bias",
    }))
}

/// Returns what enqueues a call on these matrices: the shard, B, C and the bias.
///
/// # Safety
/// The matrices are on the rank's device, until the stream has passed the work.
unsafe fn call<'a, T: GemmElement<Output = T>>(
    gemm: &'a symmem::AllGatherGemm<T>,
    shard: Slice<'a, u8>,
    (b, c, bias): Matrices<'a>,
) -> Result<impl FnOnce(&Queue) -> symmem::Result<()> + 'a> {
    let shape = gemm.shape();
    // SAFETY: guaranteed by the caller, here and below.
    let bias = bias.map(|bias| unsafe { matrix(bias, "the bias", 1, shape.n, MatrixOrder::Rows) });
    // SAFETY: as above.
    let operands = unsafe {
        Operands {
            a: shard.cast::<T>()?,
            b: matrix(b, "b", shape.k, shape.n, shape.b_order)?,
            c: matrix(c, "c", shape.m, shape.n, MatrixOrder::Rows)?,
            bias: bias.transpose()?,
            scale: None,
            gathered: None,
        }
    };
    Ok(move |queue: &Queue| queue.all_gather_gemm(gemm, &operands))
}

/// Returns memory as a matrix without gaps. `name` is for the error.
///
/// # Errors
/// If the memory's address is no multiple of an element's size.
///
/// # Safety
/// The memory has the elements, and is on the rank's device until the streams that use the matrix have passed that work.
pub unsafe fn matrix<'a, T: GemmElement>(
    memory: &Memory,
    name: &str,
    rows: usize,
    columns: usize,
    order: MatrixOrder,
) -> Result<Matrix<'a, T>> {
    let address = memory.first()?;
    if !address.is_multiple_of(align_of::<T>() as u64) {
        return Err(invalid(format!(
            "{name} is at {address:#x}, which is no multiple of an element's size"
        )));
    }
    let stride = match order {
        MatrixOrder::Columns => rows,
        _ => columns,
    };
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { Matrix::from_raw(DeviceAddress(address), rows, columns, stride, order) })
}
