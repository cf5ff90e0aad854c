//! GEMM by cuBLASLt or hipBLASLt, all-gather + GEMM by a kernel that multiplies while it gathers, and GEMM +
//! reduce-scatter or + all-reduce by a kernel that sends what it has multiplied.

use super::collectives::{CollectiveGroup, ElementTypeCode};
use super::forms::{handle, open_enum};
use super::handles::DeviceAddress;
use super::limits::MAX_RANKS;

handle!(
    /// A GEMM prepared for one shape: the library's heuristic results and the workspace.
    RawGemm
);

open_enum!(
    /// Storage order of a matrix.
    MatrixOrderCode {
        /// Row-major: a row is contiguous, and the stride is from one row to the next.
        ROWS = 1,
        /// Column-major: a column is contiguous, and the stride is from one column to the next.
        COLUMNS = 2,
    }
);

open_enum!(
    /// Division of `A` among the ranks.
    ShardingCode {
        /// Each rank has some of the rows.
        ROWS = 1,
        /// Each rank has some of the columns.
        COLUMNS = 2,
    }
);

open_enum!(
    /// How a shard of `A` gets to the memory from which [`GatheredGemmArguments`] multiplies it.
    GatherMode {
        /// Other work puts it there and raises an arrival word per chunk; the kernel only waits.
        WAIT = 1,
        /// Blocks of the kernel load the peers' shards and raise this rank's own arrival words.
        PULL = 2,
        /// Blocks of the kernel store this rank's shard at every peer and raise the peers' arrival words.
        PUSH = 3,
        /// Like [`GatherMode::PUSH`], with the barrier inside the kernel: one launch is the whole call. For few rows,
        /// for which a separate barrier would cost a fifth of the time.
        PUSH_AT_ONCE = 4,
    }
);

impl GatherMode {
    /// Bit of this mode in [`GatheredLimits::modes`].
    pub const fn bit(self) -> u32 {
        1 << self.0
    }
}

/// Maximum number of blocks in a grid in [`GatherMode::PUSH_AT_ONCE`].
pub const AT_ONCE_BLOCKS: u32 = 320;
/// Maximum number of chunks per shard in that mode: each thread of a 32-thread warp polls two.
pub const AT_ONCE_CHUNKS: u32 = 64;

/// A GEMM: `C[m, n] = A[m, k] · B[k, n]`, times a scale if there is one, plus `bias[n]` in each row if there is a bias, plus
/// `addend[m, n]` if there is an addend.
///
/// Sums are in f32 and rounded once (of 8-bit floats, a GPU's GEMM library may sum to fewer bits). `A` and `C` are row-major.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GemmLayout {
    /// Rows of `A` and `C`.
    pub m: u64,
    /// Columns of `B` and `C`.
    pub n: u64,
    /// Columns of `A`, rows of `B`.
    pub k: u64,
    /// Elements from one row of `A` to the next.
    pub a_stride: u64,
    /// Elements from one row of `B` to the next, or from one column to the next with [`MatrixOrderCode::COLUMNS`].
    pub b_stride: u64,
    /// Elements from one row of `C` to the next.
    pub c_stride: u64,
    /// Element type of `A` and `B`: [`ElementTypeCode::F16`], [`ElementTypeCode::BF16`], [`ElementTypeCode::F8_E4M3`] or,
    /// without a fused kernel on GPUs, [`ElementTypeCode::F32`]. The other matrices have that of [`GemmLayout::output`].
    pub element: ElementTypeCode,
    /// Storage order of `B`.
    pub b_order: MatrixOrderCode,
    /// 1 if there is a bias.
    pub bias: u32,
    /// 1 if there is an addend; only [`Gemm::gemm`](crate::backend::Gemm::gemm) can have one.
    pub addend: u32,
}

impl GemmLayout {
    /// Element type of `C`, the bias and the addend: BF16 for 8-bit floats, otherwise that of `A` and `B`.
    pub const fn output(&self) -> ElementTypeCode {
        match self.element {
            ElementTypeCode::F8_E4M3 => ElementTypeCode::BF16,
            element => element,
        }
    }

