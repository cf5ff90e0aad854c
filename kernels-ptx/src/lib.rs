//! symmem's kernels for NVIDIA GPUs, compiled ahead of time.
//!
//! The sources are `device/entries/*.h` and the `.cu` files of this crate. `cargo xtask kernels build` compiles
//! them with clang and ptxas, and `cargo xtask kernels check` proves that sources and artefacts match. Building
//! a program with this crate needs no compiler.
//!
//! Every kernel takes one struct by value, in the layout of `symmem/abi.h`.
//!
//! Each image is embedded compressed, as it is in the repository. [`Module::choose`] returns the image for a
//! device; [`CompressedImage::decompress`] or [`decompress_all`] turns it into what the driver loads.

pub use symmem_kernels_image::{AlignedBytes, CompressedImage, CorruptImage, decompress_all};

/// Kernels that are loaded together and need the same hardware.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// Name: `base`, `signals`, …; a name that ends in `_sm_80` is a module of the same kernels for devices
    /// before sm_90.
    pub name: &'static str,
    /// PTX; once decompressed it ends with a zero byte, as the driver expects.
    pub ptx: CompressedImage,
    /// Cubins by architecture (90 for sm_90), in rising order.
    pub cubins: &'static [(u32, CompressedImage)],
    /// Kernels of the module.
    pub entries: &'static [Entry],
    /// First architecture that can run it.
    pub minimum_architecture: u32,
    /// First later architecture that does not run it, because another module has its kernels or because its
    /// instructions exist on one architecture only.
    pub end_architecture: u32,
    /// How its kernels reach all members. The modules for hardware and for emulated multicast have kernels of
    /// the same names, so load only one of the two.
    pub multicast: Multicast,
}

/// How a module's kernels reach all members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multicast {
    /// By each member's own address; a module that has nothing to do with multicast.
    None,
    /// By multicast addresses. Load it only if such addresses can be set up.
    Hardware,
    /// By each member's own address, in place of a multicast address.
    Emulated,
}

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Symbol.
    pub name: &'static str,
    /// Size of its only argument in bytes.
    pub argument_bytes: u32,
    /// Whether it itself waits for the stream's previous kernels before it accesses memory. It may then be
    /// launched with programmatic stream serialization, so that its blocks are resident when they end.
    pub dependent_launch: bool,
}

/// Returns the bytes of dynamic shared memory that `symmem_copy_bulk` needs for a ring of `stages` copies of
/// `stage_bytes` bytes each (`bulk_shared_memory` in `symmem/bulk.h`).
pub const fn bulk_shared_memory(stages: u32, stage_bytes: u32) -> u64 {
    (stages as u64 * 8).next_multiple_of(128) + stages as u64 * stage_bytes as u64
}

/// An image for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Cubin of an architecture (90 for sm_90), which loads without compilation.
    Cubin(u32, CompressedImage),
    /// PTX, which the driver compiles; zero-terminated once decompressed.
    Ptx(CompressedImage),
}

impl Image {
    /// Returns the compressed bytes of what `cuModuleLoadData` takes.
    pub fn compressed(self) -> CompressedImage {
        match self {
            Self::Cubin(_, image) | Self::Ptx(image) => image,
        }
    }
}

impl Module {
    /// Returns the image to load on an architecture (90 for sm_90): the newest cubin that runs there, which has
    /// the same major and no later minor version, else the PTX. `None` if the module cannot run there, or
    /// another one has its kernels.
    pub fn choose(&self, architecture: u32) -> Option<Image> {
        if !(self.minimum_architecture..self.end_architecture).contains(&architecture) {
            return None;
        }
        let runs = |built: u32| built / 10 == architecture / 10 && built <= architecture;
        let mut cubins = self.cubins.iter().rev();
        let cubin = cubins.find(|(built, _)| runs(*built));
        Some(cubin.map_or(Image::Ptx(self.ptx), |(built, image)| {
            Image::Cubin(*built, *image)
        }))
    }
}

/// Returns all modules.
pub fn modules() -> &'static [Module] {
    &MODULES
}

macro_rules! cubin {
    ($file:expr) => {
        CompressedImage::machine_code(include_bytes!(concat!("../artefacts/", $file, ".zst")))
    };
}

