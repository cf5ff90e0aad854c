//! A GEMM with its matrices, and the bound on its error.

use crate::rank::{GUARD, Rank};
use crate::support::vendors::Vendor;
use half::{bf16, f16};
use symmem::backend::abi::*;
use symmem::backend::{CallResult, Gemm};

/// A GEMM with its matrices, on the host and on a device.
pub struct Product {
    shape: GemmLayout,
    pub a: Vec<u16>,
    b: Vec<u16>,
    bias: Vec<u16>,
    addend: Vec<u16>,
    pub operands: GemmOperands,
}

/// How many elements each stride exceeds its matrix by.
#[derive(Clone, Copy)]
pub struct Gaps {
    pub a: u64,
    pub b: u64,
    pub c: u64,
}

pub const TIGHT: Gaps = Gaps { a: 0, b: 0, c: 0 };

pub fn shape(
    m: u64,
    n: u64,
    k: u64,
    element: ElementTypeCode,
    order: MatrixOrderCode,
    gaps: Gaps,
) -> GemmLayout {
    let b_width = if order == MatrixOrderCode::ROWS { n } else { k };
    GemmLayout {
        m,
        n,
        k,
        a_stride: k + gaps.a,
        b_stride: b_width + gaps.b,
        c_stride: n + gaps.c,
        element,
        b_order: order,
        bias: 0,
        addend: 0,
    }
}

pub fn widen(element: ElementTypeCode, bits: u16) -> f64 {
    match element {
        ElementTypeCode::F16 => f16::from_bits(bits).to_f64(),
        _ => bf16::from_bits(bits).to_f64(),
    }
}

pub fn narrow(element: ElementTypeCode, number: f32) -> u16 {
    match element {
        ElementTypeCode::F16 => f16::from_f32(number).to_bits(),
        _ => bf16::from_f32(number).to_bits(),
    }
}

/// Returns pseudorandom numbers of both signs from a linear congruential generator.
pub fn random(element: ElementTypeCode, count: u64, seed: u32) -> Vec<u16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from((state >> 16) as i16) / 16_384.0
    };
    (0..count).map(|_| narrow(element, next())).collect()
}

impl Product {
    /// Creates random matrices, each `offset` bytes into an allocation.
    pub fn new(rank: &Rank, shape: GemmLayout, offset: u64) -> Self {
        let element = shape.element;
        let b_length = if shape.b_order == MatrixOrderCode::ROWS {
            shape.k
        } else {
            shape.n
        };
        let a = random(element, shape.m * shape.a_stride, 1);
        let b = random(element, b_length * shape.b_stride, 2);
        let bias = random(element, shape.n * u64::from(shape.bias), 3);
        let addend = random(element, shape.m * shape.n * u64::from(shape.addend), 4);
        let c = vec![GUARD; (shape.m * shape.c_stride) as usize];
        let operands = GemmOperands {
            a: rank.place(&a, offset),
            b: rank.place(&b, offset),
            c: rank.place(&c, offset),
            bias: match shape.bias {
                0 => DeviceAddress::NULL,
                _ => rank.place(&bias, offset),
            },
            addend: match shape.addend {
                0 => DeviceAddress::NULL,
                _ => rank.place(&addend, offset),
            },
            scale: DeviceAddress::NULL,
        };
        Self {
            shape,
            a,
            b,
            bias,
            addend,
            operands,
        }
    }

    /// Compares the result with sums in f64, element by element. An element may be off by one rounding to its type plus
    /// the error of the f32 sum. Nothing may be written between rows.
    pub fn check(&self, rank: &Rank) {
        let &GemmLayout {
            m, n, k, element, ..
        } = &self.shape;
        let c = rank.read(self.operands.c, (m * self.shape.c_stride) as usize);
        let unit = if element == ElementTypeCode::F16 {
            2_f64.powi(-11)
        } else {
            2_f64.powi(-8)
        };
        for (place, &seen) in c.iter().enumerate() {
            let (row, column) = (
                place as u64 / self.shape.c_stride,
                place as u64 % self.shape.c_stride,
            );
            if column >= n {
                assert_eq!(seen, GUARD, "between rows, behind row {row}");
                continue;
            }
            let bias = self.bias.get(column as usize);
            let mut sum = bias.map_or(0.0, |&bias| widen(element, bias));
            let mut size = sum.abs();
            if let Some(&added) = self.addend.get((row * n + column) as usize) {
                sum += widen(element, added);
                size += widen(element, added).abs();
            }
            for index in 0..k {
                let (down, across) = match self.shape.b_order {
                    MatrixOrderCode::ROWS => (index, column),
                    _ => (column, index),
                };
                let a = widen(
                    element,
                    self.a[(row * self.shape.a_stride + index) as usize],
                );
                let b = widen(
                    element,
                    self.b[(down * self.shape.b_stride + across) as usize],
                );
                sum += a * b;
                size += (a * b).abs();
            }
            let bound = unit * sum.abs() + (k as f64).sqrt() * 2_f64.powi(-22) * size;
            let off = (widen(element, seen) - sum).abs();
            assert!(
                off <= bound,
                "{:?}: row {row}, column {column}: {off} off {sum}, more than {bound}",
                self.shape
            );
        }
    }
}

pub fn prepare(rank: &Rank, shape: &GemmLayout) -> CallResult<RawGemm> {
    rank.backend.gemm_prepare(shape)
}

/// Enqueues the GEMM.
pub fn multiply(rank: &Rank, gemm: RawGemm, way: u32, operands: &GemmOperands) -> CallResult<()> {
    // SAFETY: all memory is live until the stream is drained.
    unsafe { rank.backend.gemm(gemm, way, operands, rank.stream) }
}

pub fn release(rank: &Rank, gemm: RawGemm) -> CallResult<()> {
    // SAFETY: the stream was drained, and the GEMM is not used again.
    unsafe { rank.backend.gemm_release(gemm) }
}

pub fn ways(rank: &Rank, gemm: RawGemm) -> u32 {
    // SAFETY: the GEMM is live.
    unsafe { rank.backend.gemm_candidates(gemm) }.unwrap()
}

/// Returns how many algorithms are expected: the fake's, and on CUDA one for unaligned operands.
pub fn known_ways() -> u32 {
    match Vendor::of_role() {
        Vendor::Cuda => 4,
        Vendor::Hip => 3,
    }
}