    /// Whether the GEMM takes a scale: those of 8-bit floats do, whose numbers are scaled to their narrow range.
    pub const fn takes_scale(&self) -> bool {
        matches!(self.element, ElementTypeCode::F8_E4M3)
    }
}

/// The matrices of one GEMM. None overlaps `c`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GemmOperands {
    /// `A`.
    pub a: DeviceAddress,
    /// `B`.
    pub b: DeviceAddress,
    /// `C`, which is written.
    pub c: DeviceAddress,
    /// `n` elements, contiguous; null for none.
    pub bias: DeviceAddress,
    /// A matrix of the size of `C`, row-major without gaps; null for none.
    pub addend: DeviceAddress,
    /// One `f32`; null for none. Only where [`GemmLayout::takes_scale`].
    pub scale: DeviceAddress,
}

/// The limits of a backend's all-gather + GEMM kernel for a shape.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatheredLimits {
    /// Maximum number of blocks that are co-resident if nothing else runs, in the clusters in which the kernel is
    /// launched; it limits the grid. In the table, 0
    /// means that there is no kernel for the shape.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Rows of `C` that a block computes at a time.
    pub tile_m: u32,
    /// Columns of `C` that a block computes at a time.
    pub tile_n: u32,
    /// Rows of a chunk are a multiple of this, except in a shard's last chunk.
    pub chunk_alignment: u32,
    /// Default number of blocks that move `A`; 0 if no block has to be reserved for that.
    pub movers: u32,
    /// Bits of the supported modes, as in [`GatherMode::bit`].
    pub modes: u32,
    /// Required alignment of `A`, its shards and `B`, in bytes; 0 and 1 mean any.
    pub alignment: u32,
    /// Blocks of the grid that the kernel chooses in [`GatherMode::PUSH_AT_ONCE`]; 0 without that mode.
    pub at_once_blocks: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes with which several blocks can multiply one tile, for [`GatheredGemmArguments::partials`]; 0 for none.
    pub partial_bytes: u64,
}

/// Arguments of a GEMM in one kernel that multiplies each chunk of `A` once it has arrived.
///
/// Shard `p` of `A` begins at row (or column, see [`ShardingCode`]) `p * shard`; the last shards are smaller or empty. At
/// member `p` a shard is row-major without gaps. In `gathered` it has its place in the whole `A`, whose rows are
/// `shape.a_stride` apart. A shard is cut into chunks of `chunk` of its rows; the last chunk may have fewer. Chunk
/// `c` of shard `p` has arrived at a member when the member's word at `arrivals + (p * chunks + c) *`
/// [`SIGNAL_STRIDE`](super::SIGNAL_STRIDE) has reached the value at `epoch`, in wrapping arithmetic. The kernel does
/// not wait for its own chunks or for empty ones.
///
/// All members have reached the call before it is submitted: a barrier on the same stream has just raised `epoch`,
/// equally on all. The shards do not change until a later barrier.
///
/// [`GatherMode::PUSH_AT_ONCE`] differs. A member's slot is an array of words,
/// [`SIGNAL_STRIDE`](super::SIGNAL_STRIDE) apart, of which each rank raises its own at all other members when it
/// reaches a call. `epoch` is an array of [`AT_ONCE_BLOCKS`] words of 32 bits; in each call each block of the grid
/// increments its own, and all other words reach that value. All these words start at zero. The kernel chooses its
/// grid, so the tiles and blocks of the limits do not apply. If `A` is sharded by rows, `gathered` always receives
/// the own shard too, and the kernel waits for its own chunks like for all others.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GatheredGemmArguments {
    /// The participating ranks; the slots are used only in [`GatherMode::PUSH_AT_ONCE`].
    pub group: CollectiveGroup,
    /// Each member's shard of `A` as this device addresses it. The own entry is always set; all are set if the kernel
    /// pulls. Own rows are multiplied from there.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Each member's gathered `A`. The own entry is always set; all are set if the kernel pushes.
    pub gathered: [DeviceAddress; MAX_RANKS],
    /// Each member's arrival words. The own entry is always set; all are set if the kernel pushes.
    pub arrivals: [DeviceAddress; MAX_RANKS],
    /// This rank's 32-bit word with the value that arrival words reach in this call; in [`GatherMode::PUSH_AT_ONCE`],
    /// the first of the words that count calls.
    pub epoch: DeviceAddress,
    /// The whole `B`.
    pub b: DeviceAddress,
    /// The whole `C`, which is written.
    pub c: DeviceAddress,
    /// `n` elements; null for none.
    pub bias: DeviceAddress,
    /// Shape of the whole GEMM.
    pub shape: GemmLayout,
    /// Rows, or columns, of a shard; the last shards may have fewer.
    pub shard: u64,
    /// Rows of a shard per arrival word.
    pub chunk: u64,
    /// Chunks of a full shard.
    pub chunks: u32,
    /// Division of `A` among the ranks.
    pub sharding: ShardingCode,
    /// How shards get to this rank.
    pub mode: GatherMode,
    /// Number of blocks, the first of the grid, that move `A`; 0 in [`GatherMode::WAIT`]. In
    /// [`GatherMode::PUSH_AT_ONCE`] at most this many blocks move `A` before they multiply.
    pub movers: u32,
    /// 1 to also copy the own shard to the own `gathered` (not in [`GatherMode::WAIT`]).
    pub keep: u32,
    /// The tile: rows in the upper and columns in the lower 16 bits; 0 for the backend's choice. Not in
    /// [`GatherMode::PUSH_AT_ONCE`].
    pub tile: u32,
    /// Memory of this rank with which several blocks can multiply one tile: a multiple of
    /// [`SIGNAL_STRIDE`](super::SIGNAL_STRIDE), zeroed once, before the first call. Its layout is the kernel's own. Null
    /// for none: then each tile has one block.
    pub partials: DeviceAddress,
    /// Bytes there.
    pub partial_bytes: u64,
    /// How the last tiles are divided. The backend sets it; callers pass 0.
    pub quota: u32,
    /// Zero.
    pub reserved: u32,
    /// One `f32`; null for none. Only where [`GemmLayout::takes_scale`].
    pub scale: DeviceAddress,
}

