//! symmem's kernels for AMD GPUs, compiled ahead of time.
//!
//! The sources are `device/entries/*.h`, shared with the kernels for other GPUs. `cargo xtask kernels build --only hip`
//! compiles them with clang, and `cargo xtask kernels check` proves that sources and artefacts match. Building
//! a program with this crate needs neither a compiler nor ROCm.
//!
//! Every kernel takes a [`Launch`] followed by one struct by value, in the layout of `symmem/abi.h`. There are no
//! hidden arguments. Tests of `xtask` read all this back from the code objects (`xtask/src/kernels/hip/tests.rs`).
//!
//! Each code object is embedded compressed, as it is in the repository. [`Module::object`] returns the one for a
//! device; [`CompressedImage::decompress`] or [`decompress_all`] turns it into the image that the runtime loads.

pub use symmem_kernels_image::{AlignedBytes, CompressedImage, CorruptImage, decompress_all};

/// A GPU architecture with code objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// MI200 series.
    Gfx90a,
    /// MI300 series.
    Gfx942,
    /// MI350 series.
    Gfx950,
}

impl Target {
    /// All targets.
    pub const ALL: [Self; 3] = [Self::Gfx90a, Self::Gfx942, Self::Gfx950];

    /// Those with matrix instructions for 8-bit floats.
    pub const WITH_MATRICES_OF_F8: [Self; 2] = [Self::Gfx942, Self::Gfx950];

    /// Returns the name that compiler and runtime use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gfx90a => "gfx90a",
            Self::Gfx942 => "gfx942",
            Self::Gfx950 => "gfx950",
        }
    }

    /// Returns the target of a device from its `gcnArchName`, such as `gfx942:sramecc+:xnack-`; `None` if there
    /// is none. The code objects run with each feature on or off.
    pub fn of(architecture: &str) -> Option<Self> {
        let name = architecture.split(':').next().unwrap_or_default();
        Self::ALL.into_iter().find(|target| target.name() == name)
    }
}

/// The first 16 bytes of a kernel's arguments; [`Entry::argument_bytes`] more follow directly
/// (`symmem::arch::Launch` in `symmem/arch_hip.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks of the grid, which is one-dimensional.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Nanoseconds per tick of the device's constant clock: 1000000 divided by
    /// `hipDeviceAttributeWallClockRate` in kHz (10 on MI300, 40 on MI200).
    pub tick_ns: u32,
    /// Zero.
    pub reserved: u32,
}

/// Kernels that are loaded together.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// Name: `base`, `signals`, …
    pub name: &'static str,
    /// One code object for each of [`Target::ALL`], in that order.
    pub objects: [CompressedImage; 3],
    /// Kernels of the module, of any target.
    pub entries: &'static [Entry],
}

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Symbol.
    pub name: &'static str,
    /// Size in bytes of the struct behind the [`Launch`].
    pub argument_bytes: u32,
    /// Most threads of a block.
    pub threads: u32,
    /// The targets whose code object has the kernel.
    pub targets: &'static [Target],
}

impl Entry {
    /// The same for some targets only.
    const fn only(self, targets: &'static [Target]) -> Self {
        Self { targets, ..self }
    }

    /// Returns the size of all arguments in bytes.
    pub const fn kernarg_bytes(&self) -> u32 {
        size_of::<Launch>() as u32 + self.argument_bytes
    }
}

impl Module {
    /// Returns the kernels of a target's code object.
    pub fn entries_of(&self, target: Target) -> impl Iterator<Item = &'static Entry> {
        let entries = self.entries.iter();
        entries.filter(move |entry| entry.targets.contains(&target))
    }

    /// Returns the code object of a target, to be decompressed for `hipModuleLoadData`.
    pub const fn object(&self, target: Target) -> CompressedImage {
        self.objects[target as usize]
    }
}

/// Returns all modules.
pub fn modules() -> &'static [Module] {
    &MODULES
}

