//! The operation, and its making together with all ranks.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Failure, Gemm, read_text};
use crate::base::error::{Error, Result};
use crate::base::gemm_names::{GemmAlgorithm, GemmTile, GemmTransport};
use crate::base::gemm_row::GemmRow;
use crate::base::gemm_shape::{Division, GemmShape};
use crate::base::limits::{COLLECTIVE_CHANNELS, check_channel};
use crate::base::names::{ElementType, Sharding};
use crate::gemm::matrix::GemmElement;
use crate::gemm::options::{BESIDE_A_GEMM, GemmOptions, NAME};
use crate::gemm::plan::{GemmStep, Problem, layout};
use crate::gemm::prepared::Prepared;
use crate::gemm::selector::{DeviceSupport, Refusal, choose};
use crate::gemm::stored::{self, StoredCandidates};
use crate::gemm::words::Words;
use crate::gemm::workspace::Workspace;
use crate::gemm::{chunk, tuning};
use crate::group::provider::Provider;
use crate::group::residency::Residency;
use crate::memory::sharing::Origin;
use crate::rank::agreement::Round;
use crate::world::communicator::Communicator;
use crate::world::world::World;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

/// Least bytes of a chunk that a block of the fused kernel for small M stores: a vector of each thread.
const AT_ONCE_CHUNK: u64 = 4 << 10;

/// C's stride is a multiple of this where a GPU's GEMM library multiplies 8-bit floats: every row is then at a multiple of 16
/// bytes, which cuBLASLt needs.
const C_STRIDE_OF_F8: u64 = 8;

/// The GEMM library: name with version, and file.
type Library = (String, String);

/// An all-gather + GEMM, ready to be enqueued any number of times by [`crate::Queue::all_gather_gemm`].
///
/// Calls of one operation use the same memory, so they must be ordered among themselves, by one stream or by
/// events. Dropping it does not wait: its resources are released once this rank's streams are idle, its graphs
/// are dropped and all ranks have dropped their operation.
///
/// ```no_run
/// # use symmem::*;
/// # fn f(communicator: &Communicator, stream: &Stream, operands: &Operands<half::bf16>) -> Result<()> {
/// let shape = GemmShape::new(4096, 8192, 16384);
/// let gemm = communicator.all_gather_gemm::<half::bf16>(&shape, &GemmOptions::default())?; // collective
/// stream.all_gather_gemm(&gemm, operands)?; // enqueues; any number of times
/// println!("{}", gemm.explain());
/// # Ok(()) }
/// ```
pub struct AllGatherGemm<T: GemmElement> {
    pub(super) world: Arc<World>,
    pub(super) shape: GemmShape,
    pub(super) options: GemmOptions,
    pub(super) problem: Problem,
    pub(super) steps: Vec<GemmStep>,
    pub(super) limits: GatheredLimits,
    /// The most collectives that may be under way at once, so that the grid of a call has room; `None` if no grid
    /// of a call waits for peers.
    pub(super) fits: Option<u32>,
    pub(super) words: Words,
    /// `None` only during the drop.
    workspace: Option<Arc<Workspace>>,
    pub(super) library: Option<Library>,
    elements: PhantomData<fn() -> T>,
}

impl Communicator {
    /// Prepares an all-gather + GEMM, whose `A` is spread over the ranks. Collective. Blocks until this rank's
    /// streams are idle (on a device), allocates, and times the GEMM library's heuristic candidates
    /// ([`GemmOptions::tune`]), for at most the setup deadline in each step. Calls of it then only enqueue.
    ///
    /// Each rank allocates `m * k` elements for the gathered `A`, unless [`GemmOptions::gathered`] promises a
    /// buffer of the caller's, and as many again if shards of columns are gathered as blocks first.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank if shapes or options differ; [`Error::InvalidArgument`] for invalid
    /// ones; [`Error::Unsupported`] if the device, or the libraries beside it, have no implementation; the
    /// errors of an allocation. After an error, no memory stays allocated once this rank's streams are idle.
    pub fn all_gather_gemm<T: GemmElement>(
        &self,
        shape: &GemmShape,
        options: &GemmOptions,
    ) -> Result<AllGatherGemm<T>> {
        let shared = self.world();
        shared.check_one_node(NAME, BESIDE_A_GEMM)?;
        shared.reclaim();
        let stored = stored::find(self.gemm_rows(), shared, shape, T::TYPE);
        let mut round = shared.agreement.begin(NAME);
        round.compare(&[
            ("the element type", T::TYPE.name().into()),
            ("the shape", format!("{shape:?}")),
            ("the options", format!("{options:?}")),
            (
                "the stored tuning row (SYMMEM_TUNING, Builder::gemm_tuning)",
                format!("{stored:?}"),
            ),
        ])?;
        let preparation = Preparation {
            shared,
            shape,
            options,
            element: T::TYPE,
            stored,
        };
        let (problem, limits, library) = preparation.agree(&mut round)?;
        let steps = problem.steps();
        let words = Words::new(shared.world, problem.chunks);
        let here = library.as_ref().map(|(library, _)| library.as_str());
        let candidates = StoredCandidates::of(stored, shared.rank, here);
        let plan = Plan {
            steps: &steps,
            candidates: &candidates,
            words,
            partial_bytes: limits.partial_bytes,
        };
        let workspace = preparation.workspace(&mut round, &problem, &plan)?;
        Ok(AllGatherGemm {
            world: shared.clone(),
            shape: *shape,
            options: *options,
            problem,
            fits: fits(shared, options, &limits, &steps),
            steps,
            limits,
            words,
            workspace: Some(Arc::new(workspace)),
            library,
            elements: PhantomData,
        })
    }
}

