//! Fused all-gather + GEMM: a block that waited for its word loads what a mover block stored.

use half::f16;
use symmem_kernels_hip::{GATHERED_GEMM_THREADS, GemmTile, Target};

use super::*;

/// The kernels by order of B, for small tiles and the largest.
pub const KERNELS: [[&str; 2]; 2] = [
    [
        "symmem_gathered_gemm_f16_rows_64x256",
        "symmem_gathered_gemm_f16_columns_64x256",
    ],
    [
        "symmem_gathered_gemm_f16_rows_256x256",
        "symmem_gathered_gemm_f16_columns_256x256",
    ],
];

/// Returns the bytes of dynamic shared memory of a kernel: none if it is not one of these.
pub fn shared_memory(kernel: &str, target: Target) -> usize {
    let place = KERNELS.iter().position(|pair| pair.contains(&kernel));
    let tile = |large: usize| {
        GemmTile::ALL
            .into_iter()
            .find(|tile| tile.rows == [64, 256][large])
    };
    place
        .and_then(tile)
        .map_or(0, |tile| tile.shared_memory(target) as usize)
}

/// Returns small whole numbers, whose products and sums are exact in f16.
fn halves(count: usize, salt: usize) -> Vec<u8> {
    let numbers = (0..count).map(|at| f16::from_f32(((at * 5 + salt * 3) % 7) as f32 - 3.0));
    numbers.flat_map(f16::to_le_bytes).collect()
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]).to_f32()
}

/// The options of a GEMM.
struct Variant {
    kernel: &'static str,
    b_in_columns: bool,
    /// Whether A is sharded by columns.
    by_columns: bool,
    /// Whether blocks push their own shard to the other rank, instead of pulling the other's.
    push: bool,
}

impl Variant {
    fn of(seed: u64) -> Self {
        let bit = |number: u64| seed >> number & 1 == 1;
        Self {
            kernel: KERNELS[usize::from(seed % 8 == 3 || seed % 8 == 5)][usize::from(bit(1))],
            b_in_columns: bit(1),
            by_columns: bit(2),
            push: bit(0),
        }
    }
}

/// Multiplies an A that is sharded over both ranks: one block moves A, the other multiplies the tiles that have
/// arrived. It runs twice in the same memory. The seed selects the options.
pub fn product(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    // Some rows and columns of a tile, and a depth of whole stages and eight elements more, in each shard of columns,
    // too.
    const M: usize = 10;
    const N: usize = 20;
    const K: usize = 208;
    /// `ElementType::f16`
    const F16: u32 = 9;
    let variant = Variant::of(seed);
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
    let right = halves(K * N, 5);
    let b = world.each("right", right.len() as u64, false);
    for base in &b {
        world.machine.memory().write(*base, &right);
    }
    let b_stride = if variant.b_in_columns { K } else { N };
    let right = |deep: usize, column: usize| {
        let place = if variant.b_in_columns {
            column * K + deep
        } else {
            deep * N + column
        };
        half_at(&right, place)
    };
    let mut expected = Vec::new();
    for round in 0..2 {
        let shards = &all_shards[round % 2];
        let fresh = world.each(
            &format!("fresh {round}"),
            (rows * columns * 2) as u64,
            false,
        );
        let c = world.each(&format!("product {round}"), (M * N * 2) as u64, false);
        let left = halves(M * K, round);
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
        for at in 0..M * N {
            let (row, column) = (at / N, at % N);
            let products = (0..K).map(|deep| half_at(&left, row * K + deep) * right(deep, column));
            result.extend(f16::from_f32(products.sum()).to_le_bytes());
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
                .longs(&[world.signals[rank] + EPOCH, b[rank], c[rank], 0])
                .longs(&[M, N, K, K, b_stride, N].map(|side| side as u64))
                .words(&[F16, 1 + u32::from(variant.b_in_columns), 0, 0])
                // One chunk, moved by one block; this rank's own shard is not kept.
                .longs(&[shard as u64, 256])
                .words(&[
                    1,
                    1 + u32::from(variant.by_columns),
                    2 + u32::from(variant.push),
                ])
                .words(&[1, 0, 0]);
            world.launch(
                rank,
                variant.kernel,
                2,
                GATHERED_GEMM_THREADS as usize,
                arguments,
            );
            expected.push((c[rank], result.clone()));
        }
    }
    world.run(&expected)
}