open_enum!(
    /// How partial sums get to the rank that owns their rows, in [`ReducedGemmArguments`].
    ReducedMode {
        /// Tiles of the peers' rows come first. They are stored in the owner's inbox, each with an arrival word. Tiles of
        /// the own rows come last: what has arrived for them is added in registers.
        PUSH = 1,
        /// For few rows: `K` is divided among the blocks of a cluster, and their sums are sent as packets, which carry
        /// flags with the data.
        PACKETS = 2,
    }
);

/// How a GEMM whose `K` is divided among the ranks is summed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReducedProblem {
    /// Rows of a full rank's part of `C`; the last parts have fewer or none.
    pub shard: u64,
    /// Number of ranks.
    pub world: u32,
    /// How partial sums get to their owner.
    pub mode: ReducedMode,
    /// 1 if all ranks get the whole sum (all-reduce), 0 if each gets its rows (reduce-scatter).
    pub all: u32,
    /// Element type of a partial sum on its way: [`ElementTypeCode::F32`], or the element type of the matrices.
    pub partial: ElementTypeCode,
}

/// The limits of a backend's GEMM + reduce kernel for a shape and a [`ReducedProblem`]. They are functions of the
/// device's model and partition, the shape and the problem: all members of a group with equal devices and shapes get equal
/// limits, and members with unequal limits cannot make a call together.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReducedLimits {
    /// Blocks of a launch: no more and no fewer. They are co-resident if nothing else runs. In the table, 0 means that
    /// there is no kernel.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Rows of `C` that a block computes at a time.
    pub tile_m: u32,
    /// Columns of `C` that a block computes at a time.
    pub tile_n: u32,
    /// Required alignment of `A` and `B`, and with `all` of the results, in bytes; 0 and 1 mean any.
    pub alignment: u32,
    /// Identifies the layout of inboxes and words, where kernels of different devices have different ones.
    pub layout: u32,
    /// Bytes of a member's inbox, whose layout is the kernel's own. They are zeroed once, before the first call.
    pub inbox_bytes: u64,
    /// Bytes of a member's words, whose layout is the kernel's own: arrival words, the words that say which members have
    /// entered a call, and the words that count calls. They are zeroed once, before the first call.
    pub word_bytes: u64,
}

