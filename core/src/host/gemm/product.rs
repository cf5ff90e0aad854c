//! Arithmetic of a GEMM: sums in f32, rounded once to the element type.

use crate::backend::abi::*;
use crate::float::{Bfloat, E4m3, Half};
use std::ops::Range;
use std::ptr;

/// Rows and columns of `C` that are summed at a time: the sums stay in the L1 cache, and all rows use each widened
/// element of `B`.
const ROWS: usize = 16;
const COLUMNS: usize = 64;

/// Columns of some rows of `A`.
#[derive(Clone, Copy)]
pub(crate) struct Panel {
    /// The first of these columns in the first row.
    pub(crate) address: DeviceAddress,
    /// Elements from one row to the next.
    pub(crate) stride: u64,
    /// The panel's first column in the whole `A`.
    pub(crate) first: u64,
    /// Number of columns; may be 0.
    pub(crate) columns: u64,
}

/// A format of elements, as their bits.
pub(super) trait MatrixFormat {
    type Bits: Copy;
    /// The format of `C`, the bias and the addend ([`GemmLayout::output`]).
    type Output: MatrixFormat;
    fn widen(bits: Self::Bits) -> f32;
    fn narrow(number: f32) -> Self::Bits;
}

macro_rules! narrow {
    ($($format:ty, $bits:ty, $output:ty;)*) => {$(
        impl MatrixFormat for $format {
            type Bits = $bits;
            type Output = $output;
            #[inline(always)]
            fn widen(bits: $bits) -> f32 {
                <$format>::widen(bits.into())
            }
            #[inline(always)]
            fn narrow(number: f32) -> $bits {
                <$format>::narrow(number) as $bits
            }
        }
    )*};
}
narrow! {
    Half, u16, Half;
    Bfloat, u16, Bfloat;
    E4m3, u8, Bfloat;
}

/// IEEE 754 single precision.
struct Single;

impl MatrixFormat for Single {
    type Bits = u32;
    type Output = Self;
    #[inline(always)]
    fn widen(bits: u32) -> f32 {
        f32::from_bits(bits)
    }
    #[inline(always)]
    fn narrow(number: f32) -> u32 {
        number.to_bits()
    }
}

/// Computes rows `rows` of `C`, where `panels` hold those rows of `A`.
///
/// Peers may store near these matrices but never to them, so, as in `copies::copy`, no reference points to them.
///
/// # Safety
/// All matrices are live, have the shape's sizes, and are aligned to their elements. Each panel has the rows `rows`,
/// and together they have every column of `A` once. The element type is [`known`].
pub(crate) unsafe fn product(
    shape: &GemmLayout,
    panels: &[Panel],
    operands: &GemmOperands,
    rows: Range<u64>,
) {
    // SAFETY: this function has the same conditions.
    unsafe {
        match shape.element {
            ElementTypeCode::F16 => product_of::<Half>(shape, panels, operands, rows),
            ElementTypeCode::F32 => product_of::<Single>(shape, panels, operands, rows),
            ElementTypeCode::F8_E4M3 => product_of::<E4m3>(shape, panels, operands, rows),
            _ => product_of::<Bfloat>(shape, panels, operands, rows),
        }
    }
}

/// # Safety
/// As for [`product`].
unsafe fn product_of<F: MatrixFormat>(
    shape: &GemmLayout,
    panels: &[Panel],
    operands: &GemmOperands,
    rows: Range<u64>,
) {
    let store = |row: u64, left: u64, sums: &[f32]| {
        for (column, &sum) in sums.iter().enumerate() {
            let index = row * shape.c_stride + left + column as u64;
            // SAFETY: row and column are inside `C`.
            unsafe { store::<F::Output>(operands.c, index, sum) };
        }
    };
    // SAFETY: this function has the same conditions.
    unsafe { sums_of::<F>(shape, panels, operands, rows, store) };
}

/// Whether the host backend can multiply this element type.
pub(crate) fn known(element: ElementTypeCode) -> bool {
    matches!(
        element,
        ElementTypeCode::F16
            | ElementTypeCode::BF16
            | ElementTypeCode::F32
            | ElementTypeCode::F8_E4M3
    )
}