/// Checks that the GEMM library multiplies a shape, by preparing it.
///
/// # Errors
/// A lost context. Any other failure is `UNSUPPORTED` and keeps its text: versions that do not know an element type say so in
/// different ways.
fn check_prepared(backend: &Backend, layout: &GemmLayout) -> CallResult<()> {
    let prepared = backend.gemm_prepare(layout).map_err(|failure| Failure {
        status: match failure.status {
            Status::CONTEXT_LOST => Status::CONTEXT_LOST,
            _ => Status::UNSUPPORTED,
        },
        ..failure
    })?;
    // SAFETY: it was just prepared, and nothing was enqueued.
    unsafe { backend.gemm_release(prepared) }
}

/// Returns the limits that a rank's share of the device leaves of a kernel's.
fn share(residency: &Residency, mut limits: GatheredLimits) -> GatheredLimits {
    if residency.sharers() > 1 {
        // Copies within a device may need room beside a grid that waits for them.
        limits.modes &= !GatherMode::WAIT.bit();
    }
    let blocks = residency.limit(limits.blocks);
    if blocks < limits.blocks {
        limits.blocks = blocks;
        limits.movers = limits.movers.min(blocks / 2).max(1);
    }
    let at_once = limits.at_once_blocks;
    if residency.sharers() > 1 || residency.limit(at_once) < at_once {
        limits.modes &= !GatherMode::PUSH_AT_ONCE.bit();
        limits.at_once_blocks = 0;
    }
    // One block cannot both move `A` and multiply.
    match limits.blocks {
        0 | 1 if residency.at_once() > 1 => GatheredLimits::default(),
        _ => limits,
    }
}

/// Returns the most collectives that may be under way at once, so that the grid of an operation has room; `None` if
/// none of its grids waits for peers.
fn fits(
    shared: &World,
    options: &GemmOptions,
    limits: &GatheredLimits,
    steps: &[GemmStep],
) -> Option<u32> {
    let blocks = steps.iter().filter_map(|step| match step {
        GemmStep::Gathered {
            mode: GatherMode::PUSH_AT_ONCE,
        } => Some(limits.at_once_blocks),
        GemmStep::Gathered { .. } => Some(options.blocks.unwrap_or(limits.blocks)),
        // NCCL chooses its own grid.
        GemmStep::Exchange { .. } => Some(1),
        // A collective, which is admitted as such; waits of one block; what waits for no peer.
        _ => None,
    });
    let residency = shared.collectives.selector.residency();
    blocks.max().map(|blocks| residency.fits(blocks))
}

/// What an operation does, and with what.
struct Plan<'a> {
    steps: &'a [GemmStep],
    /// The stored heuristic candidates.
    candidates: &'a StoredCandidates<'a>,
    words: Words,
    /// See [`GatheredLimits::partial_bytes`].
    partial_bytes: u64,
}

struct Preparation<'a> {
    shared: &'a Arc<World>,
    shape: &'a GemmShape,
    options: &'a GemmOptions,
    element: ElementType,
    /// The tuning row for it.
    stored: Option<&'a GemmRow>,
}