macro_rules! object {
    ($name:literal, $target:literal) => {
        CompressedImage::machine_code(include_bytes!(concat!(
            "../artefacts/",
            $name,
            ".",
            $target,
            ".co.zst"
        )))
    };
}

macro_rules! module {
    ($name:literal, $entries:expr) => {
        Module {
            name: $name,
            objects: [
                object!($name, "gfx90a"),
                object!($name, "gfx942"),
                object!($name, "gfx950"),
            ],
            entries: &$entries,
        }
    };
}

const fn entry(name: &'static str, argument_bytes: u32, threads: u32) -> Entry {
    Entry {
        name,
        argument_bytes,
        threads,
        targets: &Target::ALL,
    }
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
const REDUCE_PACKET_ARGUMENTS: u32 = GROUP + 3 * ADDRESSES + 16;
const REDUCE_LAMPORT_ARGUMENTS: u32 = GROUP + 2 * ADDRESSES + 88;
const REDUCE_NORM_ARGUMENTS: u32 = REDUCE_LAMPORT_ARGUMENTS + 72;
const MOVE_LAMPORT_ARGUMENTS: u32 = GROUP + 3 * ADDRESSES + 80;
const GATHERED_GEMM_ARGUMENTS: u32 = GROUP + 3 * ADDRESSES + 168;
const REDUCED_GEMM_ARGUMENTS: u32 = GROUP + 3 * ADDRESSES + 120;

macro_rules! each_element {
    ($family:literal, $bytes:expr) => {
        each_element!($family, $bytes, "i8" "u8" "i16" "u16" "i32" "u32" "i64" "u64" "f16" "bf16" "f32" "f64"
            "f8_e4m3" "f8_e5m2")
    };
    ($family:literal, $bytes:expr, $($element:literal)*) => {
        each_element!($family, $bytes, 512, $($element)*)
    };
    ($family:literal, $bytes:expr, $threads:literal, $($element:literal)*) => {
        [$(entry(concat!($family, "_", $element), $bytes, $threads)),*]
    };
}

/// The part of `C` that a block of a GEMM kernel computes at a time (`symmem/tile_gemm.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmTile {
    /// Rows.
    pub rows: u32,
    /// Columns.
    pub columns: u32,
}

impl GemmTile {
    /// The tiles for which there are kernels, the largest first. The kernels' names end in rows and columns:
    /// `…_256x128`.
    pub const ALL: [Self; 5] = [
        Self::of(256, 256),
        Self::of(128, 256),
        Self::of(256, 128),
        Self::of(64, 256),
        Self::of(256, 64),
    ];

    const fn of(rows: u32, columns: u32) -> Self {
        Self { rows, columns }
    }

    /// Returns the bytes of dynamic shared memory that the kernels need: two stages of the operands, or four on gfx950,
    /// where loads go to shared memory directly. A line of an operand has 32 elements (`symmem/gemm_feed.h`).
    pub const fn shared_memory(self, target: Target) -> u32 {
        let stages = match target {
            Target::Gfx90a | Target::Gfx942 => 2,
            Target::Gfx950 => 4,
        };
        stages * (self.rows + self.columns) * 32 * 2
    }
}

/// Threads of a block of the `gathered_gemm` and `reduced_gemm` kernels.
pub const GEMM_THREADS: u32 = 512;

/// The kernels of a family with each tile, for the targets that have those matrices.
macro_rules! each_tile {
    ($family:literal, $bytes:expr, $($matrices:literal on $targets:expr),*) => {
        [$(
            each_tile!(entry $family, $bytes, $matrices, "256x256").only($targets),
            each_tile!(entry $family, $bytes, $matrices, "128x256").only($targets),
            each_tile!(entry $family, $bytes, $matrices, "256x128").only($targets),
            each_tile!(entry $family, $bytes, $matrices, "64x256").only($targets),
            each_tile!(entry $family, $bytes, $matrices, "256x64").only($targets),
        )*]
    };
    (entry $family:literal, $bytes:expr, $matrices:literal, $tile:literal) => {
        entry(
            concat!($family, "_", $matrices, "_", $tile),
            $bytes,
            GEMM_THREADS,
        )
    };
}