macro_rules! ptx {
    ($file:expr) => {
        CompressedImage::text(include_bytes!(concat!("../artefacts/", $file, ".zst")))
    };
}

const fn entry(name: &'static str, argument_bytes: u32) -> Entry {
    Entry {
        name,
        argument_bytes,
        dependent_launch: false,
    }
}

const fn dependent<const COUNT: usize>(mut entries: [Entry; COUNT]) -> [Entry; COUNT] {
    let mut index = 0;
    while index < COUNT {
        entries[index].dependent_launch = true;
        index += 1;
    }
    entries
}

const TRANSFER_ARGUMENTS: u32 = 64;
const SIGNAL_TARGET: u32 = 32;
const SIGNAL_WAIT: u32 = 72;
const STEP_ARGUMENTS: u32 = SIGNAL_TARGET + SIGNAL_WAIT;
const WORD_OPERATION: u32 = 40;
const WORD_WAIT: u32 = 88;
const BARRIER: u32 = 640;
const LATENCY_ARGUMENTS: u32 = 88;
const GROUP: u32 = 712;
const ADDRESSES: u32 = 576;
const MOVE_ARGUMENTS: u32 = GROUP + 3 * ADDRESSES + 8;
const PACKET_ARGUMENTS: u32 = GROUP + 4 * ADDRESSES;
const PIECE_ARGUMENTS: u32 = GROUP + 5 * ADDRESSES + 32;
const EXCHANGE_ARGUMENTS: u32 = GROUP + 4 * ADDRESSES + 32;
const REDUCE_ARGUMENTS: u32 = GROUP + 2 * ADDRESSES + 16;
const REDUCE_PUSH_ARGUMENTS: u32 = REDUCE_ARGUMENTS + 3 * ADDRESSES + 24;
/// Three tensor maps come first; the size is a multiple of their alignment.
const TENSOR_GEMM_ARGUMENTS: u32 =
    (3 * 128 + GROUP + 3 * ADDRESSES + 168 + 8_u32).next_multiple_of(64);
/// Two tensor maps come first; the size is a multiple of their alignment.
const TENSOR_REDUCED_ARGUMENTS: u32 =
    (2 * 128 + GROUP + 3 * ADDRESSES + 120_u32).next_multiple_of(64);
const REDUCE_PACKET_ARGUMENTS: u32 = GROUP + 3 * ADDRESSES + 16;
const REDUCE_LAMPORT_ARGUMENTS: u32 = GROUP + 2 * ADDRESSES + 88;
const REDUCE_NORM_ARGUMENTS: u32 = REDUCE_LAMPORT_ARGUMENTS + 72;
const MOVE_LAMPORT_ARGUMENTS: u32 = GROUP + 3 * ADDRESSES + 80;
const MULTICAST_ARGUMENTS: u32 = GROUP + 3 * 8 + 2 * ADDRESSES + 24;

const SIGNALS: [Entry; 6] = [
    entry("symmem_signal", SIGNAL_TARGET),
    entry("symmem_wait", SIGNAL_WAIT),
    entry("symmem_step", STEP_ARGUMENTS),
    entry("symmem_word_update", WORD_OPERATION),
    entry("symmem_word_wait", WORD_WAIT),
    entry("symmem_barrier", BARRIER),
];

const COLLECTIVE: [Entry; 17] = [
    entry("symmem_move", MOVE_ARGUMENTS),
    entry("symmem_swap", MOVE_ARGUMENTS),
    entry("symmem_move_pieces", PIECE_ARGUMENTS),
    entry("symmem_move_packets", PACKET_ARGUMENTS),
    entry("symmem_move_packets_few", PACKET_ARGUMENTS),
    entry("symmem_move_packets_pair1", PACKET_ARGUMENTS),
    entry("symmem_move_packets_pair2", PACKET_ARGUMENTS),
    entry("symmem_move_packets_pair4", PACKET_ARGUMENTS),
    entry("symmem_move_lamport", MOVE_LAMPORT_ARGUMENTS),
    entry("symmem_move_lamport_rooted", MOVE_LAMPORT_ARGUMENTS),
    entry("symmem_move_lamport_four", MOVE_LAMPORT_ARGUMENTS),
    entry("symmem_move_lamport_eight", MOVE_LAMPORT_ARGUMENTS),
    entry("symmem_move_lamport_few", MOVE_LAMPORT_ARGUMENTS),
    entry("symmem_move_lamport_pair1", MOVE_LAMPORT_ARGUMENTS),
    entry("symmem_move_lamport_pair2", MOVE_LAMPORT_ARGUMENTS),
    entry("symmem_move_lamport_pair4", MOVE_LAMPORT_ARGUMENTS),
    entry("symmem_exchange", EXCHANGE_ARGUMENTS),
];