impl Preparation<'_> {
    fn invalid(&self, message: String) -> Error {
        Error::InvalidArgument {
            rank: self.shared.rank,
            operation: NAME,
            message,
        }
    }

    /// Chooses algorithm, transport and chunks, the same on all ranks.
    fn agree(&self, round: &mut Round<'_>) -> Result<(Problem, GatheredLimits, Option<Library>)> {
        let Self {
            shared,
            shape,
            options,
            element,
            stored,
        } = *self;
        // The arguments were compared, so all ranks refuse them, or none does.
        shape.check().map_err(|message| self.invalid(message))?;
        if options.streams == 0 || options.chunk_rows == Some(0) || options.blocks == Some(0) {
            return Err(
                self.invalid("`streams`, `chunk_rows` and `blocks` must be at least 1".into())
            );
        }
        check_channel(options.channel, COLLECTIVE_CHANNELS)
            .map_err(|message| self.invalid(message))?;
        // The library may wait for the device when it is opened, and when it prepares GEMMs.
        round.vote(tuning::wait_until_idle(self.shared))?;
        let world = shared.world;
        let division = Division::new(shape, world);
        let whole = shape.raw(element, shape.m as u64, shape.k as u64);
        let backend: &Backend = &shared.backend;
        let sharding = shape.sharding.into();
        let limits = match options.tile {
            None => backend.gathered_gemm_limits(&whole, sharding, division.shard),
            Some(GemmTile { rows, columns }) => {
                let (rows, columns) = (rows.into(), columns.into());
                backend.gathered_gemm_tile(&whole, sharding, division.shard, rows, columns)
            }
        };
        // A backend without the kernel, or older than it, has no limits.
        let mut limits = limits.ok().flatten().unwrap_or_default();
        let has_kernel = limits.blocks > 0;
        let has_grids = shared.collectives.selector.has_grids();
        if has_grids {
            limits = share(shared.collectives.selector.residency(), limits);
        }
        let mut shards = true;
        let library = backend.gemm_library().and_then(|library| {
            // The libraries take 8-bit floats of some devices, sizes and orders only; so ask.
            if element == ElementType::F8E4M3 {
                if has_grids && !whole.c_stride.is_multiple_of(C_STRIDE_OF_F8) {
                    let message = format!(
                        "C's stride is {}; of 8-bit floats the GEMM library needs a multiple of {C_STRIDE_OF_F8}",
                        whole.c_stride
                    );
                    return Err(Failure::new(Status::UNSUPPORTED, NAME, message));
                }
                check_prepared(backend, &whole)?;
                shards = self.takes_shards(&division)?;
            }
            Ok(library)
        });
        let support = DeviceSupport {
            limits,
            library: library.is_ok(),
            shards,
            collectives: shared.collectives.nccl.of(Provider::Nccl, true).is_some(),
            fanout: shared.capabilities.fanout,
        };
        let shard_bytes = division.elements(0) * element.bytes();
        let choose = |options: &GemmOptions| choose(shape, options, world, shard_bytes, &support);
        let chosen = stored::choose_by(stored, shared.rank, options, choose);
        let chosen = chosen.map_err(|refusal| match refusal {
            Refusal::Invalid(message) => self.invalid(message),
            Refusal::Unsupported(message) => Error::Unsupported {
                rank: shared.rank,
                operation: NAME,
                message: match &library {
                    Err(failure) => format!("{message}: {failure}"),
                    Ok(_)
                        if matches!(element, ElementType::F32 | ElementType::F8E4M3)
                            && !has_kernel =>
                    {
                        let name = element.name();
                        format!("{message}; no fused kernel here takes these matrices of {name}")
                    }
                    Ok(_) => match options.tile.filter(|_| !has_kernel) {
                        Some(tile) => format!("{message}; no kernel here has tiles of {tile}"),
                        None => message,
                    },
                },
            },
        });
        // A missing library is a valid offer; a failing one is an error.
        let chosen = match &library {
            Err(failure)
                if !matches!(
                    failure.status,
                    Status::LIBRARY_MISSING | Status::UNSUPPORTED
                ) =>
            {
                Err(shared.failed(NAME, failure.clone()))
            }
            _ => chosen,
        };
        let chosen = chosen.and_then(|chosen| {
            let blocks = options.blocks.unwrap_or(limits.blocks);
            let kernel = matches!(chosen.0, GemmAlgorithm::Pull | GemmAlgorithm::Push);
            if kernel && world > 1 && blocks > limits.blocks {
                let most = limits.blocks;
                let because = shared.collectives.selector.residency().because_shared();
                let message = format!(
                    "{blocks} blocks, but at most {most} can be co-resident on this device{because}; use fewer"
                );
                return Err(self.invalid(message));
            }
            let by_kernel = kernel && chosen.1 == GemmTransport::Kernel;
            if by_kernel && !support.at_once(options) && world > 1 && blocks <= limits.movers {
                let movers = limits.movers;
                let message = format!(
                    "{blocks} blocks: {movers} move A, none multiplies; use more than {movers}"
                );
                return Err(self.invalid(message));
            }
            Ok(chosen)
        });
        let (algorithm, transport) = round.vote(chosen)?;
        let pushes = (algorithm, transport) == (GemmAlgorithm::Push, GemmTransport::Kernel);
        let at_once = pushes && support.at_once(options);
        let chunk = match at_once {
            true => self.chunk_at_once(&division),
            false => self.chunk(&division, algorithm, transport, &limits),
        };
        let problem = Problem {
            rank: shared.rank,
            world,
            division,
            algorithm,
            transport,
            streams: options.streams,
            ordered: options.ordered,
            fanout: shared.capabilities.fanout,
            at_once,
            keep: options.gathered,
            chunk,
            chunks: division.rows(0).div_ceil(chunk) as u32,
        };
        round.compare(&[
            (
                "the limits of the gathering kernel on this device",
                format!("{limits:?}"),
            ),
            ("the algorithm", format!("{algorithm:?}")),
            ("the transport", format!("{transport:?}")),
            ("whether the kernel is its own barrier", at_once.to_string()),
            ("the rows per chunk", chunk.to_string()),
            (
                "the number of peers that a device copies to at once",
                problem.fanout.to_string(),
            ),
        ])?;
        tracing::debug!(
            rank = shared.rank,
            ?algorithm,
            ?transport,
            chunk,
            "all_gather_gemm"
        );
        let library = library.ok().map(|library| {
            let file = read_text(&library.file);
            (stored::library_text(&library), file)
        });
        Ok((problem, limits, library))
    }

    /// Returns whether the GEMM library multiplies each rank's shard of rows alone.
    ///
    /// # Errors
    /// The library's, but that it has no algorithm.
    fn takes_shards(&self, division: &Division) -> CallResult<bool> {
        let backend: &Backend = &self.shared.backend;
        let counts: BTreeSet<u64> = match self.shape.sharding {
            Sharding::Rows => (0..self.shared.world)
                .map(|rank| division.rows(rank))
                .collect(),
            Sharding::Columns => BTreeSet::new(),
        };
        for rows in counts.into_iter().filter(|&rows| rows > 0) {
            match check_prepared(backend, &self.shape.raw(self.element, rows, division.k)) {
                Err(failure) if failure.status == Status::UNSUPPORTED => return Ok(false),
                other => other?,
            }
        }
        Ok(true)
    }

    /// Returns the rows of a chunk of the fused kernel for small M: few, so that many blocks push at once, but
    /// enough that each block has work.
    fn chunk_at_once(&self, division: &Division) -> u64 {
        let row = (division.columns(0) * self.element.bytes()).max(1);
        let rows = division.rows(0);
        let least = AT_ONCE_CHUNK.div_ceil(row);
        least.max(rows.div_ceil(AT_ONCE_CHUNKS.into())).min(rows)
    }

    /// Returns the rows of a chunk. Blocks of the kernel move the smallest chunks that it supports.
    fn chunk(
        &self,
        division: &Division,
        algorithm: GemmAlgorithm,
        transport: GemmTransport,
        limits: &GatheredLimits,
    ) -> u64 {
        let alignment = u64::from(limits.chunk_alignment).max(1);
        let rows = division.rows(0);
        if !matches!(algorithm, GemmAlgorithm::Pull | GemmAlgorithm::Push) {
            return rows;
        }
        let wished = self.options.chunk_rows.map(|rows| rows as u64);
        let wished = wished.unwrap_or_else(|| match transport {
            GemmTransport::Put => {
                let bytes = division.elements(0) * self.element.bytes();
                chunk::copied(rows, bytes, self.shape.n as u64, limits)
            }
            _ => alignment,
        });
        wished.min(rows).next_multiple_of(alignment).min(rows)
    }

    /// Makes the operation's resources. On failure all are released, once this rank's streams are idle.
    fn workspace(
        &self,
        round: &mut Round<'_>,
        problem: &Problem,
        plan: &Plan<'_>,
    ) -> Result<Workspace> {
        let mut workspace = Workspace::default();
        let made = self.fill(round, problem, plan, &mut workspace);
        match made {
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
        problem: &Problem,
        plan: &Plan<'_>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let steps = plan.steps;
        let bytes = self.shape.gathered_elements() as u64 * self.element.bytes();
        if problem.world > 1 && !self.options.gathered {
            workspace.gathered = Some(self.shared.allocate(round, bytes, Origin::Backend)?);
        }
        if problem.staged() {
            workspace.staging = Some(self.shared.allocate(round, bytes, Origin::Backend)?);
        }
        let tiles = |step: &GemmStep| match step {
            GemmStep::Gathered { mode } => *mode != GatherMode::PUSH_AT_ONCE,
            _ => false,
        };
        if plan.partial_bytes > 0 && steps.iter().any(tiles) {
            let bytes = plan.partial_bytes;
            workspace.partials = Some(self.shared.allocate(round, bytes, Origin::Backend)?);
        }
        let says = |step: &GemmStep| matches!(step, GemmStep::Start | GemmStep::Gathered { .. });
        if steps.iter().any(says) {
            let signals = self
                .shared
                .allocate(round, plan.words.bytes(), Origin::Signals)?;
            workspace.signals = Some(signals);
        }
        let local = workspace
            .streams
            .open(self.shared, steps)
            .and_then(|()| self.prepare(problem, plan, workspace));
        round.vote(local)
    }

    /// Prepares the GEMMs of all steps.
    fn prepare(&self, problem: &Problem, plan: &Plan<'_>, workspace: &mut Workspace) -> Result<()> {
        let shared = self.shared;
        // Covers everything below: peers wait for the outcome of all of it.
        let begun = Instant::now();
        tuning::wait_until_idle(self.shared)?;
        for step in plan.steps {
            let GemmStep::Multiply { part, on } = *step else {
                continue;
            };
            let layout = layout(self.shape, self.element, problem, part);
            let stored = |raw| plan.candidates.candidate(shared, layout.m, raw);
            workspace.gemms.prepare(shared, layout, on, NAME, stored)?;
        }
        if self.options.tune {
            tuning::tune(shared, &mut workspace.gemms, NAME, begun)?;
        }
        Ok(())
    }
}

