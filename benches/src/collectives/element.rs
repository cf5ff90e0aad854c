//! The element types that can be measured.

use symmem::{ElementType, F8E4M3, F8E5M2, Reducible};

/// An element type, with its name in nccl-tests.
pub(super) trait Sample: Reducible {
    /// The name in nccl-tests' `type` column.
    const NAME: &'static str;
    /// The type represents every whole number from 0 to this one exactly.
    const LARGEST_EXACT: u32;
    /// Converts a whole number up to `LARGEST_EXACT`.
    fn number(value: u32) -> Self;

    /// The type as data.
    const ELEMENT: SampleType = SampleType {
        name: Self::NAME,
        size: size_of::<Self>(),
        kind: Self::TYPE,
        largest_exact: Self::LARGEST_EXACT,
        write: write::<Self>,
    };
}

/// An element type as data, for code that is compiled once for all types.
#[derive(Clone, Copy)]
pub(crate) struct SampleType {
    /// The name in nccl-tests' `type` column.
    pub name: &'static str,
    /// Bytes of an element.
    pub size: usize,
    pub kind: ElementType,
    /// The type represents every whole number from 0 to this one exactly.
    pub largest_exact: u32,
    /// Writes whole numbers as consecutive elements.
    pub write: fn(&[u32], &mut [u8]),
}

fn write<T: Sample>(numbers: &[u32], bytes: &mut [u8]) {
    for (number, element) in numbers.iter().zip(bytes.chunks_exact_mut(size_of::<T>())) {
        element.copy_from_slice(T::number(*number).as_bytes());
    }
}

macro_rules! samples {
    ($($type:ty, $name:literal, $largest:expr, $value:ident => $number:expr;)*) => {$(
        impl Sample for $type {
            const NAME: &'static str = $name;
            const LARGEST_EXACT: u32 = $largest;
            fn number($value: u32) -> Self {
                $number
            }
        }
    )*};
}

samples! {
    i8, "int8", 127, value => value as i8;
    u8, "uint8", 254, value => value as u8;
    i16, "int16", 1 << 14, value => value as i16;
    u16, "uint16", 1 << 15, value => value as u16;
    i32, "int32", 1 << 24, value => value as i32;
    u32, "uint32", 1 << 24, value => value;
    i64, "int64", 1 << 24, value => i64::from(value);
    u64, "uint64", 1 << 24, value => u64::from(value);
    f32, "float", 1 << 24, value => value as f32;
    f64, "double", 1 << 24, value => f64::from(value);
    half::f16, "half", 1 << 11, value => half::f16::from_f32(value as f32);
    half::bf16, "bfloat16", 1 << 8, value => half::bf16::from_f32(value as f32);
    F8E4M3, "f8e4m3", 1 << 4, value => F8E4M3::from_f32(value as f32);
    F8E5M2, "f8e5m2", 1 << 3, value => F8E5M2::from_f32(value as f32);
}

/// symmem's names of the types, and those of nccl-tests.
const NAMES: [(&str, &str); 14] = [
    ("i8", "int8"),
    ("u8", "uint8"),
    ("i16", "int16"),
    ("u16", "uint16"),
    ("i32", "int32"),
    ("u32", "uint32"),
    ("i64", "int64"),
    ("u64", "uint64"),
    ("f32", "float"),
    ("f64", "double"),
    ("f16", "half"),
    ("bf16", "bfloat16"),
    ("e4m3", "f8e4m3"),
    ("e5m2", "f8e5m2"),
];

/// Returns nccl-tests' name of a type, given symmem's name or nccl-tests' name.
pub fn nccl_name(name: &str) -> Option<&'static str> {
    NAMES
        .iter()
        .find(|(ours, theirs)| name == *ours || name == *theirs)
        .map(|(_, theirs)| *theirs)
}

/// Evaluates `$body` with `$element` as the type that nccl-tests calls `$name`; `$otherwise` if there is none.
macro_rules! with_element {
    ($name:expr, $element:ident => $body:expr, else $otherwise:expr) => {
        $crate::collectives::element::with_element! {
            @ $name, $element => $body, else $otherwise;
            "int8" i8, "uint8" u8, "int16" i16, "uint16" u16,
            "int32" i32, "uint32" u32, "int64" i64, "uint64" u64,
            "float" f32, "double" f64, "half" half::f16, "bfloat16" half::bf16,
            "f8e4m3" symmem::F8E4M3, "f8e5m2" symmem::F8E5M2,
        }
    };
    (@ $name:expr, $element:ident => $body:expr, else $otherwise:expr; $($text:literal $type:ty,)*) => {
        match $name {
            $($text => {
                type $element = $type;
                $body
            })*
            _ => $otherwise,
        }
    };
}
pub(super) use with_element;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_type_of_that_name() {
        for (ours, theirs) in NAMES {
            assert_eq!(nccl_name(ours), Some(theirs));
            let found = with_element!(theirs, T => T::NAME, else "none");
            assert_eq!(found, theirs);
        }
        assert_eq!(nccl_name("float8"), None);
    }

    #[test]
    fn the_largest_exact_number_is_exact_and_a_larger_one_need_not_be() {
        fn check<T: Sample + Into<f64>>() {
            let value: f64 = T::number(T::LARGEST_EXACT).into();
            assert_eq!(value, f64::from(T::LARGEST_EXACT), "{}", T::NAME);
        }
        check::<half::bf16>();
        assert_eq!(F8E4M3::number(16).to_f32(), 16.0);
        assert_eq!(F8E5M2::number(8).to_f32(), 8.0);
        assert_ne!(F8E5M2::number(9).to_f32(), 9.0);
        check::<half::f16>();
        check::<f32>();
        check::<i8>();
        check::<u16>();
        let beyond = half::bf16::from_f32(257.0);
        assert_ne!(f32::from(beyond), 257.0);
    }
}
