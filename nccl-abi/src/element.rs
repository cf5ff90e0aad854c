//! Element types and reductions, by their numbers in `nccl.h`.

use std::ffi::c_int;
use symmem::{ElementType, ReduceOp};

/// Returns an element type and its size in bytes.
pub fn element_of(number: c_int) -> Option<(ElementType, usize)> {
    Some(match number {
        0 => (ElementType::I8, 1),
        1 => (ElementType::U8, 1),
        2 => (ElementType::I32, 4),
        3 => (ElementType::U32, 4),
        4 => (ElementType::I64, 8),
        5 => (ElementType::U64, 8),
        6 => (ElementType::F16, 2),
        7 => (ElementType::F32, 4),
        8 => (ElementType::F64, 8),
        9 => (ElementType::Bf16, 2),
        10 => (ElementType::F8E4M3, 1),
        11 => (ElementType::F8E5M2, 1),
        _ => return None,
    })
}

/// Returns whether an element type is an integer.
pub fn is_integer(element: ElementType) -> bool {
    use ElementType as E;
    matches!(element, E::I8 | E::U8 | E::I32 | E::U32 | E::I64 | E::U64)
}

/// Returns a reduction. Those that a program made, which multiply first, are NCCL's own.
pub fn operator_of(number: c_int) -> Option<ReduceOp> {
    Some(match number {
        0 => ReduceOp::Sum,
        1 => ReduceOp::Product,
        2 => ReduceOp::Maximum,
        3 => ReduceOp::Minimum,
        4 => ReduceOp::Average,
        _ => return None,
    })
}
