//! What symmem's kernels do, in Rust, by name.
//!
//! The argument layouts are those of `symmem_core::backend::abi`, so a backend that passes anything else is caught
//! here.

mod collectives;
mod examples;
mod lamport;
mod multicast;
mod norm;
mod products;
mod signals;
mod sums;
mod transfers;

use symmem_core::backend::abi::{
    Barrier, ExchangeArguments, GatheredGemmArguments, LatencyArguments, MoveArguments,
    MoveLamportArguments, MulticastArguments, PacketArguments, PieceArguments, ReduceArguments,
    ReduceLamportArguments, ReduceNormArguments, ReducePacketArguments, ReducePushArguments,
    ReducedGemmArguments, SignalTarget, SignalWait, StepArguments, TransferArguments,
    WordOperation, WordWait,
};

use crate::devices::physical;
use crate::driver::state;
use crate::error::{Code, Result};
use crate::report::violation;
use crate::residency::{self, Grid};
use crate::work::Runner;

pub use products::TensorMap;
use signals::{barrier, barrier_ranges, signal, signal_ranges, wait, wait_ranges};
use transfers::{
    copy, copy_bulk, copy_ranges, copy_unrolled, fill, fill_ranges, latency_packet, latency_ranges,
    latency_signal,
};

/// The arguments of `symmem_test_fill`, passed as three parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FillArguments {
    /// First 32-bit word.
    pub address: u64,
    /// How many words.
    pub words: u64,
    /// The value written to each word.
    pub value: u32,
}

/// Structs of numbers that may be made from any bytes.
///
/// # Safety
/// The type is `repr(C)`, holds numbers only, and any bytes are a value of it.
unsafe trait Plain: Copy {}
// SAFETY: a repr(C) struct of integers, for which any bytes are a value.
unsafe impl Plain for TransferArguments {}
// SAFETY: as above.
unsafe impl Plain for LatencyArguments {}
// SAFETY: as above.
unsafe impl Plain for FillArguments {}
// SAFETY: as above.
unsafe impl Plain for SignalTarget {}
// SAFETY: as above.
unsafe impl Plain for SignalWait {}
// SAFETY: as above.
unsafe impl Plain for Barrier {}
// SAFETY: as above.
unsafe impl Plain for StepArguments {}
// SAFETY: as above.
unsafe impl Plain for WordOperation {}
// SAFETY: as above.
unsafe impl Plain for WordWait {}
// SAFETY: as above.
unsafe impl Plain for MoveArguments {}
// SAFETY: as above.
unsafe impl Plain for PacketArguments {}
// SAFETY: as above.
unsafe impl Plain for PieceArguments {}
// SAFETY: as above.
unsafe impl Plain for ReduceArguments {}
// SAFETY: as above.
unsafe impl Plain for ReduceLamportArguments {}
// SAFETY: as above.
unsafe impl Plain for MoveLamportArguments {}
// SAFETY: as above.
unsafe impl Plain for ReduceNormArguments {}
// SAFETY: as above.
unsafe impl Plain for ReducePacketArguments {}
// SAFETY: as above.
unsafe impl Plain for ReducePushArguments {}
// SAFETY: as above.
unsafe impl Plain for ExchangeArguments {}
// SAFETY: as above.
unsafe impl Plain for MulticastArguments {}

/// A kernel that the fakes know.
pub(crate) struct Kernel {
    pub name: &'static str,
    /// Size and alignment of each parameter.
    pub parameters: &'static [(usize, usize)],
    waits: bool,
    ranges: fn(&Launch) -> Vec<(u64, u64)>,
    run: fn(&Launch, &Runner) -> Result,
}

impl Kernel {
    /// Returns the offset and size in bytes of each argument in the driver's buffer form.
    pub fn layout(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut end: usize = 0;
        self.parameters.iter().map(move |&(size, align)| {
            let offset = end.next_multiple_of(align);
            end = offset + size;
            (offset, size)
        })
    }

    /// Returns the size in bytes of the arguments in that form.
    pub fn argument_bytes(&self) -> usize {
        self.layout()
            .last()
            .map_or(0, |(offset, size)| offset + size)
    }
}

