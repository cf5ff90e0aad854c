//! GEMMs of 8-bit floats.

use crate::clean;
use crate::product::{Gaps, Product, TIGHT, known_ways, multiply, prepare, release, shape, ways};
use crate::rank::{GUARD, Rank};
use crate::support::vendors::{Vendor, role};
use half::bf16;
use rstest::rstest;
use symmem::F8E4M3;
use symmem::backend::abi::*;

#[rstest]
fn a_product_of_8_bit_floats_is_scaled_before_anything_is_added(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    clean(role(vendor, "eight_bits::values", vendor.libraries(), &[]));
}

#[test]
#[ignore = "run in a child process by the test above"]
fn values() {
    let rank = Rank::open();
    let wide = Gaps {
        a: 16,
        b: 32,
        c: 48,
    };
    for (m, n, k, gaps) in [(16, 32, 48, TIGHT), (32, 16, 144, wide)] {
        for (bias, addend) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let shape = GemmLayout {
                bias,
                addend,
                ..by_columns(m, n, k, gaps)
            };
            let gemm = prepare(&rank, &shape).unwrap();
            let ways = ways(&rank, gemm);
            // One of the algorithms for unaligned operands takes no 8-bit floats.
            assert_eq!(ways, known_ways().min(3));
            for way in 0..ways {
                for scale in [None, Some(0.37_f32)] {
                    check(&rank, &shape, (gemm, way), scale);
                }
            }
            release(&rank, gemm).unwrap();
        }
    }
    rank.close();
}

fn by_columns(m: u64, n: u64, k: u64, gaps: Gaps) -> GemmLayout {
    let columns = MatrixOrderCode::COLUMNS;
    shape(m, n, k, ElementTypeCode::F8_E4M3, columns, gaps)
}

/// Returns bytes of every value but the two NaNs, -0 among them.
fn bytes(count: u64, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match (state >> 24) as u8 {
            0x7f | 0xff => 0x80,
            byte => byte,
        }
    };
    (0..count).map(|_| next()).collect()
}

/// Returns an even number of bytes in the form that a [`Rank`] writes.
fn pairs(bytes: &[u8]) -> Vec<u16> {
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|two| u16::from_ne_bytes([two[0], two[1]]))
        .collect()
}

/// Multiplies random matrices and compares the result with sums in f64. An element may be off by one rounding to bf16 plus the
/// error of the f32 sum. Nothing may be written between rows.
fn check(rank: &Rank, shape: &GemmLayout, (gemm, way): (RawGemm, u32), scale: Option<f32>) {
    let &GemmLayout { m, n, k, .. } = shape;
    let (a, b) = (bytes(m * shape.a_stride, 1), bytes(n * shape.b_stride, 2));
    let random = |count: u64, seed| crate::product::random(ElementTypeCode::BF16, count, seed);
    let (bias, addend) = (random(n, 3), random(m * n, 4));
    let optional = |is: u32, matrix: &[u16]| match is {
        0 => DeviceAddress::NULL,
        _ => rank.place(matrix, 0),
    };
    let bits = scale.map(|scale| pairs(&scale.to_ne_bytes()));
    let operands = GemmOperands {
        a: rank.place(&pairs(&a), 0),
        b: rank.place(&pairs(&b), 0),
        c: rank.place(&vec![GUARD; (m * shape.c_stride) as usize], 0),
        bias: optional(shape.bias, &bias),
        addend: optional(shape.addend, &addend),
        scale: bits.map_or(DeviceAddress::NULL, |bits| rank.place(&bits, 0)),
    };
    multiply(rank, gemm, way, &operands).unwrap();
    rank.drain();
    let c = rank.read(operands.c, (m * shape.c_stride) as usize);
    let wide = |byte: u8| f64::from(F8E4M3(byte).to_f32());
    let wide_16 = |bits: u16| bf16::from_bits(bits).to_f64();
    let factor = f64::from(scale.unwrap_or(1.0));
    for (place, &seen) in c.iter().enumerate() {
        let (row, column) = (place as u64 / shape.c_stride, place as u64 % shape.c_stride);
        if column >= n {
            assert_eq!(seen, GUARD, "between rows, behind row {row}");
            continue;
        }
        let (mut sum, mut size) = (0.0, 0.0);
        for index in 0..k {
            let a = wide(a[(row * shape.a_stride + index) as usize]);
            let b = wide(b[(column * shape.b_stride + index) as usize]);
            sum += factor * a * b;
            size += (factor * a * b).abs();
        }
        for (is, added) in [
            (shape.bias, bias[column as usize]),
            (shape.addend, addend[(row * n + column) as usize]),
        ] {
            if is != 0 {
                sum += wide_16(added);
                size += wide_16(added).abs();
            }
        }
        let bound = 2_f64.powi(-8) * sum.abs() + (k as f64).sqrt() * 2_f64.powi(-22) * size;
        let off = (wide_16(seen) - sum).abs();
        assert!(
            off <= bound,
            "{shape:?}, {scale:?}: row {row}, column {column}: {off} off {sum}, more than {bound}"
        );
    }
}

#[rstest]
fn a_shape_of_8_bit_floats_that_the_library_lacks_is_unsupported_and_a_scale_of_others_is_refused(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    clean(role(vendor, "eight_bits::refused", vendor.libraries(), &[]));
}

#[test]
#[ignore = "run in a child process by the test above"]
fn refused() {
    let rank = Rank::open();
    let good = by_columns(16, 32, 48, TIGHT);
    let rows = MatrixOrderCode::ROWS;
    for (shape, word) in [
        (
            shape(16, 32, 48, ElementTypeCode::F8_E4M3, rows, TIGHT),
            "store B by columns",
        ),
        (by_columns(16, 32, 40, TIGHT), "MatmulAlgoGetHeuristic"),
        (by_columns(16, 24, 48, TIGHT), "MatmulAlgoGetHeuristic"),
        (
            GemmLayout {
                a_stride: 56,
                ..good
            },
            "MatmulAlgoGetHeuristic",
        ),
    ] {
        let failure = prepare(&rank, &shape).unwrap_err();
        assert_eq!(failure.status, Status::UNSUPPORTED, "{failure}");
        let text = failure.to_string();
        assert!(text.contains(word), "{text}");
    }
    let halves = shape(16, 32, 48, ElementTypeCode::F16, rows, TIGHT);
    let product = Product::new(&rank, halves, 0);
    let gemm = prepare(&rank, &halves).unwrap();
    let scaled = GemmOperands {
        scale: product.operands.a,
        ..product.operands
    };
    let failure = multiply(&rank, gemm, 0, &scaled).unwrap_err();
    assert_eq!(failure.status, Status::INVALID_ARGUMENT, "{failure}");
    let message = "a scale for matrices of F16; only those of F8_E4M3 take one";
    assert!(failure.message.contains(message), "{failure}");
    release(&rank, gemm).unwrap();
    rank.close();
}
