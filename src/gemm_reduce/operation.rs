//! The operation, and its making together with all ranks.

use crate::backend::abi::*;
use crate::backend::{Gemm, read_text};
use crate::base::error::{Error, Result};
use crate::base::gemm_names::GemmTransport;
use crate::base::gemm_reduce_names::GemmReduceAlgorithm;
use crate::base::gemm_reduce_names::Reduction;
use crate::base::gemm_reduce_row::GemmReduceRow;
use crate::base::gemm_reduce_shape::GemmReduceShape;
use crate::base::limits::{COLLECTIVE_CHANNELS, check_channel};
use crate::base::names::ElementType;
use crate::collectives::norm::NormElement;
use crate::gemm::matrix::GemmElement;
use crate::gemm::options::BESIDE_A_GEMM;
use crate::gemm::selector::Refusal;
use crate::gemm::stored::library_text;
use crate::gemm::streams::GemmStream;
use crate::gemm::tuning;
use crate::gemm_reduce::fused::{FusedKernel, FusedKernels};
use crate::gemm_reduce::options::{GemmPartials, GemmReduceOptions};
use crate::gemm_reduce::plan::{GemmBlock, GemmReduceStep, Problem};
use crate::gemm_reduce::selector::choose;
use crate::gemm_reduce::stored;
use crate::gemm_reduce::words::Words;
use crate::gemm_reduce::workspace::Workspace;
use crate::memory::sharing::Origin;
use crate::rank::agreement::Round;
use crate::world::communicator::Communicator;
use crate::world::world::World;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

/// Rows of a chunk are a multiple of this, if it has as many: the rows of most GEMM kernels' tiles.
const TILE_ROWS: u64 = 128;

/// The GEMM library: name with version, and file.
type Library = (String, String);

/// A GEMM + reduce-scatter or GEMM + all-reduce, ready to be enqueued any number of times by [`crate::Queue::gemm_reduce`].
///
/// Calls of one operation use the same memory, so they must be ordered among themselves, by one stream or by
/// events. Dropping it does not wait: its resources are released once this rank's streams are idle, its graphs
/// are dropped and all ranks have dropped their operation.
///
/// ```no_run
/// # use symmem::*;
/// # fn f(communicator: &Communicator, stream: &Stream, operands: &GemmReduceOperands<half::bf16>) -> Result<()> {
/// let shape = GemmReduceShape::new(4096, 8192, 3584);
/// let gemm = communicator.gemm_reduce_scatter::<half::bf16>(&shape, &GemmReduceOptions::default())?; // collective
/// stream.gemm_reduce(&gemm, operands)?; // enqueues; any number of times
/// println!("{}", gemm.explain());
/// # Ok(()) }
/// ```
pub struct GemmReduce<T: GemmElement> {
    pub(super) world: Arc<World>,
    pub(super) shape: GemmReduceShape,
    pub(super) options: GemmReduceOptions,
    pub(super) problem: Problem,
    pub(super) steps: Vec<GemmReduceStep>,
    pub(super) words: Words,
    /// The fused kernel, if the algorithm is one.
    pub(super) kernel: Option<FusedKernel>,
    /// `None` only during the drop.
    workspace: Option<Arc<Workspace>>,
    pub(super) library: Option<Library>,
    elements: PhantomData<fn() -> T>,
}