/// A kernel with its arguments and geometry.
pub(crate) struct Launch {
    pub kernel: &'static Kernel,
    pub arguments: Vec<u8>,
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
    pub shared: u32,
    pub module: u64,
    /// Most blocks of it that are resident if nothing else runs.
    pub resident: u32,
}

impl Launch {
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        (self.kernel.ranges)(self)
    }

    pub fn can_wait(&self) -> bool {
        self.kernel.waits
    }

    pub fn run(&self, runner: &Runner) -> Result {
        if !state().modules.contains_key(&self.module) {
            violation(format!(
                "{} runs after its module was unloaded",
                self.kernel.name
            ));
            return Err(Code::ILLEGAL_ADDRESS);
        }
        if !self.kernel.waits {
            return (self.kernel.run)(self, runner);
        }
        let device = state().contexts.get(&runner.context).map(|c| c.device);
        let grid = Grid {
            name: self.kernel.name,
            device: physical(device.ok_or(Code::INVALID_CONTEXT)?),
            blocks: self.blocks.iter().product(),
            resident: self.resident,
        };
        residency::during(&grid, || (self.kernel.run)(self, runner))
    }

    fn arguments<T: Plain>(&self) -> T {
        let mut bytes = self.arguments.clone();
        // The tail padding of a struct belongs to no parameter.
        bytes.resize(size_of::<T>(), 0);
        // SAFETY: `bytes` has the type's size, any bytes are a value of it, and the read does not require alignment.
        unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
    }
}

macro_rules! parameter {
    ($type:ty) => {
        &[(size_of::<$type>(), align_of::<$type>())]
    };
}

static KERNELS: &[Kernel] = &[
    Kernel {
        name: "symmem_copy_vector",
        parameters: parameter!(TransferArguments),
        waits: false,
        ranges: copy_ranges,
        run: copy,
    },
    Kernel {
        name: "symmem_copy_bulk",
        parameters: parameter!(TransferArguments),
        waits: false,
        ranges: copy_ranges,
        run: copy_bulk,
    },
    Kernel {
        name: "symmem_copy_unrolled",
        parameters: parameter!(TransferArguments),
        waits: false,
        ranges: copy_ranges,
        run: copy_unrolled,
    },
    Kernel {
        name: "symmem_signal",
        parameters: parameter!(SignalTarget),
        waits: false,
        ranges: signal_ranges,
        run: signal,
    },
    Kernel {
        name: "symmem_wait",
        parameters: parameter!(SignalWait),
        waits: true,
        ranges: wait_ranges,
        run: wait,
    },
    Kernel {
        name: "symmem_barrier",
        parameters: parameter!(Barrier),
        waits: true,
        ranges: barrier_ranges,
        run: barrier,
    },
    Kernel {
        name: "symmem_latency_packet",
        parameters: parameter!(LatencyArguments),
        waits: true,
        ranges: latency_ranges,
        run: latency_packet,
    },
    Kernel {
        name: "symmem_latency_signal",
        parameters: parameter!(LatencyArguments),
        waits: true,
        ranges: latency_ranges,
        run: latency_signal,
    },
    Kernel {
        name: "symmem_step",
        parameters: parameter!(StepArguments),
        waits: true,
        ranges: collectives::step_ranges,
        run: collectives::step,
    },
    Kernel {
        name: "symmem_word_update",
        parameters: parameter!(WordOperation),
        waits: false,
        ranges: collectives::word_update_ranges,
        run: collectives::word_update,
    },
    Kernel {
        name: "symmem_word_wait",
        parameters: parameter!(WordWait),
        waits: true,
        ranges: collectives::word_wait_ranges,
        run: collectives::word_wait,
    },
    Kernel {
        name: "symmem_move",
        parameters: parameter!(MoveArguments),
        waits: true,
        ranges: collectives::move_ranges,
        run: collectives::move_bytes,
    },
    Kernel {
        name: "symmem_swap",
        parameters: parameter!(MoveArguments),
        waits: true,
        ranges: collectives::move_ranges,
        run: collectives::swap_bytes,
    },
    Kernel {
        name: "symmem_move_pieces",
        parameters: parameter!(PieceArguments),
        waits: true,
        ranges: collectives::pieces_ranges,
        run: collectives::move_pieces,
    },
    Kernel {
        name: "symmem_multicast_move",
        parameters: parameter!(MulticastArguments),
        waits: true,
        ranges: multicast::ranges,
        run: multicast::move_bytes,
    },
    Kernel {
        name: "symmem_exchange",
        parameters: parameter!(ExchangeArguments),
        waits: true,
        ranges: collectives::exchange_ranges,
        run: collectives::exchange,
    },
    Kernel {
        name: "symmem_example_ring",
        parameters: parameter!(examples::RingArguments),
        waits: true,
        ranges: examples::ring_ranges,
        run: examples::ring,
    },
    Kernel {
        name: "symmem_soak_fill",
        // The last has 64 bits, of which the kernel reads 32.
        parameters: &[(8, 8), (8, 8), (8, 8)],
        waits: false,
        ranges: fill_ranges,
        run: fill,
    },
    Kernel {
        name: "symmem_test_fill",
        parameters: &[(8, 8), (8, 8), (4, 4)],
        waits: false,
        ranges: fill_ranges,
        run: fill,
    },
];

