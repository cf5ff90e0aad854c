//! Reference reductions: element by element, in rank order, rounded once.
//!
//! They work on bytes and use no backend. Every peer-to-peer algorithm must match them bit by bit.
//!
//! Over nodes, elements are reduced twice: those of each node, then the results of the nodes, in the order of the nodes. A
//! result of a node is stored in the element type, so it is rounded, and the result of all is rounded again. Which rank or
//! rail reduces an element changes neither order nor roundings, so that results over nodes must match bit by bit, too.

use super::collectives::Reduction;
use super::dtype::Dtype;
use super::floats::Format;

/// A type that elements are accumulated in.
trait Accumulator: Copy {
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    /// The smaller; NaN if either is NaN. -0 is smaller than +0, as in IEEE 754-2019 `minimum`.
    fn smaller(self, other: Self) -> Self;
    /// The larger; NaN if either is NaN. +0 is larger than -0.
    fn larger(self, other: Self) -> Self;
    /// The quotient; integers round toward zero.
    fn divide(self, by: usize) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Accumulator for $type {
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
            fn divide(self, by: usize) -> Self {
                self / by as Self
            }
        }
    )*};
}
integers!(i32 u32 i64 u64);

macro_rules! floats {
    ($($type:ty)*) => {$(
        impl Accumulator for $type {
            fn add(self, other: Self) -> Self {
                self + other
            }
            fn multiply(self, other: Self) -> Self {
                self * other
            }
            fn smaller(self, other: Self) -> Self {
                let is_smaller =
                    self < other || (self == other && self.is_sign_negative());
                if self.is_nan() || is_smaller { self } else { other }
            }
            fn larger(self, other: Self) -> Self {
                let is_larger =
                    self > other || (self == other && self.is_sign_positive());
                if self.is_nan() || is_larger { self } else { other }
            }
            fn divide(self, by: usize) -> Self {
                self / by as Self
            }
        }
    )*};
}
floats!(f32 f64);

/// Reduces corresponding elements of all sources; converts each once on load and each result once on store. An average
/// divides by `divisor`.
fn fold<A: Accumulator, const BYTES: usize>(
    (reduction, divisor): (Reduction, usize),
    sources: &[&[u8]],
    load: impl Fn([u8; BYTES]) -> A,
    store: impl Fn(A) -> [u8; BYTES],
) -> Vec<u8> {
    let combine = match reduction {
        Reduction::Sum | Reduction::Average => A::add,
        Reduction::Minimum => A::smaller,
        Reduction::Maximum => A::larger,
        Reduction::Product => A::multiply,
    };
    let Some((first, rest)) = sources.split_first() else {
        return Vec::new();
    };
    let mut result = Vec::with_capacity(first.len());
    let element = |source: &[u8], at: usize| {
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(&source[at..at + BYTES]);
        load(bytes)
    };
    for at in (0..first.len()).step_by(BYTES) {
        let mut sum = element(first, at);
        for source in rest {
            sum = combine(sum, element(source, at));
        }
        if reduction == Reduction::Average {
            sum = sum.divide(divisor);
        }
        result.extend_from_slice(&store(sum));
    }
    result
}

/// Reduces sources of equal length, one per rank in rank order.
///
/// Integers of 8 and 16 bits are accumulated in 32 bits, floating point of 8 and 16 bits in f32, others
/// in their own type; integers wrap. An average is divided before it is rounded. A single source is
/// copied unchanged.
pub fn reduce(dtype: Dtype, reduction: Reduction, sources: &[&[u8]]) -> Vec<u8> {
    reduce_dividing(dtype, (reduction, sources.len()), sources)
}