macro_rules! each_element {
    ($family:literal, $bytes:expr, $($element:literal)*) => {
        [$(entry(concat!($family, "_", $element), $bytes)),*]
    };
}

const REDUCE: [Entry; 14] = each_element!("symmem_reduce", REDUCE_ARGUMENTS,
    "i8" "u8" "i16" "u16" "i32" "u32" "i64" "u64" "f16" "bf16" "f32" "f64" "f8_e4m3" "f8_e5m2");

/// Only for the types of large reductions.
const REDUCE_PUSH: [Entry; 3] =
    each_element!("symmem_reduce_push", REDUCE_PUSH_ARGUMENTS, "f16" "bf16" "f32");

const REDUCE_PACKETS: [Entry; 14] = each_element!("symmem_reduce_packets", REDUCE_PACKET_ARGUMENTS,
    "i8" "u8" "i16" "u16" "i32" "u32" "i64" "u64" "f16" "bf16" "f32" "f64" "f8_e4m3" "f8_e5m2");

/// For floating-point types of at most 32 bits, and small ones for the usual types.
const REDUCE_LAMPORT: [Entry; 48] = each_element!("symmem_reduce_lamport", REDUCE_LAMPORT_ARGUMENTS,
    "f16" "bf16" "f32" "f8_e4m3" "f8_e5m2" "few_f16" "few_bf16" "few_f32" "pair1_f16" "pair1_bf16" "pair1_f32"
    "pair2_f16" "pair2_bf16" "pair2_f32" "pair4_f16" "pair4_bf16" "pair4_f32" "two_shot_f16" "two_shot_bf16" "two_shot_f32"
    "two_shot_f8_e4m3" "two_shot_f8_e5m2" "two_shot_few_f16" "two_shot_few_bf16" "two_shot_few_f32"
    "rooted_f16" "rooted_bf16" "rooted_f32" "rooted_f8_e4m3" "rooted_f8_e5m2"
    "four_f16" "four_bf16" "four_f32" "eight_f16" "eight_bf16" "eight_f32" "scatter_four_f16" "scatter_four_bf16"
    "scatter_four_f32" "scatter_eight_f16" "scatter_eight_bf16" "scatter_eight_f32" "two_shot_four_f16"
    "two_shot_four_bf16" "two_shot_four_f32" "two_shot_eight_f16" "two_shot_eight_bf16" "two_shot_eight_f32");

/// For the types of a norm, and small ones for those of 16 bits.
const REDUCE_NORM: [Entry; 22] = each_element!("symmem_reduce_norm", REDUCE_NORM_ARGUMENTS,
    "f16" "bf16" "f32" "pair_f16" "pair_bf16" "pair_plain_f16" "pair_plain_bf16" "pair_narrow_f16"
    "pair_narrow_bf16" "few_f16" "few_bf16" "few_plain_f16" "few_plain_bf16" "few_narrow_f16" "few_narrow_bf16"
    "shares_f16" "shares_bf16" "shares_f32" "pair_shares_f16" "pair_shares_bf16" "few_shares_f16" "few_shares_bf16");

/// For the types that a switch reduces, and one kernel that moves bytes.
const MULTICAST: [Entry; 9] = [
    entry("symmem_multicast_reduce_i32", MULTICAST_ARGUMENTS),
    entry("symmem_multicast_reduce_u32", MULTICAST_ARGUMENTS),
    entry("symmem_multicast_reduce_i64", MULTICAST_ARGUMENTS),
    entry("symmem_multicast_reduce_u64", MULTICAST_ARGUMENTS),
    entry("symmem_multicast_reduce_f16", MULTICAST_ARGUMENTS),
    entry("symmem_multicast_reduce_bf16", MULTICAST_ARGUMENTS),
    entry("symmem_multicast_reduce_f32", MULTICAST_ARGUMENTS),
    entry("symmem_multicast_reduce_f64", MULTICAST_ARGUMENTS),
    entry("symmem_multicast_move", MULTICAST_ARGUMENTS),
];