impl Communicator {
    /// Prepares a GEMM + reduce-scatter: rank `r` gets rows `r * m / world` to `(r + 1) * m / world` of the sum of all ranks'
    /// `A · B`. Collective. Blocks until this rank's streams are idle (on a device), allocates, and times the GEMM library's
    /// heuristic candidates ([`GemmReduceOptions::tune`]), for at most the setup deadline in each step. Calls of it then only
    /// enqueue.
    ///
    /// Each rank allocates the elements of the sum: a baseline all of them, a pipeline those of the other ranks' rows, and as
    /// many again if copy engines send them; a fused kernel what it says that it needs: about as much as arrives at a rank, in whole
    /// tiles, and on AMD up to 128 MiB for tiles that several blocks multiply.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank if shapes or options differ; [`Error::InvalidArgument`] for invalid
    /// ones, and if `m` is no multiple of the number of ranks; [`Error::Unsupported`] if there is no GEMM library and the algorithm
    /// needs one, or not all ranks have the kernel of a fused algorithm that was named; the errors
    /// of an allocation. After an error, no memory stays allocated once this rank's streams are idle.
    pub fn gemm_reduce_scatter<T: GemmElement>(
        &self,
        shape: &GemmReduceShape,
        options: &GemmReduceOptions,
    ) -> Result<GemmReduce<T>> {
        make(self, shape, options, Reduction::Scatter)
    }

    /// Prepares a GEMM + all-reduce: all ranks get the sum of all ranks' `A · B`, with the same bits. Otherwise as
    /// [`Communicator::gemm_reduce_scatter`], but with any `m`. A pipeline and a fused kernel also allocate the elements of the sum,
    /// unless [`GemmReduceOptions::symmetric_result`] is set; a baseline allocates nothing.
    ///
    /// # Errors
    /// As [`Communicator::gemm_reduce_scatter`].
    pub fn gemm_all_reduce<T: GemmElement>(
        &self,
        shape: &GemmReduceShape,
        options: &GemmReduceOptions,
    ) -> Result<GemmReduce<T>> {
        make(self, shape, options, Reduction::All)
    }

    /// Prepares a GEMM + all-reduce of rows with a residual and a norm: all ranks get what
    /// [`crate::Collectives::all_reduce_norm`] makes of all ranks' `A · B`, with the same bits. For few rows: one GEMM, then one
    /// kernel. [`crate::Queue::gemm_reduce_norm`] calls it. Otherwise as [`Communicator::gemm_reduce_scatter`], but with any `m`.
    /// Each rank allocates the elements of the sum.
    ///
    /// # Errors
    /// As [`Communicator::gemm_reduce_scatter`]; [`Error::InvalidArgument`] also for any algorithm but a baseline.
    pub fn gemm_all_reduce_norm<T: GemmElement + NormElement>(
        &self,
        shape: &GemmReduceShape,
        options: &GemmReduceOptions,
    ) -> Result<GemmReduce<T>> {
        make(self, shape, options, Reduction::Norm)
    }
}

fn make<T: GemmElement>(
    communicator: &Communicator,
    shape: &GemmReduceShape,
    asked: &GemmReduceOptions,
    reduction: Reduction,
) -> Result<GemmReduce<T>> {
    let shared = communicator.world();
    shared.check_one_node(reduction.name(), BESIDE_A_GEMM)?;
    shared.reclaim();
    let rows = communicator.gemm_reduce_rows();
    let options = &stored::complete(rows, shared, (shape, T::TYPE, reduction), asked);
    let mut round = shared.agreement.begin(reduction.name());
    round.compare(&[
        ("the element type", T::TYPE.name().into()),
        ("the shape", format!("{shape:?}")),
        ("the options", format!("{options:?}")),
    ])?;
    let preparation = Preparation {
        shared,
        shape,
        options,
        asked,
        element: T::TYPE,
        name: reduction.name(),
    };
    let (problem, kernel, library) = preparation.agree(&mut round, reduction)?;
    let steps = problem.steps();
    let words = Words::new(shared.world, problem.chunks);
    let plan = Plan {
        problem: &problem,
        kernel: kernel.as_ref(),
        steps: &steps,
        words,
    };
    let workspace = preparation.workspace(&mut round, &plan)?;
    Ok(GemmReduce {
        world: shared.clone(),
        shape: *shape,
        options: *options,
        problem,
        steps,
        words,
        kernel,
        workspace: Some(Arc::new(workspace)),
        library,
        elements: PhantomData,
    })
}

