//! Element types.

use serde::{Deserialize, Serialize};

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are the types")]
pub enum Dtype {
    U8,
    I8,
    F8E4m3,
    F8E5m2,
    U16,
    I16,
    F16,
    Bf16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
}

impl Dtype {
    /// All types.
    pub const ALL: [Self; 14] = [
        Self::U8,
        Self::I8,
        Self::F8E4m3,
        Self::F8E5m2,
        Self::U16,
        Self::I16,
        Self::F16,
        Self::Bf16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// Whether the type is floating point.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            Self::F8E4m3 | Self::F8E5m2 | Self::F16 | Self::Bf16 | Self::F32 | Self::F64
        )
    }

    /// Returns the size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::F8E4m3 | Self::F8E5m2 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// Runs `$body` with `$T` as the Rust type of `$dtype`.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::dtype::with_element! {
            @ $dtype, $T => $body;
            U8 u8, I8 i8, F8E4m3 symmem::F8E4M3, F8E5m2 symmem::F8E5M2,
            U16 u16, I16 i16, F16 half::f16, Bf16 half::bf16,
            U32 u32, I32 i32, F32 f32,
            U64 u64, I64 i64, F64 f64,
        }
    };
    (@ $dtype:expr, $T:ident => $body:expr; $($name:ident $type:ty,)*) => {
        match $dtype {
            $($crate::dtype::Dtype::$name => {
                type $T = $type;
                $body
            })*
        }
    };
}
pub(super) use with_element;
