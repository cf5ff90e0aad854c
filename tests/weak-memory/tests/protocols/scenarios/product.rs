//! Fused all-gather + GEMM: a block that waited for its word loads what a mover block stored.

use symmem_kernels_hip::{GEMM_THREADS, GemmTile, Target};

use super::element::{BF16, Element, F8, F16};
use super::*;

/// A copy, a barrier, and the products of every tile: with B in rows, in columns, and in columns with the other element type.
pub const KERNELS: [&str; 17] = [
    "symmem_copy_vector",
    "symmem_barrier",
    "symmem_gathered_gemm_f16_rows_64x256",
    "symmem_gathered_gemm_f16_columns_64x256",
    "symmem_gathered_gemm_bf16_columns_64x256",
    "symmem_gathered_gemm_f16_rows_256x64",
    "symmem_gathered_gemm_f16_columns_256x64",
    "symmem_gathered_gemm_bf16_columns_256x64",
    "symmem_gathered_gemm_f16_rows_128x256",
    "symmem_gathered_gemm_f16_columns_128x256",
    "symmem_gathered_gemm_bf16_columns_128x256",
    "symmem_gathered_gemm_f16_rows_256x128",
    "symmem_gathered_gemm_f16_columns_256x128",
    "symmem_gathered_gemm_bf16_columns_256x128",
    "symmem_gathered_gemm_f16_rows_256x256",
    "symmem_gathered_gemm_f16_columns_256x256",
    "symmem_gathered_gemm_bf16_columns_256x256",
];

const PRODUCTS: &[&str] = KERNELS.split_at(2).1;

/// The same for 8-bit floats.
pub const KERNELS_OF_F8: [&str; 7] = [
    "symmem_copy_vector",
    "symmem_barrier",
    "symmem_gathered_gemm_f8_e4m3_columns_64x256",
    "symmem_gathered_gemm_f8_e4m3_columns_256x64",
    "symmem_gathered_gemm_f8_e4m3_columns_128x256",
    "symmem_gathered_gemm_f8_e4m3_columns_256x128",
    "symmem_gathered_gemm_f8_e4m3_columns_256x256",
];

const PRODUCTS_OF_F8: &[&str] = KERNELS_OF_F8.split_at(2).1;

/// Returns the bytes of dynamic shared memory of a kernel: none if it is no GEMM.
pub fn shared_memory(kernel: &str, target: Target) -> usize {
    let has = |tile: &GemmTile| kernel.ends_with(&format!("_{}x{}", tile.rows, tile.columns));
    let tile = GemmTile::ALL.into_iter().find(has);
    tile.map_or(0, |tile| tile.shared_memory(target) as usize)
}

/// The options of a GEMM.
struct Variant {
    kernel: &'static str,
    element: Element,
    b_in_columns: bool,
    /// Whether A is sharded by columns.
    by_columns: bool,
    /// Whether blocks push their own shard to the other rank, instead of pulling the other's.
    push: bool,
    /// Whether blocks divide the tiles among each other.
    divided: bool,
    bias: bool,
    /// The factor of the products, if there is one.
    scale: Option<f32>,
    /// Whether there are NaN in two lines of A and two of B: in the first stage, in the third, and where the last is not whole.
    nans: bool,
}

impl Variant {
    fn of(seed: u64) -> Self {
        let bit = |number: u64| seed >> number & 1 == 1;
        let tile = (seed % 5) as usize;
        let b_in_columns = bit(1);
        let is_bf16 = b_in_columns && (seed / 3) % 2 == 1;
        Self {
            kernel: PRODUCTS[3 * tile + usize::from(b_in_columns) + usize::from(is_bf16)],
            element: if is_bf16 { BF16 } else { F16 },
            b_in_columns,
            by_columns: bit(2),
            push: bit(0),
            divided: bit(4),
            bias: (seed / 7) % 2 == 1,
            scale: None,
            nans: false,
        }
    }

    fn of_f8(seed: u64) -> Self {
        Self {
            kernel: PRODUCTS_OF_F8[(seed % 5) as usize],
            element: F8,
            b_in_columns: true,
            scale: ((seed / 3) % 2 == 1).then_some(-0.5),
            nans: (seed / 11) % 2 == 1,
            ..Self::of(seed)
        }
    }

    /// The blocks that multiply, and their quota of the steps of `K`: none, or that of three blocks. Of two tiles,
    /// one for each shard of rows, the second block has the end of one and the beginning of the other.
    fn division(&self) -> (usize, u32) {
        let tiles = if self.by_columns { 1 } else { RANKS };
        match self.divided {
            false => (1, 0),
            true => (3, (tiles * STEPS).div_ceil(3) as u32),
        }
    }
}

/// Returns each product's kernel and the first seed that runs it.
pub fn a_seed_of_each_kernel() -> Vec<(&'static str, u64)> {
    a_seed_of_each(PRODUCTS, Variant::of)
}

/// The same of 8-bit floats.
pub fn a_seed_of_each_kernel_of_f8() -> Vec<(&'static str, u64)> {
    a_seed_of_each(PRODUCTS_OF_F8, Variant::of_f8)
}

fn a_seed_of_each(
    kernels: &[&'static str],
    variant: fn(u64) -> Variant,
) -> Vec<(&'static str, u64)> {
    let of = |kernel: &&'static str| {
        let mut seeds = 0..1000;
        let seed = seeds.find(|seed| variant(*seed).kernel == *kernel);
        (*kernel, seed.expect("the options select every kernel"))
    };
    kernels.iter().map(of).collect()
}