const MULTICAST_F8: [Entry; 2] = each_element!("symmem_multicast_reduce", MULTICAST_ARGUMENTS,
    "f8_e4m3" "f8_e5m2");

/// A module of kernels that exist twice: this one, from sm_90 on, supports programmatic dependent launch; the
/// other is for older devices.
macro_rules! from_sm_90 {
    ($name:literal, $entries:expr) => {
        from_sm_90!($name, $entries, Multicast::None)
    };
    ($name:literal, $entries:expr, $multicast:expr) => {
        Module {
            name: $name,
            ptx: ptx!(concat!($name, ".ptx")),
            cubins: &[(90, cubin!(concat!($name, ".sm_90.cubin")))],
            entries: &const { dependent($entries) },
            minimum_architecture: 90,
            end_architecture: u32::MAX,
            multicast: $multicast,
        }
    };
}

macro_rules! before_sm_90 {
    ($name:literal, $entries:expr) => {
        before_sm_90!($name, $entries, Multicast::None)
    };
    ($name:literal, $entries:expr, $multicast:expr) => {
        Module {
            name: concat!($name, "_sm_80"),
            ptx: ptx!(concat!($name, "_sm_80.ptx")),
            cubins: &[(80, cubin!(concat!($name, "_sm_80.sm_80.cubin")))],
            entries: &$entries,
            minimum_architecture: 80,
            end_architecture: 90,
            multicast: $multicast,
        }
    };
}

/// Rows of the tiles for which `split_gemm` has kernels.
pub const SPLIT_GEMM_ROWS: [u32; 5] = [16, 32, 64, 128, 256];

macro_rules! split_gemm {
    ($($matrices:literal)*) => {
        [$(
            entry(concat!("symmem_split_gemm_", $matrices, "_16"), TENSOR_GEMM_ARGUMENTS),
            entry(concat!("symmem_split_gemm_", $matrices, "_32"), TENSOR_GEMM_ARGUMENTS),
            entry(concat!("symmem_split_gemm_", $matrices, "_64"), TENSOR_GEMM_ARGUMENTS),
            entry(concat!("symmem_split_gemm_", $matrices, "_128"), TENSOR_GEMM_ARGUMENTS),
            entry(concat!("symmem_split_gemm_", $matrices, "_256"), TENSOR_GEMM_ARGUMENTS),
        )*]
    };
}

/// Kernels of module `split_gemm`: for each element type and order of `B`, one for each of [`SPLIT_GEMM_ROWS`].
pub const SPLIT_GEMM: [Entry; 20] =
    split_gemm!("f16_rows" "f16_columns" "bf16_rows" "bf16_columns");

/// Rows of the tiles of the `cluster_gemm` kernels.
pub const CLUSTER_GEMM_ROWS: u32 = 256;

/// Kernels of module `cluster_gemm`, in the order of those of [`SPLIT_GEMM`].
pub const CLUSTER_GEMM: [Entry; 4] = [
    entry("symmem_cluster_gemm_f16_rows_256", TENSOR_GEMM_ARGUMENTS),
    entry("symmem_cluster_gemm_f16_columns_256", TENSOR_GEMM_ARGUMENTS),
    entry("symmem_cluster_gemm_bf16_rows_256", TENSOR_GEMM_ARGUMENTS),
    entry(
        "symmem_cluster_gemm_bf16_columns_256",
        TENSOR_GEMM_ARGUMENTS,
    ),
];
/// Rows of the tiles for which `split_reduce` has kernels.
pub const SPLIT_REDUCE_ROWS: [u32; 4] = [16, 32, 64, 128];

macro_rules! split_reduce {
    ($($matrices:literal)*) => {
        [$(
            entry(concat!("symmem_split_reduce_", $matrices, "_16"), TENSOR_REDUCED_ARGUMENTS),
            entry(concat!("symmem_split_reduce_", $matrices, "_32"), TENSOR_REDUCED_ARGUMENTS),
            entry(concat!("symmem_split_reduce_", $matrices, "_64"), TENSOR_REDUCED_ARGUMENTS),
            entry(concat!("symmem_split_reduce_", $matrices, "_128"), TENSOR_REDUCED_ARGUMENTS),
        )*]
    };
}