/// Two kernels for each element type that can be reduced.
macro_rules! reductions {
    ($($element:literal)*) => {
        &[$(
            Kernel {
                name: concat!("symmem_reduce_", $element),
                parameters: parameter!(ReduceArguments),
                waits: true,
                ranges: collectives::reduce_ranges,
                run: collectives::reduce,
            },
            Kernel {
                name: concat!("symmem_reduce_packets_", $element),
                parameters: parameter!(ReducePacketArguments),
                waits: true,
                ranges: collectives::reduce_packets_ranges,
                run: collectives::reduce_packets,
            },
        )*]
    };
}

static REDUCTIONS: &[Kernel] = reductions! {
    "i8" "u8" "i16" "u16" "i32" "u32" "i64" "u64" "f16" "bf16" "f32" "f64" "f8_e4m3" "f8_e5m2"
};

/// The push kernel, for each element type that large reductions support.
macro_rules! pushed {
    ($($element:literal)*) => {
        &[$(
            Kernel {
                name: concat!("symmem_reduce_push_", $element),
                parameters: parameter!(ReducePushArguments),
                waits: true,
                ranges: collectives::reduce_push_ranges,
                run: collectives::reduce_push,
            },
        )*]
    };
}

static PUSHED: &[Kernel] = pushed! { "f16" "bf16" "f32" };

/// The kernels that move LL packets.
macro_rules! packets {
    ($($name:literal)*) => {
        &[$(
            Kernel {
                name: $name,
                parameters: parameter!(PacketArguments),
                waits: true,
                ranges: collectives::packets_ranges,
                run: collectives::move_packets,
            },
        )*]
    };
}

static PACKETS: &[Kernel] = packets! {
    "symmem_move_packets" "symmem_move_packets_few" "symmem_move_packets_pair1" "symmem_move_packets_pair2"
    "symmem_move_packets_pair4"
};

/// The kernels that move Lamport packets.
macro_rules! rows {
    ($($name:literal)*) => {
        &[$(
            Kernel {
                name: $name,
                parameters: parameter!(MoveLamportArguments),
                waits: true,
                ranges: lamport::move_ranges,
                run: lamport::move_any,
            },
        )*]
    };
}

static ROWS: &[Kernel] = rows! {
    "symmem_move_lamport" "symmem_move_lamport_few" "symmem_move_lamport_pair1" "symmem_move_lamport_pair2"
    "symmem_move_lamport_pair4" "symmem_move_lamport_four" "symmem_move_lamport_eight" "symmem_move_lamport_rooted"
};

/// The kernels for Lamport packets, for each element type that they carry.
macro_rules! lamport {
    ($($element:literal)*) => {
        &[$(
            Kernel {
                name: concat!("symmem_reduce_lamport_", $element),
                parameters: parameter!(ReduceLamportArguments),
                waits: true,
                ranges: lamport::ranges,
                run: lamport::reduce,
            },
        )*]
    };
}