/// What the resources of an operation follow from.
struct Plan<'a> {
    problem: &'a Problem,
    kernel: Option<&'a FusedKernel>,
    steps: &'a [GemmReduceStep],
    words: Words,
}

struct Preparation<'a> {
    shared: &'a Arc<World>,
    shape: &'a GemmReduceShape,
    /// The caller's options, completed by a stored row.
    options: &'a GemmReduceOptions,
    /// The caller's options as they are.
    asked: &'a GemmReduceOptions,
    element: ElementType,
    name: &'static str,
}

impl Preparation<'_> {
    fn invalid(&self, message: String) -> Error {
        Error::InvalidArgument {
            rank: self.shared.rank,
            operation: self.name,
            message,
        }
    }

    /// Returns the kernels that all ranks have for the whole problem.
    fn kernels(&self, round: &mut Round<'_>, reduction: Reduction) -> Result<FusedKernels> {
        let Self { shared, shape, .. } = *self;
        if shared.world == 1 {
            return Ok(FusedKernels::none());
        }
        let layout = shape.layout(self.element, shape.m as u64, (shape.bias, false));
        let problem = ReducedProblem {
            shard: shape.rows_of_a_rank(shared.world) as u64,
            world: shared.world as u32,
            mode: ReducedMode::default(),
            all: (reduction == Reduction::All).into(),
            partial: self.options.partials.code(self.element),
        };
        FusedKernels::agree(shared, round, &layout, problem)
    }

    /// Opens the GEMM library, on all ranks.
    fn library(&self, round: &mut Round<'_>) -> Result<Library> {
        let shared = self.shared;
        let library = shared.backend.gemm_library();
        let library = library.map_err(|failure| match failure.status {
            Status::LIBRARY_MISSING => Error::Unsupported {
                rank: shared.rank,
                operation: self.name,
                message: format!(
                    "no GEMM library (cuBLASLt or hipBLASLt) was found; see `symmem info`: {failure}"
                ),
            },
            _ => shared.failed(self.name, failure),
        });
        let library = round.vote(library)?;
        Ok((library_text(&library), read_text(&library.file)))
    }

    /// Chooses algorithm, transport and chunks, the same on all ranks. An algorithm that multiplies by itself needs no GEMM library.
    fn agree(
        &self,
        round: &mut Round<'_>,
        reduction: Reduction,
    ) -> Result<(Problem, Option<FusedKernel>, Option<Library>)> {
        let Self {
            shared,
            shape,
            options,
            ..
        } = *self;
        let world = shared.world;
        // The arguments were compared, so all ranks refuse them, or none does.
        shape.check().map_err(|message| self.invalid(message))?;
        if !matches!(self.element, ElementType::F16 | ElementType::Bf16) {
            return Err(Error::Unsupported {
                rank: shared.rank,
                operation: self.name,
                message: format!(
                    "matrices of {} cannot be multiplied before a reduction; use f16 or bf16",
                    self.element.name()
                ),
            });
        }
        if options.streams == 0 || options.chunks == Some(0) {
            return Err(self.invalid("`streams` and `chunks` must be at least 1".into()));
        }
        if reduction == Reduction::Scatter && !shape.m.is_multiple_of(world) {
            return Err(self.invalid(format!(
                "{} rows cannot be divided among {world} ranks equally; add rows up to the next multiple",
                shape.m
            )));
        }
        check_channel(options.channel, COLLECTIVE_CHANNELS)
            .map_err(|message| self.invalid(message))?;
        let fanout = shared.capabilities.fanout;
        // The library may wait for the device when it is opened, and when it prepares GEMMs.
        round.vote(tuning::wait_until_idle(self.shared))?;
        let kernels = self.kernels(round, reduction)?;
        // All ranks have the same kernels and options, so all fail, or none does.
        let chosen = stored::choose_by((options, self.asked), shared.rank, |options| {
            choose(shape, options, (reduction, world), &kernels)
        });
        let (algorithm, transport, chunks) = chosen.map_err(|refusal| match refusal {
            Refusal::Invalid(message) => self.invalid(message),
            Refusal::Unsupported(message) => Error::Unsupported {
                rank: shared.rank,
                operation: self.name,
                message,
            },
        })?;
        let kernel = match algorithm {
            GemmReduceAlgorithm::Push => FusedKernel::new(shared, ReducedMode::PUSH, kernels.push),
            GemmReduceAlgorithm::Packets => {
                FusedKernel::new(shared, ReducedMode::PACKETS, kernels.packets)
            }
            _ => None,
        };
        let library = match kernel {
            Some(_) => None,
            None => Some(self.library(round)?),
        };
        let rows = shape.m as u64;
        let shard = rows.div_ceil(world as u64);
        let chunk = shard.div_ceil(chunks as u64);
        let chunk = match chunk {
            TILE_ROWS.. if kernel.is_none() => chunk.next_multiple_of(TILE_ROWS),
            _ => chunk,
        };
        let problem = Problem {
            rank: shared.rank,
            world,
            reduction,
            algorithm,
            transport,
            streams: options.streams,
            rows,
            shard,
            chunk,
            chunks: shard.div_ceil(chunk) as u32,
            fanout,
            in_place: options.symmetric_result,
        };
        round.compare(&[
            ("the algorithm", format!("{algorithm:?}")),
            ("the transport", format!("{transport:?}")),
            ("the rows per chunk", chunk.to_string()),
            (
                "the number of peers that a device copies to at once",
                fanout.to_string(),
            ),
        ])?;
        let name = self.name;
        tracing::debug!(rank = shared.rank, ?algorithm, ?transport, chunk, "{name}");
        Ok((problem, kernel, library))
    }

    /// Makes the operation's resources. On failure all are released, once this rank's streams are idle.
    fn workspace(&self, round: &mut Round<'_>, plan: &Plan<'_>) -> Result<Workspace> {
        let mut workspace = Workspace::default();
        match self.fill(round, plan, &mut workspace) {
            Ok(()) => Ok(workspace),
            Err(error) => {
                // Timed GEMMs may still run.
                self.shared.give_up(Arc::new(workspace));
                Err(error)
            }
        }
    }

    fn fill(
        &self,
        round: &mut Round<'_>,
        plan: &Plan<'_>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let Plan { problem, steps, .. } = *plan;
        let row = self.shape.n as u64 * self.element.bytes();
        let (sum, sent) = (
            problem.rows * row,
            (problem.world as u64 - 1) * problem.shard * row,
        );
        let keeps_product = match problem.reduction {
            Reduction::Scatter => problem.world > 1,
            Reduction::All => false,
            Reduction::Norm => true,
        };
        let mut allocate =
            |bytes: u64, origin| self.shared.allocate(round, bytes.max(1), origin).map(Some);
        if let Some(kernel) = plan.kernel {
            workspace.inbox = allocate(kernel.limits.inbox_bytes, kernel.inbox_origin())?;
            workspace.signals = allocate(kernel.limits.word_bytes, Origin::Signals)?;
        } else if problem.is_pipeline() {
            workspace.inbox = allocate(sent, Origin::Backend)?;
            if problem.transport != GemmTransport::Kernel {
                workspace.outgoing = allocate(sent, Origin::Backend)?;
            }
            workspace.signals = allocate(plan.words.bytes(), Origin::Signals)?;
        } else if keeps_product {
            workspace.inbox = allocate(sum, Origin::Backend)?;
        }
        if problem.keeps_result() {
            workspace.result = allocate(sum, Origin::Backend)?;
        }
        let local = workspace
            .streams
            .open(self.shared, steps)
            .and_then(|()| self.prepare(problem, steps, workspace));
        round.vote(local)
    }

    /// Prepares the GEMMs of all steps.
    fn prepare(
        &self,
        problem: &Problem,
        steps: &[GemmReduceStep],
        workspace: &mut Workspace,
    ) -> Result<()> {
        // Covers everything below: peers wait for the outcome of all of it.
        let begun = Instant::now();
        tuning::wait_until_idle(self.shared)?;
        for step in steps {
            let (block, on) = match *step {
                GemmReduceStep::Multiply { block, on } => (Some(block), on),
                GemmReduceStep::MultiplyAll => (None, GemmStream::Main),
                _ => continue,
            };
            let layout = layout(self.shape, self.element, problem, block);
            let gemms = &mut workspace.gemms;
            gemms.prepare(self.shared, layout, on, self.name, |_| None)?;
        }
        if self.options.tune {
            tuning::tune(self.shared, &mut workspace.gemms, self.name, begun)?;
        }
        Ok(())
    }
}