/// Kernels of module `split_reduce`, as [`SPLIT_GEMM`], for each of [`SPLIT_REDUCE_ROWS`].
pub const SPLIT_REDUCE: [Entry; 16] =
    split_reduce!("f16_rows" "f16_columns" "bf16_rows" "bf16_columns");

static MODULES: [Module; 26] = [
    Module {
        name: "base",
        ptx: ptx!("base.ptx"),
        cubins: &[
            (80, cubin!("base.sm_80.cubin")),
            (90, cubin!("base.sm_90.cubin")),
        ],
        entries: &[
            entry("symmem_copy_vector", TRANSFER_ARGUMENTS),
            entry("symmem_copy_unrolled", TRANSFER_ARGUMENTS),
        ],
        minimum_architecture: 80,
        end_architecture: u32::MAX,
        multicast: Multicast::None,
    },
    Module {
        name: "latency",
        ptx: ptx!("latency.ptx"),
        cubins: &[
            (80, cubin!("latency.sm_80.cubin")),
            (90, cubin!("latency.sm_90.cubin")),
        ],
        entries: &[
            entry("symmem_latency_packet", LATENCY_ARGUMENTS),
            entry("symmem_latency_signal", LATENCY_ARGUMENTS),
        ],
        minimum_architecture: 80,
        end_architecture: u32::MAX,
        multicast: Multicast::None,
    },
    Module {
        name: "bulk",
        ptx: ptx!("bulk.ptx"),
        cubins: &[(90, cubin!("bulk.sm_90.cubin"))],
        entries: &const { dependent([entry("symmem_copy_bulk", TRANSFER_ARGUMENTS)]) },
        minimum_architecture: 90,
        end_architecture: u32::MAX,
        multicast: Multicast::None,
    },
    from_sm_90!("signals", SIGNALS),
    before_sm_90!("signals", SIGNALS),
    from_sm_90!("collective", COLLECTIVE),
    before_sm_90!("collective", COLLECTIVE),
    from_sm_90!("reduce", REDUCE),
    before_sm_90!("reduce", REDUCE),
    from_sm_90!("reduce_push", REDUCE_PUSH),
    before_sm_90!("reduce_push", REDUCE_PUSH),
    from_sm_90!("reduce_packets", REDUCE_PACKETS),
    before_sm_90!("reduce_packets", REDUCE_PACKETS),
    from_sm_90!("reduce_lamport", REDUCE_LAMPORT),
    before_sm_90!("reduce_lamport", REDUCE_LAMPORT),
    from_sm_90!("reduce_norm", REDUCE_NORM),
    before_sm_90!("reduce_norm", REDUCE_NORM),
    Module {
        name: "multicast",
        ptx: ptx!("multicast.ptx"),
        cubins: &[],
        entries: &const { dependent(MULTICAST) },
        minimum_architecture: 90,
        end_architecture: u32::MAX,
        multicast: Multicast::Hardware,
    },
    Module {
        name: "multicast_f8",
        ptx: ptx!("multicast_f8.ptx"),
        cubins: &[],
        entries: &const { dependent(MULTICAST_F8) },
        minimum_architecture: 100,
        end_architecture: 101,
        multicast: Multicast::Hardware,
    },
    from_sm_90!("multicast_emulated", MULTICAST, Multicast::Emulated),
    before_sm_90!("multicast_emulated", MULTICAST, Multicast::Emulated),
    Module {
        name: "gathered_gemm",
        ptx: ptx!("gathered_gemm.ptx"),
        cubins: &[(90, cubin!("gathered_gemm.sm_90a.cubin"))],
        entries: &[
            entry("symmem_tensor_gemm_f16_rows", TENSOR_GEMM_ARGUMENTS),
            entry("symmem_tensor_gemm_f16_columns", TENSOR_GEMM_ARGUMENTS),
            entry("symmem_tensor_gemm_bf16_rows", TENSOR_GEMM_ARGUMENTS),
            entry("symmem_tensor_gemm_bf16_columns", TENSOR_GEMM_ARGUMENTS),
        ],
        minimum_architecture: 90,
        end_architecture: 91,
        multicast: Multicast::None,
    },
    Module {
        name: "reduced_gemm",
        ptx: ptx!("reduced_gemm.ptx"),
        cubins: &[(90, cubin!("reduced_gemm.sm_90a.cubin"))],
        entries: &[
            entry("symmem_reduced_gemm_f16_rows", TENSOR_REDUCED_ARGUMENTS),
            entry("symmem_reduced_gemm_f16_columns", TENSOR_REDUCED_ARGUMENTS),
            entry("symmem_reduced_gemm_bf16_rows", TENSOR_REDUCED_ARGUMENTS),
            entry("symmem_reduced_gemm_bf16_columns", TENSOR_REDUCED_ARGUMENTS),
        ],
        minimum_architecture: 90,
        end_architecture: 91,
        multicast: Multicast::None,
    },
    Module {
        name: "split_gemm",
        ptx: ptx!("split_gemm.ptx"),
        cubins: &[(90, cubin!("split_gemm.sm_90a.cubin"))],
        entries: &const { dependent(SPLIT_GEMM) },
        minimum_architecture: 90,
        end_architecture: 91,
        multicast: Multicast::None,
    },
    Module {
        name: "cluster_gemm",
        ptx: ptx!("cluster_gemm.ptx"),
        cubins: &[(90, cubin!("cluster_gemm.sm_90a.cubin"))],
        entries: &const { dependent(CLUSTER_GEMM) },
        minimum_architecture: 90,
        end_architecture: 91,
        multicast: Multicast::None,
    },
    Module {
        name: "split_reduce",
        ptx: ptx!("split_reduce.ptx"),
        cubins: &[(90, cubin!("split_reduce.sm_90a.cubin"))],
        entries: &const { dependent(SPLIT_REDUCE) },
        minimum_architecture: 90,
        end_architecture: 91,
        multicast: Multicast::None,
    },
];

