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

/// Evaluates an expression in which `$T` is the Rust type of an [`ElementType`]: for programs in which the type of elements is a
/// value, as it is in C and Python.
///
/// ```
/// use symmem::{ElementType, with_element};
/// let bytes = with_element!(ElementType::Bf16, T => size_of::<T>());
/// assert_eq!(bytes, 2);
/// ```
#[macro_export]
macro_rules! with_element {
    ($element:expr, $T:ident => $body:expr) => {
        $crate::with_element!(@each $element, $T => $body; I8 = i8, U8 = u8, I16 = i16, U16 = u16, I32 = i32, U32 = u32,
            I64 = i64, U64 = u64, F16 = $crate::half::f16, Bf16 = $crate::half::bf16, F32 = f32, F64 = f64,
            F8E4M3 = $crate::F8E4M3, F8E5M2 = $crate::F8E5M2)
    };
    (@each $element:expr, $T:ident => $body:expr; $($name:ident = $type:ty),*) => {
        match $element {
            $($crate::ElementType::$name => {
                type $T = $type;
                $body
            })*
            // The enumeration may grow, and this list with it.
            #[allow(unreachable_patterns)]
            other => unreachable!("{other:?} has no Rust type"),
        }
    };
}