static MODULES: [Module; 11] = [
    module!(
        "base",
        [
            entry("symmem_copy_vector", TRANSFER_ARGUMENTS, 1024),
            entry("symmem_copy_unrolled", TRANSFER_ARGUMENTS, 1024),
        ]
    ),
    module!(
        "latency",
        [
            entry("symmem_latency_packet", LATENCY_ARGUMENTS, 1024),
            entry("symmem_latency_signal", LATENCY_ARGUMENTS, 1024),
        ]
    ),
    module!(
        "signals",
        [
            entry("symmem_signal", SIGNAL_TARGET, 1024),
            entry("symmem_wait", SIGNAL_WAIT, 1024),
            entry("symmem_step", STEP_ARGUMENTS, 1024),
            entry("symmem_word_update", WORD_OPERATION, 1024),
            entry("symmem_word_wait", WORD_WAIT, 1024),
            entry("symmem_barrier", BARRIER, 1024),
        ]
    ),
    module!(
        "collective",
        [
            entry("symmem_move", MOVE_ARGUMENTS, 512),
            entry("symmem_swap", MOVE_ARGUMENTS, 512),
            entry("symmem_move_pieces", PIECE_ARGUMENTS, 512),
            entry("symmem_move_packets", PACKET_ARGUMENTS, 512),
            entry("symmem_move_packets_few", PACKET_ARGUMENTS, 512),
            entry("symmem_move_packets_pair1", PACKET_ARGUMENTS, 512),
            entry("symmem_move_packets_pair2", PACKET_ARGUMENTS, 512),
            entry("symmem_move_packets_pair4", PACKET_ARGUMENTS, 512),
            entry("symmem_move_lamport", MOVE_LAMPORT_ARGUMENTS, 512),
            entry("symmem_move_lamport_rooted", MOVE_LAMPORT_ARGUMENTS, 512),
            entry("symmem_move_lamport_four", MOVE_LAMPORT_ARGUMENTS, 512),
            entry("symmem_move_lamport_eight", MOVE_LAMPORT_ARGUMENTS, 512),
            entry("symmem_move_lamport_few", MOVE_LAMPORT_ARGUMENTS, 512),
            entry("symmem_move_lamport_pair1", MOVE_LAMPORT_ARGUMENTS, 512),
            entry("symmem_move_lamport_pair2", MOVE_LAMPORT_ARGUMENTS, 512),
            entry("symmem_move_lamport_pair4", MOVE_LAMPORT_ARGUMENTS, 512),
            entry("symmem_exchange", EXCHANGE_ARGUMENTS, 512),
        ]
    ),
    module!("reduce", each_element!("symmem_reduce", REDUCE_ARGUMENTS)),
    module!(
        "reduce_push",
        [
            entry("symmem_reduce_push_f16", REDUCE_PUSH_ARGUMENTS, 1024),
            entry("symmem_reduce_push_bf16", REDUCE_PUSH_ARGUMENTS, 1024),
            entry("symmem_reduce_push_f32", REDUCE_PUSH_ARGUMENTS, 1024),
        ]
    ),
    module!(
        "reduce_packets",
        each_element!("symmem_reduce_packets", REDUCE_PACKET_ARGUMENTS)
    ),
    module!(
        "reduce_lamport",
        each_element!("symmem_reduce_lamport", REDUCE_LAMPORT_ARGUMENTS,
            "f16" "bf16" "f32" "f8_e4m3" "f8_e5m2" "few_f16" "few_bf16" "few_f32" "pair1_f16" "pair1_bf16"
            "pair1_f32" "pair2_f16" "pair2_bf16" "pair2_f32" "pair4_f16" "pair4_bf16" "pair4_f32"
            "two_shot_f16" "two_shot_bf16" "two_shot_f32" "two_shot_f8_e4m3" "two_shot_f8_e5m2" "two_shot_few_f16"
            "two_shot_few_bf16" "two_shot_few_f32" "rooted_f16" "rooted_bf16" "rooted_f32" "rooted_f8_e4m3"
            "rooted_f8_e5m2" "four_f16" "four_bf16" "four_f32" "eight_f16" "eight_bf16" "eight_f32"
            "scatter_four_f16" "scatter_four_bf16" "scatter_four_f32" "scatter_eight_f16" "scatter_eight_bf16"
            "scatter_eight_f32" "two_shot_four_f16" "two_shot_four_bf16" "two_shot_four_f32" "two_shot_eight_f16"
            "two_shot_eight_bf16" "two_shot_eight_f32")
    ),
    module!(
        "reduce_norm",
        each_element!("symmem_reduce_norm", REDUCE_NORM_ARGUMENTS, 1024,
    "f16" "bf16" "f32" "pair_f16" "pair_bf16" "pair_plain_f16" "pair_plain_bf16" "pair_narrow_f16"
    "pair_narrow_bf16" "few_f16" "few_bf16" "few_plain_f16" "few_plain_bf16" "few_narrow_f16" "few_narrow_bf16"
    "shares_f16" "shares_bf16" "shares_f32" "pair_shares_f16" "pair_shares_bf16" "few_shares_f16" "few_shares_bf16")
    ),
    module!(
        "gathered_gemm",
        each_tile!("symmem_gathered_gemm", GATHERED_GEMM_ARGUMENTS,
            "f16_rows" on &Target::ALL, "f16_columns" on &Target::ALL,
            "bf16_rows" on &Target::ALL, "bf16_columns" on &Target::ALL,
            "f8_e4m3_columns" on &Target::WITH_MATRICES_OF_F8)
    ),
    module!(
        "reduced_gemm",
        each_tile!("symmem_reduced_gemm", REDUCED_GEMM_ARGUMENTS,
            "f16_rows" on &Target::ALL, "f16_columns" on &Target::ALL,
            "bf16_rows" on &Target::ALL, "bf16_columns" on &Target::ALL)
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_found_by_the_runtimes_name_of_the_device() {
        assert_eq!(Target::of("gfx942:sramecc+:xnack-"), Some(Target::Gfx942));
        assert_eq!(Target::of("gfx90a"), Some(Target::Gfx90a));
        assert_eq!(Target::of("gfx950:sramecc+"), Some(Target::Gfx950));
        assert_eq!(Target::of("gfx9"), None);
        assert_eq!(Target::of("gfx1100"), None);
        assert_eq!(Target::of(""), None);
    }

    #[test]
    fn a_launch_is_sixteen_bytes_so_that_arguments_keep_their_alignment() {
        assert_eq!(size_of::<Launch>(), 16);
        assert_eq!(std::mem::offset_of!(Launch, threads), 4);
        assert_eq!(std::mem::offset_of!(Launch, tick_ns), 8);
    }

    #[test]
    fn objects_are_aligned_elf_files_for_their_target() {
        // Machine flags of the ELF header: LLVM's "User Guide for AMDGPU Backend", ELF header.
        let machine = |target| match target {
            Target::Gfx90a => 0x3f,
            Target::Gfx942 => 0x4c,
            Target::Gfx950 => 0x4f,
        };
        for module in modules() {
            for target in Target::ALL {
                let bytes = module.object(target).decompress().unwrap();
                assert!(bytes.starts_with(b"\x7fELF"));
                assert_eq!(bytes.as_ptr().addr() % 64, 0);
                assert_eq!(bytes[7], 64, "ELFOSABI_AMDGPU_HSA");
                assert_eq!(bytes[8], 3, "code object version 5");
                assert_eq!(bytes[18..20], 224u16.to_le_bytes(), "EM_AMDGPU");
                assert_eq!(bytes[48], machine(target), "{}", module.name);
            }
        }
    }

    #[test]
    fn no_kernel_is_in_two_modules() {
        let mut names: Vec<_> = modules()
            .iter()
            .flat_map(|module| module.entries)
            .map(|entry| entry.name)
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), all), (173, 173));
    }
}