/// Bytes of dynamic shared memory that the `gathered_gemm` kernels need: a ring of four stages of both
/// operands, its barriers, a word about aborts, and room to align it.
pub const GATHERED_GEMM_SHARED_MEMORY: u32 = 4 * (128 + 256) * 64 * 2 + 64 + 8 + 1024;

/// Bytes of dynamic shared memory that the `reduced_gemm` kernels need: a ring of three stages of both operands with its
/// barriers and a word about aborts, aligned to 128 bytes; for each of two warpgroups a mailbox, which has 128 bytes of
/// barriers and for each of four warps 16 rows of 256 elements and 64 bytes; and room to align all of it.
pub const REDUCED_GEMM_SHARED_MEMORY: u32 = (3 * (128 + 256) * 64 * 2 + 48 + 8_u32)
    .next_multiple_of(128)
    + 2 * (128 + 4 * 16 * (256 * 2 + 64))
    + 1024;

/// Bytes of dynamic shared memory that the `split_gemm`, `cluster_gemm` and `split_reduce` kernels need: stages of both operands, three barriers
/// of eight bytes for each of at most twelve stages, and room to align them.
pub const SPLIT_GEMM_SHARED_MEMORY: u32 = 225 * 1024 + 3 * 8 * 12 + 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str) -> &'static Module {
        modules().iter().find(|module| module.name == name).unwrap()
    }

    fn text(module: &Module) -> String {
        String::from_utf8(module.ptx.decompress().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn an_image_is_chosen_by_architecture() {
        let cubin = |name: &str, architecture| match module(name).choose(architecture) {
            Some(Image::Cubin(found, _)) => Some(found),
            Some(Image::Ptx(_)) => Some(0),
            None => None,
        };
        assert_eq!(cubin("base", 75), None);
        assert_eq!(cubin("base", 80), Some(80));
        assert_eq!(
            cubin("base", 86),
            Some(80),
            "sm_86 runs sm_80's machine code"
        );
        assert_eq!(cubin("base", 90), Some(90));
        assert_eq!(
            cubin("base", 100),
            Some(0),
            "another major version compiles the PTX"
        );
        assert_eq!(cubin("bulk", 89), None);
        assert_eq!(cubin("bulk", 90), Some(90));
        assert_eq!(cubin("bulk", 120), Some(0));
        assert_eq!(cubin("signals_sm_80", 86), Some(80));
        assert_eq!(cubin("signals_sm_80", 90), None, "another module has them");
        assert_eq!(cubin("signals", 90), Some(90));
        assert_eq!(cubin("signals", 86), None);
        assert_eq!(cubin("gathered_gemm", 90), Some(90));
        assert_eq!(
            cubin("gathered_gemm", 100),
            None,
            "sm_90a runs nowhere else"
        );
    }

    #[test]
    fn every_architecture_finds_each_kernel_once() {
        let names_on = |architecture, multicast: &[Multicast]| -> Vec<&str> {
            modules()
                .iter()
                .filter(|module| multicast.contains(&module.multicast))
                .filter(|module| module.choose(architecture).is_some())
                .flat_map(|module| module.entries)
                .map(|entry| entry.name)
                .collect()
        };
        for architecture in [80, 86, 89, 90, 100, 120] {
            let mut names = names_on(architecture, &[Multicast::None, Multicast::Emulated]);
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "sm_{architecture}");
            let bulk = usize::from(architecture >= 90);
            let products = if architecture == 90 {
                4 + 4 + 20 + 4 + 16
            } else {
                0
            };
            let all_have = 8 + 9 + 4 + 2 * 14 + 3 + 48 + 22 + 15;
            assert_eq!(all, all_have + bulk + products, "sm_{architecture}");

            let hardware = names_on(architecture, &[Multicast::Hardware]);
            let emulated = names_on(architecture, &[Multicast::Emulated]);
            let (same, more) = hardware.split_at(hardware.len().min(9));
            match architecture {
                0..90 => assert!(hardware.is_empty()),
                _ => assert_eq!(same, emulated, "what the hardware does can be emulated"),
            }
            let floats_of_8_bits = if architecture == 100 { 2 } else { 0 };
            assert_eq!(more.len(), floats_of_8_bits, "sm_{architecture}");
        }
    }

    #[test]
    fn every_entry_is_in_its_ptx_with_its_argument_size_and_no_other() {
        for module in modules() {
            let text = text(module);
            for entry in module.entries {
                let parameter = format!("{}_param_0[{}]", entry.name, entry.argument_bytes);
                assert!(text.contains(&parameter), "{}: {parameter}", module.name);
                assert!(
                    !text.contains(&format!("{}_param_1", entry.name)),
                    "{}: one argument",
                    entry.name
                );
            }
            assert_eq!(
                text.matches(".entry").count(),
                module.entries.len(),
                "{}",
                module.name
            );
        }
    }

    #[test]
    fn only_kernels_that_wait_for_prerequisites_allow_a_dependent_launch() {
        for module in modules() {
            for part in text(module).split(".entry ").skip(1) {
                let entry = module
                    .entries
                    .iter()
                    .find(|entry| part.starts_with(&format!("{}(", entry.name)))
                    .unwrap();
                assert_eq!(
                    part.contains("griddepcontrol.wait"),
                    entry.dependent_launch,
                    "{}",
                    entry.name
                );
            }
        }
    }

    #[test]
    fn shared_memory_of_a_ring_holds_its_barriers_and_stages() {
        assert_eq!(bulk_shared_memory(8, 16384), 128 + 8 * 16384);
        assert_eq!(bulk_shared_memory(17, 1024), 256 + 17 * 1024);
    }

    #[test]
    fn ptx_names_its_architecture_and_has_one_zero_byte_at_its_end() {
        for module in modules() {
            let target = format!(".target sm_{}", module.minimum_architecture);
            let only = if module.end_architecture == module.minimum_architecture + 1 {
                "a"
            } else {
                ""
            };
            let text = text(module);
            assert!(text.contains(&format!("{target}{only}\n")));
            let version = match module.name {
                "multicast_f8" => "8.6",
                "multicast" => "8.2",
                _ => "8.0", // drivers from CUDA 12.0 on take it
            };
            assert!(text.contains(&format!(".version {version}\n")));
            assert_eq!(text.matches('\0').count(), 1, "{}", module.name);
            assert!(text.ends_with('\0'), "{}", module.name);
        }
    }

    #[test]
    fn cubins_are_aligned_elf_files_in_rising_order() {
        for module in modules() {
            assert!(
                module
                    .cubins
                    .is_sorted_by_key(|(architecture, _)| *architecture)
            );
            for (_, image) in module.cubins {
                let bytes = image.decompress().unwrap();
                assert!(bytes.starts_with(b"\x7fELF"));
                assert_eq!(bytes.as_ptr().addr() % 64, 0);
            }
        }
    }
}