/// Returns the layout of the GEMM of a block; of all rows without one. The bias is added once: by the owner of a block, or
/// by rank 0.
pub(super) fn layout(
    shape: &GemmReduceShape,
    element: ElementType,
    problem: &Problem,
    block: Option<GemmBlock>,
) -> GemmLayout {
    let (rows, adds_bias, has_addend) = match block {
        Some(block) => (
            problem.block_rows(block.owner, block.chunk).1,
            problem.is_last(block),
            block.hop > 0,
        ),
        None => (problem.rows, problem.rank == 0, false),
    };
    shape.layout(element, rows, (shape.bias && adds_bias, has_addend))
}

impl<T: GemmElement> GemmReduce<T> {
    /// Returns the operation's choice as a tuning row, with which another operation of this shape makes the same choice.
    pub fn row(&self) -> GemmReduceRow {
        GemmReduceRow {
            device: read_text(&self.world.description.name),
            world: self.world.world,
            reduction: self.problem.reduction,
            shape: self.shape,
            element: T::TYPE,
            algorithm: self.problem.algorithm,
            transport: self.problem.transport,
            streams: self.problem.streams,
            chunks: self.problem.chunks as usize,
        }
    }

    /// Returns the shape.
    pub fn shape(&self) -> &GemmReduceShape {
        &self.shape
    }

