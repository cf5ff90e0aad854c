//! Results of all-gather + GEMM, by every algorithm and transport.

use crate::case::{Case, WAYS, options};
use crate::checker::{Dense, GemmFloat, Real, check};
use crate::world::world;
use half::{bf16, f16};
use rstest::rstest;
use symmem::backend::abi::DeviceAddress;
use symmem::*;
use symmem::{MatrixOrder, Sharding};

/// Shapes with tails: rows that do not divide evenly among ranks, fewer rows than ranks, one column, an odd `k`.
const SHAPES: [(usize, usize, usize); 6] = [
    (32, 16, 24),
    (33, 17, 31),
    (2, 5, 3),
    (1, 1, 1),
    (70, 1, 19),
    (19, 66, 2),
];

fn every_way<T: GemmFloat>(ranks: u32, adapt: impl Fn(&mut GemmShape, &mut GemmOptions) + Sync) {
    world(ranks, |communicator| {
        for way in WAYS {
            for (m, n, k) in SHAPES {
                let (mut shape, mut options) = (GemmShape::new(m, n, k), options(way));
                adapt(&mut shape, &mut options);
                Case::<T>::new(&communicator, shape, &options).run(2);
            }
        }
    });
}

#[rstest]
fn products_are_right_with_a_in_rows(#[values(1, 2, 3, 4)] ranks: u32) {
    every_way::<bf16>(ranks, |_, _| ());
    every_way::<f16>(ranks, |shape, _| shape.bias = true);
}

#[rstest]
fn products_are_right_with_a_in_columns(#[values(1, 2, 3, 4)] ranks: u32) {
    every_way::<f16>(ranks, |shape, _| shape.sharding = Sharding::Columns);
    every_way::<bf16>(ranks, |shape, options| {
        shape.sharding = Sharding::Columns;
        shape.bias = true;
        options.gathered = true;
    });
}

#[rstest]
fn b_may_lie_in_columns_and_strides_be_longer_than_lines(
    #[values(1, 3)] ranks: u32,
    #[values(MatrixOrder::Rows, MatrixOrder::Columns)] b_order: MatrixOrder,
) {
    every_way::<bf16>(ranks, |shape, _| {
        let least = if b_order == MatrixOrder::Rows {
            shape.n
        } else {
            shape.k
        };
        shape.b_order = b_order;
        shape.b_stride = Some(least + 3);
        shape.c_stride = Some(shape.n + 1);
        shape.bias = true;
    });
}

#[rstest]
fn products_of_8_bit_floats_are_scaled_before_the_bias_is_added(
    #[values(1, 2, 3)] ranks: u32,
    #[values(None, Some(0.37))] scale: Option<f32>,
) {
    world(ranks, |communicator| {
        for way in WAYS {
            for (number, (m, n, k)) in SHAPES.into_iter().enumerate() {
                let [columns, by_columns] = [number % 2 == 0, number % 3 == 0];
                let shape = GemmShape {
                    sharding: if columns {
                        Sharding::Columns
                    } else {
                        Sharding::Rows
                    },
                    b_order: if by_columns {
                        MatrixOrder::Columns
                    } else {
                        MatrixOrder::Rows
                    },
                    b_stride: Some(n.max(k) + 3),
                    c_stride: Some(n + 1),
                    bias: true,
                    ..GemmShape::new(m, n, k)
                };
                let options = GemmOptions {
                    gathered: columns,
                    ..options(way)
                };
                let case = Case::<F8E4M3>::new(&communicator, shape, &options);
                match scale {
                    Some(scale) => case.scaled(scale).run(2),
                    None => case.run(2),
                }
            }
        }
    });
}

#[rstest]
fn the_gathered_matrix_stays_where_the_caller_wants_it(#[values(1, 2, 3, 4)] ranks: u32) {
    every_way::<bf16>(ranks, |_, options| options.gathered = true);
}

#[rstest]
fn streams_need_not_be_as_many_as_ranks(
    #[values(1, 3, 5, 9)] streams: usize,
    #[values(false, true)] ordered: bool,
) {
    world(4, |communicator| {
        for transport in [GemmTransport::Get, GemmTransport::Put] {
            let options = GemmOptions {
                streams,
                ordered,
                ..options((GemmAlgorithm::Pipeline, transport))
            };
            for sharding in [Sharding::Rows, Sharding::Columns] {
                let shape = GemmShape {
                    sharding,
                    ..GemmShape::new(37, 12, 23)
                };
                Case::<bf16>::new(&communicator, shape, &options).run(3);
            }
        }
    });
}

#[rstest]
fn chunks_may_be_of_any_number_of_rows(#[values(1, 16, 20, 1000)] rows: usize) {
    world(3, |communicator| {
        for way in &WAYS[3..] {
            let options = GemmOptions {
                chunk_rows: Some(rows),
                ..options(*way)
            };
            for sharding in [Sharding::Rows, Sharding::Columns] {
                let shape = GemmShape {
                    sharding,
                    ..GemmShape::new(150, 8, 10)
                };
                Case::<f16>::new(&communicator, shape, &options).run(2);
            }
        }
    });
}

#[test]
fn calls_follow_each_other_without_a_wait_and_give_what_the_last_one_should() {
    world(3, |communicator| {
        for way in WAYS {
            let case = Case::<bf16>::new(&communicator, GemmShape::new(50, 9, 11), &options(way));
            case.prepare(0);
            for _ in 0..8 {
                case.enqueue().expect("enqueued");
            }
            case.stream.synchronize().expect("done");
            case.check(0).expect("right");
            case.run(2);
        }
    });
}

