//! C = A · B with A sharded by rows: each rank pushes its shard to the peers, chunk by chunk, and one kernel
//! multiplies every chunk once it has arrived. The call is captured and replayed with a new A each time.
//!
//! `symmem run -n 8 -- target/debug/examples/all_gather_gemm_push`

use half::bf16;
use symmem::backend::abi::CAPABILITY_LAUNCH;
use symmem::{Error, GemmAlgorithm, GemmOptions, GemmShape, Matrix, Operands};

const REPLAYS: usize = 3;

/// Elements are small integers, so f32 sums of their products are exact in any order. Each replay has a new A.
fn a(replay: usize, row: usize, column: usize) -> f32 {
    ((replay + row * 5 + column * 3) % 7) as f32 - 3.0
}

fn b(rank: usize, row: usize, column: usize) -> f32 {
    ((rank + row * 2 + column * 11) % 5) as f32 - 2.0
}

fn main() -> symmem::Result<()> {
    let communicator = symmem::init()?;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let on_gpu = communicator.capabilities().flags & CAPABILITY_LAUNCH != 0;
    let (m, n, k) = if on_gpu {
        (4096, 1024, 2048)
    } else {
        (50, 24, 20)
    };

    let shape = GemmShape::new(m, n, k);
    let options = GemmOptions {
        algorithm: GemmAlgorithm::Push,
        ..GemmOptions::default()
    };
    // Everything that can block happens here, once; a call only enqueues.
    let operation = match communicator.all_gather_gemm::<bf16>(&shape, &options) {
        Err(Error::Unsupported { .. }) => {
            println!("all_gather_gemm has no `Push` kernel on this device: skipped");
            return communicator.finalize().map(drop);
        }
        operation => operation?,
    };

    let mut stream = communicator.stream()?;
    let shard = communicator.allocate::<bf16>(&[shape.shard_elements(world)])?;
    let weights = communicator.allocate::<bf16>(&[k, n])?;
    let output = communicator.allocate::<bf16>(&[m, n])?;
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
    let graph = stream.capture(|queue| queue.all_gather_gemm(&operation, &operands))?;

    // The last ranks have fewer rows if the world size does not divide `m`.
    let height = m.div_ceil(world);
    let rows = (rank * height).min(m)..((rank + 1) * height).min(m);
    let mut found = vec![bf16::ZERO; n];
    for replay in 0..REPLAYS {
        // With push only this rank reads its shard, so the next replay may overwrite it at once.
        let of_row = |row| (0..k).map(move |column| bf16::from_f32(a(replay, row, column)));
        let own: Vec<bf16> = rows.clone().flat_map(of_row).collect();
        shard.write(&stream, 0, &own)?;
        stream.launch_graph(&graph)?;
        // Checks every 67th row and the last one.
        for row in (0..m).step_by(67).chain([m - 1]) {
            output.read(&stream, row * n, &mut found)?;
            for (column, found) in found.iter().enumerate() {
                let sum: f32 = (0..k).map(|i| a(replay, row, i) * b(rank, i, column)).sum();
                assert_eq!(*found, bf16::from_f32(sum), "C[{row}, {column}]");
            }
        }
    }
    println!("rank {rank} of {world}: C[{m}, {n}] is right, {REPLAYS} times");

    drop((graph, operation));
    shard.free()?;
    weights.free()?;
    output.free()?;
    communicator.finalize()?;
    Ok(())
}
