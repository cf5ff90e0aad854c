//! Element types of reductions.

use crate::base::element::{Element, F8E4M3, F8E5M2};
use crate::base::names::ElementType;

/// An element type that collectives can reduce: the types that NCCL and RCCL reduce, and 16-bit integers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be reduced by a collective",
    label = "has no reduction",
    note = "integers of 8 to 64 bits, `f32`, `f64`, `half::f16`, `half::bf16`, `F8E4M3` and `F8E5M2` can be \
           reduced; collectives that only move elements, like `all_gather`, take any `Element`"
)]
pub trait Reducible: Element {
    /// The element type as a value.
    const TYPE: ElementType;
}

macro_rules! reducible {
    ($($type:ty => $name:ident,)*) => {$(
        impl Reducible for $type {
            const TYPE: ElementType = ElementType::$name;
        }
    )*};
}
reducible! {
    i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    half::f16 => F16, half::bf16 => Bf16, f32 => F32, f64 => F64,
    F8E4M3 => F8E4M3, F8E5M2 => F8E5M2,
}
