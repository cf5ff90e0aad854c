//! GEMM + reduce-scatter and + all-reduce in one kernel: the owner of a tile adds what its peer stored in its inbox.

use symmem_kernels_hip::GEMM_THREADS;

use super::element::{BF16, Element, F16};
use super::*;

/// The kernels, of two tiles: with B in rows, and in columns.
pub const KERNELS: [&str; 6] = [
    "symmem_reduced_gemm_f16_rows_64x256",
    "symmem_reduced_gemm_f16_columns_64x256",
    "symmem_reduced_gemm_f16_rows_256x64",
    "symmem_reduced_gemm_f16_columns_256x64",
    "symmem_reduced_gemm_bf16_rows_64x256",
    "symmem_reduced_gemm_bf16_columns_64x256",
];

/// Rows of the sum; the last rank has one fewer than the other.
const M: usize = 39;
const SHARD: usize = 20;
/// Two whole stages of a rank's depth, and eight elements more.
const K: usize = 72;
const STEPS: usize = K.div_ceil(32);
/// Elements of a tile.
const TILE: u64 = 64 * 256;

/// The options of a call.
struct Variant {
    kernel: &'static str,
    element: Element,
    b_in_columns: bool,
    /// Whether all ranks get the whole sum.
    all: bool,
    /// Whether sums travel as f32.
    wide: bool,
    /// Whether blocks divide the tiles among each other.
    divided: bool,
    bias: bool,
    n: usize,
}

impl Variant {
    fn of(seed: u64) -> Self {
        let kernels = KERNELS.len() as u64;
        let kernel = KERNELS[(seed % kernels) as usize];
        let bit = |number: u64| (seed / kernels) >> number & 1 == 1;
        Self {
            kernel,
            element: if kernel.contains("_bf16_") { BF16 } else { F16 },
            b_in_columns: seed % 2 == 1,
            all: seed >> 2 & 1 == 1,
            wide: bit(1),
            divided: bit(0),
            bias: seed >> 4 & 1 == 1,
            // Lines of B that lie across the depth are aligned for loads of 16 bytes, or of 8.
            n: if (seed / 5).is_multiple_of(2) { 24 } else { 20 },
        }
    }

    /// The blocks, and their quota of the steps of both tiles: none, or that of three blocks, of which the second has the end
    /// of the peer's tile and the beginning of the own one.
    fn division(&self) -> (usize, u32) {
        match self.divided {
            false => (2, 0),
            true => (3, (RANKS * STEPS).div_ceil(3) as u32),
        }
    }
}

/// Multiplies and adds up twice in the same inboxes, without anything between the calls. The seed selects the options.
pub fn sums(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    /// `ElementType::f32`
    const F32: u32 = 11;
    let variant = Variant::of(seed);
    let (n, element) = (variant.n, &variant.element);
    let (blocks, quota) = variant.division();
    let mut world = World::new(kernels, seed);
    // A tile's sums from the peer, the counters of parts, and room for the parts of two tiles.
    let travelling = TILE * if variant.wide { 4 } else { 2 };
    let parts = (blocks + RANKS) as u64 * TILE * 4;
    let inboxes = world.each("inbox", travelling + STRIDE + parts, false);
    // Words of members, a count for each block, and a word for a tile that comes from the peer, as a part and as a sum.
    let bytes = RANKS as u64 * STRIDE + (blocks as u64 + 2) * 4;
    let words = world.each("words", bytes, true);
    for rank in 0..RANKS {
        let memory = world.machine.memory();
        memory.write(words[rank], &vec![0; bytes as usize]);
        memory.write(inboxes[rank] + travelling, &[0; STRIDE as usize]);
    }
    let b_stride = if variant.b_in_columns { K } else { n };
    let rights: Vec<Vec<u8>> = (0..RANKS)
        .map(|rank| element.numbers(K * n, 5 + rank))
        .collect();
    let b = world.each("right", (K * n * 2) as u64, false);
    let bias_bytes = element.numbers(n, 3);
    let bias = world.each("bias", bias_bytes.len() as u64, false);
    for rank in 0..RANKS {
        world.machine.memory().write(b[rank], &rights[rank]);
        world.machine.memory().write(bias[rank], &bias_bytes);
    }
    let right = |rank: usize, deep: usize, column: usize| {
        let place = match variant.b_in_columns {
            true => column * K + deep,
            false => deep * n + column,
        };
        element.at(&rights[rank], place)
    };
    let mut expected = Vec::new();
    for round in 0..2 {
        let a = world.each(&format!("left {round}"), (M * K * 2) as u64, false);
        let lefts: Vec<Vec<u8>> = (0..RANKS)
            .map(|rank| element.numbers(M * K, round + 2 * rank))
            .collect();
        for (base, left) in a.iter().zip(&lefts) {
            world.machine.memory().write(*base, left);
        }
        let rows_of = |rank: usize| match variant.all {
            true => 0..M,
            false => rank * SHARD..M.min((rank + 1) * SHARD),
        };
        let most = rows_of(0).len();
        let c = world.each(&format!("sum {round}"), (most * n * 2) as u64, false);
        let results: &[u64] = if variant.all { &c } else { &[] };
        let sum = |row: usize, column: usize| {
            let of_rank = |rank: usize| {
                let products = (0..K).map(|deep| {
                    element.at(&lefts[rank], row * K + deep) * right(rank, deep, column)
                });
                products.sum::<f32>()
            };
            let bias = if variant.bias {
                element.at(&bias_bytes, column)
            } else {
                0.0
            };
            // What comes from the other rank was rounded on its way, unless it is f32.
            let owner = row / SHARD;
            let sent = of_rank(1 - owner);
            let sent = if variant.wide {
                sent
            } else {
                element.rounded(sent)
            };
            bias + of_rank(owner) + sent
        };
        for rank in 0..RANKS {
            let arguments = Arguments::default()
                .group(world.watch, &[0; RANKS], 0, rank)
                .table(&inboxes, 0)
                .table(&words, 0)
                .table(results, 0)
                .longs(&[
                    a[rank],
                    b[rank],
                    c[rank],
                    if variant.bias { bias[rank] } else { 0 },
                ])
                .gemm_shape(
                    [M, n, K, b_stride],
                    element.number,
                    variant.b_in_columns,
                    variant.bias,
                )
                .longs(&[SHARD as u64])
                .words(&[
                    1,
                    u32::from(variant.all),
                    if variant.wide { F32 } else { element.number },
                    quota,
                ]);
            let threads = GEMM_THREADS as usize;
            world.launch(rank, variant.kernel, blocks, threads, arguments);
            let numbers = rows_of(rank).flat_map(|row| (0..n).map(move |column| (row, column)));
            let bytes = numbers.flat_map(|(row, column)| (element.narrow)(sum(row, column)));
            expected.push((c[rank], bytes.collect()));
        }
    }
    world.run(&expected)
}