/// Arguments of a GEMM whose `K` is divided among the ranks, and the sum of its products over all ranks, in one kernel.
///
/// Rank `p` owns rows `p * shard` and following of the sum; the last ranks own fewer or none. Each rank multiplies its `A` and
/// `B` into partial sums of all rows, in f32. Partial sums that leave a rank are of the type `partial`: rounded once each
/// if that is the element type of the matrices, and not rounded if it is f32. The owner adds the partial sums of all
/// ranks to the bias in f32, always in the same order of the ranks, and rounds once. With `all`, all ranks get the same bits:
/// either the owner sends its rounded rows on, or all ranks add the same partial sums in the same order.
///
/// One call is one launch, and it is its own barrier. On entry the kernel tells all members that this rank has entered. It
/// multiplies at once, but stores nothing in a member's memory before all members have entered: until then one may
/// still read what the last call stored. Each block counts its calls in the own words, and all other words reach the
/// count of the call, in wrapping arithmetic. Thus a replayed graph needs no value from the host, and calls with the same inboxes and
/// words form one sequence on all members. At the end of a launch the own `c` is complete, and with `all` the own entry of `results` is. A
/// peer may still read the own words and inbox then, but not `a`, `b`, `bias` or `c`.
///
/// All waits are bounded by the watch. A block whose wait gave up ends, and it raises no word for a sum that lacks a part.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReducedGemmArguments {
    /// The participating ranks, for bounded waits and their records. The members' slots and packets are not used.
    pub group: CollectiveGroup,
    /// Each member's inbox, [`ReducedLimits::inbox_bytes`] bytes from an address that is a multiple of
    /// [`SIGNAL_STRIDE`](super::SIGNAL_STRIDE).
    pub inboxes: [DeviceAddress; MAX_RANKS],
    /// Each member's words, [`ReducedLimits::word_bytes`] bytes, aligned like the inboxes.
    pub words: [DeviceAddress; MAX_RANKS],
    /// With `all`: each member's whole sum, with rows `shape.c_stride` apart; no call before it still reads or writes
    /// them once its member has entered this call. Otherwise null.
    pub results: [DeviceAddress; MAX_RANKS],
    /// This rank's columns of `A`.
    pub a: DeviceAddress,
    /// This rank's rows of `B`.
    pub b: DeviceAddress,
    /// Without `all`: the own rows of the sum, which are written. With `all`: the own entry of `results`.
    pub c: DeviceAddress,
    /// `n` elements, which are added once; null for none. With `all` every rank passes the same ones.
    pub bias: DeviceAddress,
    /// Shape of this rank's GEMM: all rows, and this rank's part of `K`, which may be 0.
    pub shape: GemmLayout,
    /// Rows of a full rank's part; the last parts have fewer or none.
    pub shard: u64,
    /// How partial sums get to their owner.
    pub mode: ReducedMode,
    /// 1 if all ranks get the whole sum, 0 if each gets its rows.
    pub all: u32,
    /// Element type of a partial sum on its way: [`ElementTypeCode::F32`], or `shape.element`.
    pub partial: ElementTypeCode,
    /// How the last tiles are divided among blocks. The backend sets it; callers pass 0.
    pub quota: u32,
}

impl ReducedGemmArguments {
    /// Returns the problem that the limits depend on.
    pub fn problem(&self) -> ReducedProblem {
        ReducedProblem {
            shard: self.shard,
            world: self.group.world,
            mode: self.mode,
            all: self.all,
            partial: self.partial,
        }
    }
}

/// Revision of the heuristic requests to the GEMM library. A stored algorithm is an index into the list that the
/// library returns, so raise this number with any change that the list depends on: `WAYS`, `MOST_WORKSPACE`,
/// `ALIGNMENT`, `ELEMENT`, the order of the two requests, `ask_with`, and the description of an operation.
pub const GEMM_REQUEST_REVISION: u32 = 2;