impl<T: GemmElement> AllGatherGemm<T> {
    /// Returns the operation's choice as a tuning row, with which another operation of this shape makes the
    /// same choice. Leaves out heuristic candidates that were neither timed nor stored ([`GemmOptions::tune`]).
    pub fn row(&self) -> GemmRow {
        let mut candidates: Vec<(u64, u32)> = Vec::new();
        let prepared = self.workspace().gemms.list.iter();
        for &Prepared {
            layout, candidate, ..
        } in prepared.filter(|prepared| prepared.known)
        {
            let rows = layout.m;
            if candidates.iter().all(|(known, _)| *known != rows) {
                candidates.push((rows, candidate));
            }
        }
        GemmRow {
            device: read_text(&self.world.description.name),
            world: self.world.world,
            shape: self.shape,
            element: T::TYPE,
            algorithm: self.algorithm(),
            transport: self.transport(),
            library: self.library_text().unwrap_or_default().into(),
            candidates,
        }
    }

    /// Returns the shape.
    pub fn shape(&self) -> &GemmShape {
        &self.shape
    }

    /// Returns the shape as a backend takes it, with all rows of `A`.
    pub(super) fn layout(&self) -> GemmLayout {
        let (m, k) = (self.problem.division.m, self.problem.division.k);
        self.shape.raw(T::TYPE, m, k)
    }