    /// Returns the algorithm; never automatic.
    pub fn algorithm(&self) -> GemmReduceAlgorithm {
        self.problem.algorithm
    }

    /// Returns a pipeline's transport; automatic for other algorithms.
    pub fn transport(&self) -> GemmTransport {
        self.problem.transport
    }

    /// Returns the element type of the parts of a sum that a fused kernel sends.
    pub fn partials(&self) -> GemmPartials {
        self.options.partials
    }

    /// Returns the number of chunks of a full rank's rows.
    pub fn chunks(&self) -> usize {
        self.problem.chunks as usize
    }

    /// Returns a pipeline's number of streams for GEMMs.
    pub fn streams(&self) -> usize {
        self.problem.streams
    }

    /// Returns what is done with the sum.
    pub fn reduction(&self) -> Reduction {
        self.problem.reduction
    }

    /// Returns whether `C` is in a symmetric buffer ([`GemmReduceOptions::symmetric_result`]).
    pub fn has_symmetric_result(&self) -> bool {
        self.problem.in_place
    }

    /// Returns this rank's steps, in the order in which a call enqueues them.
    pub fn steps(&self) -> &[GemmReduceStep] {
        &self.steps
    }

    pub(super) fn workspace(&self) -> &Arc<Workspace> {
        self.workspace
            .as_ref()
            .expect("taken only by `drop`, which ends the value")
    }
}

impl<T: GemmElement> Drop for GemmReduce<T> {
    fn drop(&mut self) {
        if let Some(workspace) = self.workspace.take() {
            self.world.give_up(workspace);
        }
    }
}

impl<T: GemmElement> std::fmt::Debug for GemmReduce<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("GemmReduce")
            .field("shape", &self.shape)
            .field("reduction", &self.problem.reduction)
            .field("algorithm", &self.problem.algorithm)
            .field("transport", &self.problem.transport)
            .finish_non_exhaustive()
    }
}
