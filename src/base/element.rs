//! Element types of symmetric buffers.

use symmem_core::float::{E4m3, E5m2};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An element type: plain old data, for which any bytes are a value, and a value has no other state. Peers
/// overwrite elements at any time, so a weaker bound would be unsound.
///
/// All integers, `f32`, `f64`, `half::f16` and `half::bf16` are elements. For a `repr(C)` struct of your own
/// derive zerocopy's traits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of symmetric memory",
    label = "not plain old data",
    note = "peers overwrite elements at any time, so any bytes must be a value and a value must have no \
            padding: references, `bool`, `char` and most enums are not elements; store a `bool` as `u8`",
    note = "for a struct of your own, depend on zerocopy 0.8 and write `#[derive(Clone, Copy, \
            FromBytes, IntoBytes, Immutable)] #[repr(C)]`"
)]
pub trait Element: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> Element for T {}

macro_rules! eight_bits {
    ($(#[$doc:meta])* $name:ident, $format:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
        pub struct $name(
            /// The bits.
            pub u8,
        );

        impl $name {
            /// Rounds to the nearest value of this format, ties to even. A value out of range becomes the
            /// largest finite one; NaN stays NaN.
            pub fn from_f32(number: f32) -> Self {
                Self($format::narrow(number) as u8)
            }

            /// Converts exactly.
            pub fn to_f32(self) -> f32 {
                $format::widen(self.0.into())
            }
        }
    };
}
eight_bits!(
    /// fp8 with 4 bits of exponent and 3 of mantissa, without infinities (OCP E4M3).
    F8E4M3,
    E4m3
);
eight_bits!(
    /// fp8 with 5 bits of exponent and 2 of mantissa (OCP E5M2).
    F8E5M2,
    E5m2
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_eight_bits_survive_their_way_through_f32() {
        for bits in 0..=u8::MAX {
            let small = F8E4M3(bits).to_f32();
            if !small.is_nan() {
                assert_eq!(F8E4M3::from_f32(small).0, bits);
            }
            let large = F8E5M2(bits).to_f32();
            if large.is_finite() {
                assert_eq!(F8E5M2::from_f32(large).0, bits);
            }
        }
        assert_eq!(F8E4M3::from_f32(1e9).to_f32(), 448.0);
        assert_eq!(F8E5M2::from_f32(-1e9).to_f32(), -57344.0);
        assert!(F8E4M3::from_f32(f32::NAN).to_f32().is_nan());
    }
}