/// A depth of whole stages and eight elements more, in each shard of columns, too.
const K: usize = 208;
/// Steps of it.
const STEPS: usize = K.div_ceil(32);

/// Multiplies an A that is sharded over both ranks: one block moves A, the others multiply the tiles that have
/// arrived. It runs twice in the same memory. The seed selects the options.
pub fn product(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    multiply(kernels, seed, &Variant::of(seed))
}

/// The same of 8-bit floats, twice as deep.
pub fn product_of_f8(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    multiply(kernels, seed, &Variant::of_f8(seed))
}

fn multiply(kernels: &Kernels, seed: u64, variant: &Variant) -> Result<(), Error> {
    // Some rows and columns of a tile.
    const M: usize = 10;
    let (element, output) = (&variant.element, &variant.element.output());
    // Lines of B that lie across the depth are aligned for loads of 16 bytes, or of 8.
    let n = if seed & 8 == 0 { 24 } else { 20 };
    let (rows, columns) = if variant.by_columns {
        (M, K / RANKS)
    } else {
        (M / RANKS, K)
    };
    let mut world = World::new(kernels, seed);
    // In turn: when the next call begins, the other rank may still load this rank's shard of the call before.
    let all_shards = ["even shard", "odd shard"]
        .map(|name| world.each(name, (rows * columns * 2) as u64, false));
    let gathered = world.each("gathered", (M * K * 2) as u64, false);
    let arrivals = world.signals.iter().map(|own| own + EPOCH + STRIDE);
    let arrivals: Vec<u64> = arrivals.collect();
    let mut right = element.numbers(K * n, 5);
    if variant.nans {
        right[2 * (2 * K - 1)] = 0x7f;
        right[2 * (2 * K + 75)] = 0xff;
    }
    let b = world.each("right", right.len() as u64, false);
    for base in &b {
        world.machine.memory().write(*base, &right);
    }
    let bias_bytes = output.numbers(n, 3);
    let bias = world.each("bias", bias_bytes.len() as u64, false);
    for base in &bias {
        world.machine.memory().write(*base, &bias_bytes);
    }
    let (computing, quota) = variant.division();
    // Counters of the blocks, and room for the parts of two tiles.
    let places = match variant.divided {
        true => (computing + RANKS) as u64 * 256 * 256 * 4,
        false => 0,
    };
    let partials = world.each("partials", STRIDE + places, false);
    for base in &partials {
        world.machine.memory().write(*base, &[0; STRIDE as usize]);
    }
    let scale = world.each("scale", 4, false);
    for base in &scale {
        let number = variant.scale.unwrap_or(f32::NAN);
        world.machine.memory().write(*base, &number.to_le_bytes());
    }
    let b_stride = if variant.b_in_columns { K } else { n };
    let place_of_right = |deep: usize, column: usize| match variant.b_in_columns {
        true => column * K + deep,
        false => deep * n + column,
    };
    let mut expected = Vec::new();
    for round in 0..2 {
        let shards = &all_shards[round % 2];
        let fresh = world.each(
            &format!("fresh {round}"),
            (rows * columns * 2) as u64,
            false,
        );
        let c = world.each(&format!("product {round}"), (M * n * 2) as u64, false);
        let mut left = element.numbers(M * K, round);
        if variant.nans {
            left[2 * (3 * K + 17) + 1] = 0xff;
            left[2 * (5 * K + 70)] = 0x7f;
        }
        for (rank, base) in fresh.iter().enumerate() {
            let corner = if variant.by_columns {
                columns
            } else {
                rows * K
            } * rank;
            let lines = (0..rows).map(|row| &left[(corner + row * K) * 2..][..columns * 2]);
            let own = lines.collect::<Vec<_>>().concat();
            world.machine.memory().write(*base, &own);
        }
        let mut result = Vec::new();
        for at in 0..M * n {
            let (row, column) = (at / n, at % n);
            let products = (0..K).map(|deep| {
                let right = (&right[..], place_of_right(deep, column));
                element.product((&left, row * K + deep), right)
            });
            let bias = if variant.bias {
                output.at(&bias_bytes, column)
            } else {
                0.0
            };
            let product = products.sum::<f32>() * variant.scale.unwrap_or(1.0);
            result.extend((output.narrow)(product + bias));
        }
        for rank in 0..RANKS {
            world.copy(
                rank,
                shards[rank],
                fresh[rank],
                rows * columns * 2,
                NO_SIGNAL,
            );
            world.meet(rank);
            let shard = if variant.by_columns { columns } else { rows };
            let arguments = Arguments::default()
                .group(world.watch, &[0; RANKS], 0, rank)
                .table(shards, 0)
                .table(&gathered, 0)
                .table(&arrivals, 0)
                .longs(&[
                    world.signals[rank] + EPOCH,
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
                // One chunk, moved by one block; this rank's own shard is not kept.
                .longs(&[shard as u64, 256])
                .words(&[
                    1,
                    1 + u32::from(variant.by_columns),
                    2 + u32::from(variant.push),
                ])
                .words(&[1, 0, 0])
                .longs(&[partials[rank], 0])
                .words(&[quota, 0])
                .longs(&[variant.scale.map_or(0, |_| scale[rank])]);
            world.launch(
                rank,
                variant.kernel,
                1 + computing,
                GEMM_THREADS as usize,
                arguments,
            );
            expected.push((c[rank], result.clone()));
        }
    }
    world.run(&expected)
}