/// Computes rows `rows` of `C` in f32, and passes each to `take` in pieces: the row, the first column, and the sums.
///
/// # Safety
/// As for [`product`]; `C` is not used.
pub(super) unsafe fn sums_of<F: MatrixFormat>(
    shape: &GemmLayout,
    panels: &[Panel],
    operands: &GemmOperands,
    rows: Range<u64>,
    mut take: impl FnMut(u64, u64, &[f32]),
) {
    let (mut added, mut wide) = ([[0f32; COLUMNS]; ROWS], [0f32; COLUMNS]);
    let scale = match operands.scale {
        DeviceAddress::NULL => None,
        // SAFETY: the scale is one f32.
        scale => Some(unsafe { load::<Single>(scale, 0) }),
    };
    for top in rows.clone().step_by(ROWS) {
        let height = (rows.end - top).min(ROWS as u64) as usize;
        for left in (0..shape.n).step_by(COLUMNS) {
            let width = (shape.n - left).min(COLUMNS as u64) as usize;
            for (column, start) in wide[..width].iter_mut().enumerate() {
                *start = match operands.bias {
                    DeviceAddress::NULL => 0.0,
                    // SAFETY: the bias has `n` elements, and this index is less.
                    bias => unsafe { load::<F::Output>(bias, left + column as u64) },
                };
            }
            added[..height].fill(wide);
            if operands.addend != DeviceAddress::NULL {
                for (row, added) in added[..height].iter_mut().enumerate() {
                    let start = (top + row as u64) * shape.n + left;
                    for (column, added) in added[..width].iter_mut().enumerate() {
                        let index = start + column as u64;
                        // SAFETY: the addend has `m` rows of `n` elements without gaps, and both indices are less.
                        *added += unsafe { load::<F::Output>(operands.addend, index) };
                    }
                }
            }
            // What is scaled must not have anything added yet.
            let mut sums = if scale.is_some() {
                [[0.0; COLUMNS]; ROWS]
            } else {
                added
            };
            for panel in panels {
                for k in 0..panel.columns {
                    let (row, column) = (panel.first + k, left);
                    let (start, step) = match shape.b_order {
                        MatrixOrderCode::COLUMNS => (column * shape.b_stride + row, shape.b_stride),
                        _ => (row * shape.b_stride + column, 1),
                    };
                    for (index, element) in wide[..width].iter_mut().enumerate() {
                        // SAFETY: row and column are inside `B`.
                        *element = unsafe { load::<F>(operands.b, start + index as u64 * step) };
                    }
                    for (row, sums) in sums[..height].iter_mut().enumerate() {
                        let index = (top - rows.start + row as u64) * panel.stride + k;
                        // SAFETY: row and column are inside the panel.
                        let a = unsafe { load::<F>(panel.address, index) };
                        for (sum, b) in sums[..width].iter_mut().zip(&wide[..width]) {
                            *sum += a * b;
                        }
                    }
                }
            }
            if let Some(scale) = scale {
                for (sums, added) in sums[..height].iter_mut().zip(&added) {
                    for (sum, added) in sums[..width].iter_mut().zip(added) {
                        *sum = *sum * scale + added;
                    }
                }
            }
            for (row, sums) in sums[..height].iter().enumerate() {
                take(top + row as u64, left, &sums[..width]);
            }
        }
    }
}

/// # Safety
/// `index` is inside a live array at `address`, aligned to its elements.
#[inline(always)]
pub(super) unsafe fn load<F: MatrixFormat>(address: DeviceAddress, index: u64) -> f32 {
    let elements: *const F::Bits = ptr::with_exposed_provenance(address.0 as usize);
    // SAFETY: the element exists and is aligned, as this function requires.
    F::widen(unsafe { elements.add(index as usize).read() })
}

