//! C = A · B with A sharded by columns: one kernel loads the peers' shards as it needs them.
//!
//! `symmem run -n 8 -- target/debug/examples/all_gather_gemm_pull`

use half::bf16;
use symmem::backend::abi::CAPABILITY_LAUNCH;
use symmem::{Error, GemmAlgorithm, GemmOptions, GemmShape, Matrix, Operands, Sharding};

/// Elements are small integers, so f32 sums of their products are exact in any order.
fn a(row: usize, column: usize) -> f32 {
    ((row * 5 + column * 3) % 7) as f32 - 3.0
}

fn b(rank: usize, row: usize, column: usize) -> f32 {
    ((rank + row * 2 + column * 11) % 5) as f32 - 2.0
}

fn main() -> symmem::Result<()> {
    let communicator = symmem::init()?;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let on_gpu = communicator.capabilities().flags & CAPABILITY_LAUNCH != 0;
    let (m, n, k) = if on_gpu {
        (256, 3584, 8192)
    } else {
        (20, 24, 50)
    };

    let shape = GemmShape {
        sharding: Sharding::Columns,
        ..GemmShape::new(m, n, k)
    };
    let options = GemmOptions {
        algorithm: GemmAlgorithm::Pull,
        ..GemmOptions::default()
    };
    // Everything that can block happens here, once; a call only enqueues.
    let operation = match communicator.all_gather_gemm::<bf16>(&shape, &options) {
        Err(Error::Unsupported { .. }) => {
            println!("all_gather_gemm has no `Pull` kernel on this device: skipped");
            return communicator.finalize().map(drop);
        }
        operation => operation?,
    };

    let stream = communicator.stream()?;
    let shard = communicator.allocate::<bf16>(&[shape.shard_elements(world)])?;
    let weights = communicator.allocate::<bf16>(&[k, n])?;
    let output = communicator.allocate::<bf16>(&[m, n])?;
    // The last ranks have fewer columns if the world size does not divide `k`.
    let width = k.div_ceil(world);
    let columns = (rank * width).min(k)..((rank + 1) * width).min(k);
    let of_row = |row| {
        columns
            .clone()
            .map(move |column| bf16::from_f32(a(row, column)))
    };
    let own: Vec<bf16> = (0..m).flat_map(of_row).collect();
    shard.write(&stream, 0, &own)?;
    let of_row = |row| (0..n).map(move |column| bf16::from_f32(b(rank, row, column)));
    let all: Vec<bf16> = (0..k).flat_map(of_row).collect();
    weights.write(&stream, 0, &all)?;

    let operands = Operands {
        a: shard.all(),
        b: Matrix::of(&weights, k, n)?,
        c: Matrix::of(&output, m, n)?,
        bias: None,
        scale: None,
        gathered: None,
    };
    stream.all_gather_gemm(&operation, &operands)?;

    // Checks every seventh row and the last one.
    let mut found = vec![bf16::ZERO; n];
    for row in (0..m).step_by(7).chain([m - 1]) {
        output.read(&stream, row * n, &mut found)?;
        for (column, found) in found.iter().enumerate() {
            let sum: f32 = (0..k).map(|i| a(row, i) * b(rank, i, column)).sum();
            assert_eq!(*found, bf16::from_f32(sum), "C[{row}, {column}]");
        }
    }
    println!("rank {rank} of {world}: C[{m}, {n}] is right");

    drop(operation);
    shard.free()?;
    weights.free()?;
    output.free()?;
    communicator.finalize()?;
    Ok(())
}
