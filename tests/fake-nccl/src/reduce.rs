//! Simple reductions over the elements of several ranks.

use half::{bf16, f16};
use std::ffi::c_int;
use symmem_core::float::{E4m3, E5m2};

/// Returns the bytes of an `ncclDataType_t`.
pub fn element_bytes(element: c_int) -> Option<usize> {
    Some(match element {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => return None,
    })
}

/// Reduces in the order of `parts`; returns `None` for an unknown type or operation.
pub fn reduce(element: c_int, operation: c_int, parts: &[Vec<u8>]) -> Option<Vec<u8>> {
    macro_rules! integers {
        ($type:ty) => {
            each(
                parts,
                |bytes| <$type>::from_ne_bytes(bytes),
                |all| {
                    match operation {
                        0 => all.iter().fold(0, |a: $type, b| a.wrapping_add(*b)),
                        1 => all.iter().fold(1, |a: $type, b| a.wrapping_mul(*b)),
                        2 => all.iter().copied().fold(<$type>::MIN, <$type>::max),
                        3 => all.iter().copied().fold(<$type>::MAX, <$type>::min),
                        _ => {
                            all.iter().fold(0, |a: $type, b| a.wrapping_add(*b))
                                / all.len() as $type
                        }
                    }
                    .to_ne_bytes()
                },
            )
        };
    }
    macro_rules! floats {
        ($type:ty, $to:expr, $from:expr) => {
            each(
                parts,
                |bytes| $to(<$type>::from_ne_bytes(bytes)),
                |all| {
                    let sum: f64 = all.iter().sum();
                    let result = match operation {
                        0 => sum,
                        1 => all.iter().product(),
                        2 => all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                        3 => all.iter().copied().fold(f64::INFINITY, f64::min),
                        _ => sum / all.len() as f64,
                    };
                    <$type>::to_ne_bytes($from(result))
                },
            )
        };
    }
    Some(match element {
        0 => integers!(i8),
        1 => integers!(u8),
        2 => integers!(i32),
        3 => integers!(u32),
        4 => integers!(i64),
        5 => integers!(u64),
        6 => floats!(f16, f16::to_f64, f16::from_f64),
        7 => floats!(f32, f64::from, |wide| wide as f32),
        8 => floats!(f64, |narrow| narrow, |wide| wide),
        9 => floats!(bf16, bf16::to_f64, bf16::from_f64),
        10 => floats!(u8, |bits: u8| f64::from(E4m3::widen(bits.into())), |wide| {
            E4m3::narrow(wide as f32) as u8
        }),
        11 => floats!(u8, |bits: u8| f64::from(E5m2::widen(bits.into())), |wide| {
            E5m2::narrow(wide as f32) as u8
        }),
        _ => return None,
    })
}

/// Combines element by element.
fn each<T, const N: usize>(
    parts: &[Vec<u8>],
    read: impl Fn([u8; N]) -> T,
    combine: impl Fn(&[T]) -> [u8; N],
) -> Vec<u8> {
    let element = |part: &Vec<u8>, index: usize| {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&part[index * N..(index + 1) * N]);
        read(bytes)
    };
    (0..parts[0].len() / N)
        .flat_map(|index| {
            let all: Vec<T> = parts.iter().map(|part| element(part, index)).collect();
            combine(&all)
        })
        .collect()
}