/// # Safety
/// As for [`load`].
#[inline(always)]
pub(super) unsafe fn store<F: MatrixFormat>(address: DeviceAddress, index: u64, number: f32) {
    let elements: *mut F::Bits = ptr::with_exposed_provenance_mut(address.0 as usize);
    // SAFETY: the element exists and is aligned, as this function requires.
    unsafe { elements.add(index as usize).write(F::narrow(number)) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn address<B>(elements: &[B]) -> DeviceAddress {
        DeviceAddress(elements.as_ptr().expose_provenance() as u64)
    }

    fn fill<F: MatrixFormat>(count: u64, seed: u64) -> Vec<F::Bits> {
        (0..count).map(|at| F::narrow(number(at + seed))).collect()
    }

    /// Small integers, which these formats and f32 hold exactly, sums included.
    fn number(seed: u64) -> f32 {
        (seed.wrapping_mul(2_654_435_761) >> 7) as f32 % 5.0 - 2.0
    }

    fn exact<F: MatrixFormat>(element: ElementTypeCode, scale: Option<f32>)
    where
        <F::Output as MatrixFormat>::Bits: From<u16> + PartialEq + std::fmt::Debug,
    {
        let gap = <F::Output as MatrixFormat>::Bits::from(0xabcd);
        // Miri takes a minute for the large ones.
        let shapes: &[(u64, u64, u64)] = match cfg!(miri) {
            true => &[(1, 1, 1), (17, 1, 3), (1, 65, 2)],
            false => &[(1, 1, 1), (17, 65, 3), (16, 64, 5), (3, 130, 7)],
        };
        for &(m, n, k) in shapes {
            for b_order in [MatrixOrderCode::ROWS, MatrixOrderCode::COLUMNS] {
                let (a_stride, c_stride) = (k + 3, n + 1);
                let b_stride = if b_order == MatrixOrderCode::ROWS {
                    n
                } else {
                    k
                } + 2;
                let shape = GemmLayout {
                    m,
                    n,
                    k,
                    a_stride,
                    b_stride,
                    c_stride,
                    element,
                    b_order,
                    bias: 1,
                    addend: 1,
                };
                let (a, b) = (
                    fill::<F>(m * a_stride, 1),
                    fill::<F>((n + k) * b_stride, 99),
                );
                let (bias, addend) = (fill::<F::Output>(n, 7), fill::<F::Output>(m * n, 5));
                let mut c = vec![gap; (m * c_stride) as usize];
                let operands = GemmOperands {
                    a: address(&a),
                    b: address(&b),
                    c: DeviceAddress(c.as_mut_ptr().expose_provenance() as u64),
                    bias: address(&bias),
                    addend: address(&addend),
                    scale: scale.as_ref().map_or(DeviceAddress::NULL, |scale| {
                        address(std::slice::from_ref(scale))
                    }),
                };
                // `A` in two panels, the second columns first.
                let cut = k / 2;
                let panel = |first: u64, columns| Panel {
                    address: DeviceAddress(operands.a.0 + element.bytes() * first),
                    stride: a_stride,
                    first,
                    columns,
                };
                let panels = [panel(cut, k - cut), panel(0, cut)];
                // SAFETY: all matrices are live and have these sizes.
                unsafe { product(&shape, &panels, &operands, 0..m) };
                for row in 0..m {
                    for column in 0..c_stride {
                        let made = c[(row * c_stride + column) as usize];
                        if column >= n {
                            assert_eq!(made, gap, "nothing between rows is written");
                            continue;
                        }
                        let b_at = |row, column| match b_order {
                            MatrixOrderCode::ROWS => b[(row * b_stride + column) as usize],
                            _ => b[(column * b_stride + row) as usize],
                        };
                        let added = F::Output::widen(addend[(row * n + column) as usize]);
                        let added = F::Output::widen(bias[column as usize]) + added;
                        let product = (0..k).fold(0.0, |sum, at| {
                            let a = F::widen(a[(row * a_stride + at) as usize]);
                            sum + a * F::widen(b_at(at, column))
                        });
                        let sum = product * scale.unwrap_or(1.0) + added;
                        assert_eq!(F::Output::widen(made), sum, "{shape:?} at {row}, {column}");
                    }
                }
            }
        }
    }

    #[test]
    fn products_of_whole_numbers_are_exact_in_either_order_and_in_parts() {
        exact::<Half>(ElementTypeCode::F16, None);
        exact::<Bfloat>(ElementTypeCode::BF16, None);
        exact::<Single>(ElementTypeCode::F32, None);
        exact::<E4m3>(ElementTypeCode::F8_E4M3, None);
        exact::<E4m3>(ElementTypeCode::F8_E4M3, Some(0.5));
    }
}