/// Reduces sources of equal length, one per rank in rank order: first those of ranks on one node, then the nodes' results.
/// An average is divided once, at the end. `nodes` has the node of each rank.
pub fn reduce_over_nodes(
    dtype: Dtype,
    reduction: Reduction,
    sources: &[&[u8]],
    nodes: &[usize],
) -> Vec<u8> {
    let mut order: Vec<usize> = Vec::new();
    for node in nodes {
        if !order.contains(node) {
            order.push(*node);
        }
    }
    if order.len() == 1 {
        return reduce(dtype, reduction, sources);
    }
    let within = match reduction {
        Reduction::Average => Reduction::Sum,
        other => other,
    };
    let of_node = |node: &usize| {
        let ranks = nodes.iter().zip(sources).filter(|(of, _)| *of == node);
        let sources: Vec<&[u8]> = ranks.map(|(_, source)| *source).collect();
        reduce(dtype, within, &sources)
    };
    let results: Vec<Vec<u8>> = order.iter().map(of_node).collect();
    let results: Vec<&[u8]> = results.iter().map(Vec::as_slice).collect();
    reduce_dividing(dtype, (reduction, sources.len()), &results)
}

/// [`reduce`], with what an average divides by.
fn reduce_dividing(dtype: Dtype, reduction: (Reduction, usize), sources: &[&[u8]]) -> Vec<u8> {
    if let [alone] = sources {
        return alone.to_vec();
    }
    macro_rules! fold_as {
        ($type:ty, $wide:ty) => {
            fold(
                reduction,
                sources,
                |bytes| <$type>::from_le_bytes(bytes) as $wide,
                |sum| (sum as $type).to_le_bytes(),
            )
        };
    }
    match dtype {
        Dtype::I8 => fold_as!(i8, i32),
        Dtype::U8 => fold_as!(u8, u32),
        Dtype::I16 => fold_as!(i16, i32),
        Dtype::U16 => fold_as!(u16, u32),
        Dtype::I32 => fold_as!(i32, i32),
        Dtype::U32 => fold_as!(u32, u32),
        Dtype::I64 => fold_as!(i64, i64),
        Dtype::U64 => fold_as!(u64, u64),
        Dtype::F32 => fold_as!(f32, f32),
        Dtype::F64 => fold_as!(f64, f64),
        Dtype::F16 | Dtype::Bf16 => {
            let format = Format::of(dtype);
            fold(
                reduction,
                sources,
                |bytes| format.decode(u16::from_le_bytes(bytes).into()),
                |sum| (format.encode(sum) as u16).to_le_bytes(),
            )
        }
        Dtype::F8E4m3 | Dtype::F8E5m2 => {
            let format = Format::of(dtype);
            fold(
                reduction,
                sources,
                |[byte]| format.decode(byte.into()),
                |sum| [format.encode(sum) as u8],
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<const BYTES: usize, T: Copy>(
        dtype: Dtype,
        reduction: Reduction,
        values: &[T],
        bytes: fn(T) -> [u8; BYTES],
    ) -> [u8; BYTES] {
        let sources: Vec<[u8; BYTES]> = values.iter().map(|&value| bytes(value)).collect();
        let sources: Vec<&[u8]> = sources.iter().map(|source| &source[..]).collect();
        reduce(dtype, reduction, &sources).try_into().unwrap()
    }

    #[test]
    fn sums_are_made_in_rank_order() {
        let sum = |values: &[f32]| {
            f32::from_le_bytes(of(Dtype::F32, Reduction::Sum, values, f32::to_le_bytes))
        };
        assert_eq!(sum(&[1.0, 1e30, -1e30]), 0.0);
        assert_eq!(sum(&[1e30, -1e30, 1.0]), 1.0);
    }

    #[test]
    fn half_precision_is_rounded_once() {
        // 1 + 2⁻¹¹ + 2⁻¹¹ is 1 if it is rounded after each step, and the number after 1 if once.
        let bits = |value: f32| half::f16::from_f32(value).to_le_bytes();
        let step = 2f32.powi(-11);
        let sum = of(Dtype::F16, Reduction::Sum, &[1.0, step, step], bits);
        assert_eq!(half::f16::from_le_bytes(sum).to_f32(), 1.0 + 2.0 * step);
        let average = of(Dtype::F16, Reduction::Average, &[65504.0, 65504.0], bits);
        assert_eq!(half::f16::from_le_bytes(average).to_f32(), 65504.0);
    }

    #[test]
    fn over_nodes_the_result_of_each_node_is_rounded() {
        let step = 2f32.powi(-11);
        let values = [1.0, step, step, step].map(|value| half::f16::from_f32(value).to_le_bytes());
        let sources: Vec<&[u8]> = values.iter().map(|value| &value[..]).collect();
        let sum = |nodes: [usize; 4], reduction| {
            let bytes = reduce_over_nodes(Dtype::F16, reduction, &sources, &nodes);
            half::f16::from_le_bytes(bytes.try_into().unwrap()).to_f32()
        };
        // The first node loses half of a last place, and the second node's two halves make a whole one.
        assert_eq!(sum([0, 0, 1, 1], Reduction::Sum), 1.0 + 2.0 * step);
        // Exact in the first node; then half of a last place goes to the even neighbour, as it does on one node.
        assert_eq!(sum([0, 0, 0, 1], Reduction::Sum), 1.0 + 4.0 * step);
        assert_eq!(sum([0, 1, 0, 2], Reduction::Sum), 1.0 + 2.0 * step);
        assert_eq!(sum([0; 4], Reduction::Sum), 1.0 + 4.0 * step);
        assert_eq!(sum([0, 0, 1, 1], Reduction::Average), 0.25 + step / 2.0);
    }

    #[test]
    fn averages_of_integers_go_towards_zero_and_narrow_ones_do_not_wrap_before() {
        let narrow = |values: &[i8]| of(Dtype::I8, Reduction::Average, values, i8::to_le_bytes)[0];
        assert_eq!(narrow(&[-3, -4]) as i8, -3);
        assert_eq!(narrow(&[127, 127, 126]) as i8, 126);
        let sum = of(Dtype::U8, Reduction::Sum, &[200u8, 100], u8::to_le_bytes);
        assert_eq!(sum[0], 44);
    }

    #[test]
    fn the_smallest_and_the_largest_of_what_is_no_number_are_none() {
        for reduction in [Reduction::Minimum, Reduction::Maximum] {
            for values in [[1.0, f64::NAN], [f64::NAN, 1.0]] {
                let seen = of(Dtype::F64, reduction, &values, f64::to_le_bytes);
                assert!(f64::from_le_bytes(seen).is_nan());
            }
        }
        let zero = of(
            Dtype::F32,
            Reduction::Minimum,
            &[0.0, -0.0],
            f32::to_le_bytes,
        );
        assert!(f32::from_le_bytes(zero).is_sign_negative());
        let zero = of(
            Dtype::F32,
            Reduction::Maximum,
            &[-0.0, 0.0],
            f32::to_le_bytes,
        );
        assert!(f32::from_le_bytes(zero).is_sign_positive());
        let smallest = of(
            Dtype::I64,
            Reduction::Minimum,
            &[3i64, -5],
            i64::to_le_bytes,
        );
        assert_eq!(i64::from_le_bytes(smallest), -5);
    }

    #[test]
    fn one_rank_reduces_to_itself() {
        let own = of(
            Dtype::U64,
            Reduction::Product,
            &[u64::MAX],
            u64::to_le_bytes,
        );
        assert_eq!(u64::from_le_bytes(own), u64::MAX);
        // One rank keeps infinity; with two ranks the sum saturates to the largest number.
        let infinity = [0x7cu8];
        assert_eq!(reduce(Dtype::F8E5m2, Reduction::Sum, &[&infinity]), [0x7c]);
        let two: [&[u8]; 2] = [&infinity, &infinity];
        assert_eq!(reduce(Dtype::F8E5m2, Reduction::Sum, &two), [0x7b]);
    }
}