static LAMPORT: &[Kernel] = lamport! {
    "f16" "bf16" "f32" "f8_e4m3" "f8_e5m2" "few_f16" "few_bf16" "few_f32" "pair1_f16" "pair1_bf16" "pair1_f32"
    "pair2_f16" "pair2_bf16" "pair2_f32" "pair4_f16" "pair4_bf16" "pair4_f32" "two_shot_f16" "two_shot_bf16"
    "two_shot_f32" "two_shot_f8_e4m3" "two_shot_f8_e5m2" "two_shot_few_f16" "two_shot_few_bf16" "two_shot_few_f32"
    "rooted_f16" "rooted_bf16" "rooted_f32" "rooted_f8_e4m3" "rooted_f8_e5m2" "four_f16" "four_bf16" "four_f32"
    "eight_f16" "eight_bf16" "eight_f32" "scatter_four_f16" "scatter_four_bf16" "scatter_four_f32" "scatter_eight_f16"
    "scatter_eight_bf16" "scatter_eight_f32" "two_shot_four_f16" "two_shot_four_bf16" "two_shot_four_f32"
    "two_shot_eight_f16" "two_shot_eight_bf16" "two_shot_eight_f32"
};

/// The kernels that sum rows in Lamport packets, with a residual and a norm.
macro_rules! norms {
    ($($element:literal)*) => {
        &[$(
            Kernel {
                name: concat!("symmem_reduce_norm_", $element),
                parameters: parameter!(ReduceNormArguments),
                waits: true,
                ranges: norm::ranges,
                run: norm::reduce,
            },
        )*]
    };
}

static NORMS: &[Kernel] = norms! {
    "f16" "bf16" "f32" "pair_f16" "pair_bf16" "pair_plain_f16" "pair_plain_bf16" "pair_narrow_f16"
    "pair_narrow_bf16" "few_f16" "few_bf16" "few_plain_f16" "few_plain_bf16" "few_narrow_f16" "few_narrow_bf16"
    "shares_f16" "shares_bf16" "shares_f32" "pair_shares_f16" "pair_shares_bf16" "few_shares_f16" "few_shares_bf16"
};

/// The multicast kernel, for each element type that a switch reduces.
macro_rules! switched {
    ($($element:literal)*) => {
        &[$(
            Kernel {
                name: concat!("symmem_multicast_reduce_", $element),
                parameters: parameter!(MulticastArguments),
                waits: true,
                ranges: multicast::ranges,
                run: multicast::reduce,
            },
        )*]
    };
}

static SWITCHED: &[Kernel] = switched! {
    "i32" "u32" "i64" "u64" "f16" "bf16" "f32" "f64" "f8_e4m3" "f8_e5m2"
};

/// The split-K GEMM for small M; one kernel for each number of rows in a tile.
macro_rules! split_gemm {
    ($matrices:literal, $rows:literal) => {
        Kernel {
            name: concat!("symmem_split_gemm_", $matrices, "_", $rows),
            parameters: parameter!(products::TensorGemmArguments),
            waits: true,
            ranges: products::tensor_gemm_ranges,
            run: products::split_gemm::<$rows>,
        }
    };
}

/// AMD's all-gather + GEMM; one kernel for each number of rows and columns of a tile.
macro_rules! gathered_gemm {
    ($matrices:literal, $rows:literal, $columns:literal) => {
        Kernel {
            name: concat!(
                "symmem_gathered_gemm_",
                $matrices,
                "_",
                $rows,
                "x",
                $columns
            ),
            parameters: parameter!(GatheredGemmArguments),
            waits: true,
            ranges: products::gathered_gemm_ranges,
            run: products::gathered_gemm::<$rows, $columns>,
        }
    };
}