    /// Returns the algorithm; never automatic.
    pub fn algorithm(&self) -> GemmAlgorithm {
        self.problem.algorithm
    }

    /// Returns the transport of the shards; automatic only for `Baseline` if it gathers by symmem's own
    /// collective.
    pub fn transport(&self) -> GemmTransport {
        self.problem.transport
    }

    /// Returns this rank's steps, in the order in which a call enqueues them.
    pub fn steps(&self) -> &[GemmStep] {
        &self.steps
    }

    /// Returns the GEMM library with its version.
    pub(super) fn library_text(&self) -> Option<&str> {
        self.library.as_ref().map(|(library, _)| library.as_str())
    }

    pub(super) fn workspace(&self) -> &Arc<Workspace> {
        self.workspace
            .as_ref()
            .expect("taken only by `drop`, which ends the value")
    }
}

impl<T: GemmElement> Drop for AllGatherGemm<T> {
    fn drop(&mut self) {
        if let Some(workspace) = self.workspace.take() {
            self.world.give_up(workspace);
        }
    }
}

impl<T: GemmElement> std::fmt::Debug for AllGatherGemm<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("AllGatherGemm")
            .field("shape", &self.shape)
            .field("algorithm", &self.problem.algorithm)
            .field("transport", &self.problem.transport)
            .finish_non_exhaustive()
    }
}
