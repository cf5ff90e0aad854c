//! Operations that operators prepare once a shape, and the operator `all_gather_matmul`.

use super::call::{self, Target};
use crate::failure::{Result, invalid};
use crate::gemm::{Gemm, Request};
use crate::gemm_reduce::ReducedGemm;
use crate::operand::Memory;
use crate::rank::{Rank, Where};
use crate::shared::Shared;
use pyo3::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use symmem::backend::Device as _;
use symmem::backend::abi::RawStream;
use symmem::{ElementType, GemmReduceOptions, Queue, Reduction};

/// The operations of a communicator that operators have prepared. They end with the last object of it.
#[pyclass(frozen, module = "symmem")]
pub struct Products {
    _table: Arc<Table>,
}

#[pymethods]
impl Products {
    /// Returns those of the communicator with this number.
    #[new]
    fn new(communicator: u64) -> Self {
        let mut tables = TABLES.write().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|_, table| table.strong_count() > 0);
        let known = tables.get(&communicator).and_then(Weak::upgrade);
        let table = known.unwrap_or_default();
        tables.insert(communicator, Arc::downgrade(&table));
        Self { _table: table }
    }
}

/// Operations by what was asked for.
#[derive(Default)]
struct Table(Mutex<HashMap<Operation, Arc<Product>>>);

/// What an operator asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// An all-gather + GEMM.
    Gathered(Request),
    /// A GEMM whose results are added up over the ranks.
    Reduced(Request, Reduction),
}

/// An operation that was prepared.
pub enum Product {
    /// With the memory of this rank's rows of A.
    Gathered(Gemm, Shared),
    Reduced(ReducedGemm),
}

impl Operation {
    fn name(&self) -> &'static str {
        match self {
            Self::Gathered(_) => "all_gather_matmul",
            Self::Reduced(_, Reduction::Scatter) => "matmul_reduce_scatter",
            Self::Reduced(..) => "matmul_all_reduce",
        }
    }

    fn prepare(&self, rank: &Arc<Rank>) -> Result<Product> {
        Ok(match self {
            Self::Gathered(request) => {
                let (gemm, shard) = Gemm::prepare(rank, request)?;
                Product::Gathered(gemm, shard)
            }
            Self::Reduced(request, reduction) => {
                let options = GemmReduceOptions::default();
                Product::Reduced(ReducedGemm::prepare(rank, request, *reduction, &options)?)
            }
        })
    }
}

impl Product {
    /// Returns a GEMM whose results are added up.
    ///
    /// # Errors
    /// If it is another operation.
    pub fn reduced(&self) -> Result<&ReducedGemm> {
        match self {
            Self::Reduced(gemm) => Ok(gemm),
            Self::Gathered(..) => Err(mixed_up()),
        }
    }

    fn gathered(&self) -> Result<(&Gemm, &Shared)> {
        match self {
            Self::Gathered(gemm, shard) => Ok((gemm, shard)),
            Self::Reduced(_) => Err(mixed_up()),
        }
    }
}

#[cold]
fn mixed_up() -> crate::failure::Failure {
    invalid("an operation of another kind was prepared; this is a bug in symmem, please report it")
}

/// Tables by the numbers of their communicators.
static TABLES: RwLock<BTreeMap<u64, Weak<Table>>> = RwLock::new(BTreeMap::new());

/// A call of the operator. B has k · n elements; there are m · n of C, of which this rank's rows of A give m / world.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub c: u64,
    pub a: u64,
    pub b: u64,
    /// This rank's rows of A.
    pub rows: usize,
    pub n: usize,
    pub k: usize,
    /// Whether B is stored by columns.
    pub b_columns: bool,
    pub element: ElementType,
    /// The number of ranks that C was sized for.
    pub world: usize,
    pub target: Target,
}

/// Enqueues a call. The first of a shape is collective and blocks; later ones do on the host backend only. Needs nothing of
/// Python.
///
/// # Errors
/// If communicator, device or shape do not fit; for a first call in a capture; the call's.
///
/// # Safety
/// The addresses are valid until the stream has passed the work.
pub unsafe fn enqueue(asked: &Call) -> Result<()> {
    let (rank, place) = asked.target.find()?;
    call::same_world(&rank, Some(asked.world))?;
    let Call { rows, n, k, .. } = *asked;
    let m = rows.checked_mul(asked.world);
    let m = m.ok_or_else(|| invalid(format!("{rows} rows for each of {} ranks", asked.world)))?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    let request = Request {
        m,
        n,
        k,
        element: asked.element,
        b_columns: asked.b_columns,
        bias: false,
    };
    let product = find(&rank, Operation::Gathered(request), &place)?;
    let (gemm, shard) = product.gathered()?;
    let a = Memory::known(asked.a, rows * k, asked.element);
    let b = Memory::known(asked.b, k * n, asked.element);
    let c = Memory::known(asked.c, m * n, asked.element);
    let me = rank.communicator.rank();
    let shard = shard.elements.slice(..a.bytes()?)?;
    // SAFETY: guaranteed by the caller; the matrices have the shape that the operation was prepared for.
    unsafe {
        let from = a.operand::<u8>(&rank)?;
        let copy = |queue: &Queue| queue.put(me, shard, from);
        gemm.enqueue(&rank, place, copy, shard, (&b, &c, None))
    }
}

/// Returns the operation of this shape, which is prepared if it is not there.
///
/// # Errors
/// If the communicator's table is gone; for a first call in a capture; the library's.
pub fn find(rank: &Arc<Rank>, asked: Operation, place: &Where) -> Result<Arc<Product>> {
    let table = {
        let tables = TABLES.read().unwrap_or_else(PoisonError::into_inner);
        tables.get(&rank.number).and_then(Weak::upgrade)
    };
    let gone = || invalid("the Group of this operator is gone: keep it as long as its operators");
    let table = table.ok_or_else(gone)?;
    if let Some(known) = table.lock().get(&asked) {
        return Ok(Arc::clone(known));
    }
    if let Where::On(raw, _) = place {
        // SAFETY: PyTorch's current stream, which lives.
        let captures = unsafe {
            rank.communicator
                .backend()
                .stream_capturing(RawStream(*raw))
        };
        if captures.unwrap_or(false) {
            return Err(invalid(format!(
                "the first {} of a shape is in a capture: call it once before",
                asked.name()
            )));
        }
    }
    // Not locked meanwhile: the peers may be waited for.
    let product = Arc::new(asked.prepare(rank)?);
    table.lock().insert(asked, Arc::clone(&product));
    Ok(product)
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<Operation, Arc<Product>>> {
        // Each change of it is one insertion.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