/// The fused all-gather + GEMM kernels for each element type and order of B, without and with tensor maps.
macro_rules! products {
    ($($matrices:literal)*) => {
        &[$(
            gathered_gemm!($matrices, 256, 256),
            gathered_gemm!($matrices, 128, 256),
            gathered_gemm!($matrices, 256, 128),
            gathered_gemm!($matrices, 64, 256),
            gathered_gemm!($matrices, 256, 64),
            Kernel {
                name: concat!("symmem_tensor_gemm_", $matrices),
                parameters: parameter!(products::TensorGemmArguments),
                waits: true,
                ranges: products::tensor_gemm_ranges,
                run: products::tensor_gemm,
            },
            split_gemm!($matrices, 16),
            split_gemm!($matrices, 32),
            split_gemm!($matrices, 64),
            split_gemm!($matrices, 128),
            split_gemm!($matrices, 256),
            Kernel {
                name: concat!("symmem_cluster_gemm_", $matrices, "_256"),
                parameters: parameter!(products::TensorGemmArguments),
                waits: true,
                ranges: products::tensor_gemm_ranges,
                run: products::cluster_gemm,
            },
        )*]
    };
}

/// A kernel of NVIDIA's that multiplies and reduces.
macro_rules! sum {
    ($name:expr, $run:expr) => {
        Kernel {
            name: $name,
            parameters: parameter!(sums::TensorReducedArguments),
            waits: true,
            ranges: sums::tensor_ranges,
            run: $run,
        }
    };
}

/// AMD's GEMM + reduce; one kernel for each number of rows and columns of a tile.
macro_rules! tile_reduce {
    ($matrices:literal, $rows:literal, $columns:literal) => {
        Kernel {
            name: concat!("symmem_reduced_gemm_", $matrices, "_", $rows, "x", $columns),
            parameters: parameter!(ReducedGemmArguments),
            waits: true,
            ranges: sums::ranges,
            run: sums::tile_reduce::<$rows, $columns>,
        }
    };
}

/// The fused GEMM + reduce kernels for each element type and order of B: for large tiles, and for few rows.
macro_rules! sums {
    ($($matrices:literal)*) => {
        &[$(
            sum!(concat!("symmem_reduced_gemm_", $matrices), sums::reduced_gemm),
            sum!(concat!("symmem_split_reduce_", $matrices, "_16"), sums::split_reduce::<16>),
            sum!(concat!("symmem_split_reduce_", $matrices, "_32"), sums::split_reduce::<32>),
            sum!(concat!("symmem_split_reduce_", $matrices, "_64"), sums::split_reduce::<64>),
            sum!(concat!("symmem_split_reduce_", $matrices, "_128"), sums::split_reduce::<128>),
            tile_reduce!($matrices, 256, 256),
            tile_reduce!($matrices, 128, 256),
            tile_reduce!($matrices, 256, 128),
            tile_reduce!($matrices, 64, 256),
            tile_reduce!($matrices, 256, 64),
        )*]
    };
}

static SUMS: &[Kernel] = sums! { "f16_rows" "f16_columns" "bf16_rows" "bf16_columns" };

/// AMD's all-gather + GEMM of 8-bit floats.
static PRODUCTS_OF_F8: &[Kernel] = &[
    gathered_gemm!("f8_e4m3_columns", 256, 256),
    gathered_gemm!("f8_e4m3_columns", 128, 256),
    gathered_gemm!("f8_e4m3_columns", 256, 128),
    gathered_gemm!("f8_e4m3_columns", 64, 256),
    gathered_gemm!("f8_e4m3_columns", 256, 64),
];

static PRODUCTS: &[Kernel] = products! { "f16_rows" "f16_columns" "bf16_rows" "bf16_columns" };

/// Returns the kernel with a name.
pub(crate) fn find(name: &str) -> Option<&'static Kernel> {
    KERNELS
        .iter()
        .chain(REDUCTIONS)
        .chain(PUSHED)
        .chain(PACKETS)
        .chain(LAMPORT)
        .chain(NORMS)
        .chain(ROWS)
        .chain(SWITCHED)
        .chain(PRODUCTS)
        .chain(PRODUCTS_OF_F8)
        .chain(SUMS)
        .find(|kernel| kernel.name == name)
}

/// Returns the ranges of those words whose address is not null.
fn touched(words: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    words
        .iter()
        .filter(|address| **address != 0)
        .map(|address| (*address, 4))
}