#[rstest]
fn the_same_call_gives_the_same_bits_in_whatever_order_ranks_come(
    #[values(Sharding::Rows, Sharding::Columns)] sharding: Sharding,
) {
    world(3, |communicator| {
        let shape = GemmShape {
            sharding,
            ..GemmShape::new(50, 9, 131)
        };
        for way in WAYS {
            let made = || Case::<bf16>::new(&communicator, shape, &options(way));
            let case = made();
            let first = case.bits(0);
            for _ in 0..3 {
                assert_eq!(case.bits(0), first, "{way:?}");
            }
            assert_ne!(case.bits(1), first, "another A");
            // A second operation gives the same bits.
            assert_eq!(made().bits(0), first, "{way:?}");
        }
    });
}

#[test]
fn a_stale_tile_fails_the_check() {
    let (m, n, k) = (48, 32, 64);
    let (a, b) = (
        Dense::<bf16>::random(m, k, 1),
        Dense::<bf16>::random(k, n, 2),
    );
    // The A of another call; its rows 16 to 32 are planted as stale.
    let stale = Dense::<bf16>::random(m, k, 9);
    let product = |rows_of: &dyn Fn(usize) -> bool| -> Vec<bf16> {
        let sum = |row: usize, column: usize| -> f64 {
            let a = if rows_of(row) { &stale } else { &a };
            (0..k)
                .map(|at| a.at(row, at).to_f64() * b.at(at, column).to_f64())
                .sum()
        };
        let all = (0..m).flat_map(|row| (0..n).map(move |column| (row, column)));
        all.map(|(row, column)| <bf16 as Real>::from_f64(sum(row, column)))
            .collect()
    };
    check((&a, &b), 1.0, None, &product(&|_| false), n).expect("the product itself passes");
    let planted = product(&|row| (16..32).contains(&row));
    let why = check((&a, &b), 1.0, None, &planted, n).expect_err("a stale tile");
    assert!(why.starts_with("C[16, "), "{why}");
    let mut holed = product(&|_| false);
    holed[5] = bf16::NAN;
    assert!(
        check((&a, &b), 1.0, None, &holed, n).is_err(),
        "an element that was not written"
    );
}

#[test]
fn matrices_may_be_memory_that_is_no_buffer() {
    world(2, |communicator| {
        let (m, n, k) = (24, 8, 16);
        let (b, mut c) = (Dense::<f16>::random(k, n, 5), vec![f16::NAN; m * n]);
        let (whole, rank) = (Dense::<f16>::random(m, k, 6), communicator.rank());
        let stream = communicator.stream().unwrap();
        let shape = GemmShape::new(m, n, k);
        let operation = communicator
            .all_gather_gemm::<f16>(&shape, &GemmOptions::default())
            .unwrap();
        let a = communicator
            .allocate::<f16>(&[shape.shard_elements(2)])
            .unwrap();
        let half = m / 2 * k;
        a.write(&stream, 0, &whole.elements[rank * half..][..half])
            .unwrap();
        let address = |pointer: *const f16| DeviceAddress(pointer.expose_provenance() as u64);
        let rows = MatrixOrder::Rows;
        // SAFETY: both live until the stream is synchronized below, and on the host an address is a pointer.
        let (right, result) = unsafe {
            (
                Matrix::from_raw(address(b.elements.as_ptr()), k, n, n, rows),
                Matrix::from_raw(address(c.as_mut_ptr()), m, n, n, rows),
            )
        };
        let operands = Operands {
            a: a.all(),
            b: right,
            c: result,
            bias: None,
            scale: None,
            gathered: None,
        };
        stream.all_gather_gemm(&operation, &operands).unwrap();
        stream.synchronize().unwrap();
        check((&whole, &b), 1.0, None, &c, n).expect("right");
    });
}

#[test]
fn the_plan_can_be_read() {
    world(3, |communicator| {
        let shape = GemmShape::new(30, 4, 5);
        let way = (GemmAlgorithm::Pipeline, GemmTransport::Get);
        let operation = communicator.all_gather_gemm::<bf16>(&shape, &options(way));
        let operation = operation.unwrap();
        let (rank, text) = (communicator.rank(), operation.explain());
        assert!(text.contains(&format!("rank {rank} of 3")), "{text}");
        assert!(text.contains(&format!("({rank} + i) mod 3")), "{text}");
        let lines = text.lines().count();
        assert_eq!(lines, operation.steps().len() + 3, "{text}");
        assert_eq!(operation.algorithm(), GemmAlgorithm::Pipeline);
        assert!(text.contains("GEMM stream i mod 2"), "{text}");
        // Columns of A are summed over, so there is one GEMM and no GEMM stream.
        let columns = GemmShape {
            sharding: Sharding::Columns,
            ..shape
        };
        let operation = communicator.all_gather_gemm::<bf16>(&columns, &options(way));
        let text = operation.unwrap().explain();
        assert!(!text.contains("GEMM stream"), "{text}");
        assert!(text.contains("once all shards have arrived"), "{text}");
        // The shape is small, so everything is gathered first, unless one fused kernel does it.
        let chosen = communicator.all_gather_gemm::<bf16>(&shape, &GemmOptions::default());
        assert_ne!(chosen.unwrap().algorithm(), GemmAlgorithm::Automatic);
    });
}

/// The acceptance size; takes minutes without optimization.
#[test]
#[ignore = "slow: eight products of 1024 x 1024 x 1024 by plain loops, in each way"]
fn a_thousand_and_twenty_four_cubed_on_eight_ranks() {
    world(8, |communicator| {
        for way in WAYS {
            let shape = GemmShape::new(1024, 1024, 1024);
            Case::<bf16>::new(&communicator, shape, &options(way)).run(1);
        }
    });
}
