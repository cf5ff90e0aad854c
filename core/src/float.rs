//! Conversions between f32 and narrower floating-point formats: exact to f32, and rounded once (to nearest, ties to
//! even) from f32.
//!
//! Both directions are branch-free, so that the compiler vectorizes the loops around them: a shift, a multiplication
//! by a power of two, and selects.

/// A format with a sign bit, `EXPONENT` exponent bits and `MANTISSA` mantissa bits.
///
/// With `FINITE` the format has no infinities (OCP E4M3): only the pattern of all ones is NaN. With `SATURATE`,
/// numbers that are too large, infinities included, become the largest finite number, as in the hardware's saturating
/// conversions.
pub struct Format<
    const EXPONENT: u32,
    const MANTISSA: u32,
    const FINITE: bool,
    const SATURATE: bool,
>;

/// IEEE 754 half precision.
pub type Half = Format<5, 10, false, false>;
/// bfloat16: the upper half of an `f32`.
pub type Bfloat = Format<8, 7, false, false>;
/// OCP fp8 E4M3: no infinities, saturating.
pub type E4m3 = Format<4, 3, true, true>;
/// OCP fp8 E5M2: saturating.
pub type E5m2 = Format<5, 2, false, true>;

const SIGN: u32 = 1 << 31;
const INFINITY: u32 = 0xff << 23;

impl<const EXPONENT: u32, const MANTISSA: u32, const FINITE: bool, const SATURATE: bool>
    Format<EXPONENT, MANTISSA, FINITE, SATURATE>
{
    const BIAS: u32 = (1 << (EXPONENT - 1)) - 1;
    /// All bits but the sign.
    const MAGNITUDE: u32 = (1 << (EXPONENT + MANTISSA)) - 1;
    /// The smallest magnitude whose pattern is not a finite number.
    const FIRST_SPECIAL: u32 = if FINITE {
        Self::MAGNITUDE
    } else {
        Self::MAGNITUDE & !((1 << MANTISSA) - 1)
    };
    /// The pattern of numbers that are too large.
    const LARGEST: u32 = Self::FIRST_SPECIAL - if SATURATE { 1 } else { 0 };
    const SHIFT: u32 = 23 - MANTISSA;

    /// Returns the number that a pattern stands for.
    #[inline(always)]
    pub fn widen(bits: u32) -> f32 {
        let magnitude = bits & Self::MAGNITUDE;
        let sign = (bits >> (EXPONENT + MANTISSA)) << 31;
        // The exponent is too small by the difference of the biases. A subnormal pattern is here a subnormal f32,
        // which the multiplication makes normal.
        let scale = f32::from_bits((254 - Self::BIAS) << 23);
        let number = f32::from_bits(magnitude << Self::SHIFT) * scale;
        let special = INFINITY | (magnitude & ((1 << MANTISSA) - 1)) << Self::SHIFT;
        let magnitude = if magnitude >= Self::FIRST_SPECIAL {
            special
        } else {
            number.to_bits()
        };
        f32::from_bits(sign | magnitude)
    }

    /// Returns the pattern nearest to a number. NaN becomes the pattern of all ones, without the sign, as on GPUs.
    #[inline(always)]
    pub fn narrow(number: f32) -> u32 {
        let bits = number.to_bits();
        let (sign, magnitude) = (bits & SIGN, bits & !SIGN);
        // Half of the last kept place, minus one if that place is even: ties go to even.
        let half = (1 << (Self::SHIFT - 1)) - 1 + (magnitude >> Self::SHIFT & 1);
        let normal = (magnitude.wrapping_add(half) >> Self::SHIFT)
            .wrapping_sub((127 - Self::BIAS) << MANTISSA);
        // An f32 of the anchor's size has the same last place as a subnormal pattern, so the addition rounds.
        let anchor = f32::from_bits((127 + 23 + 1 - Self::BIAS - MANTISSA) << 23);
        let subnormal = (f32::from_bits(magnitude) + anchor)
            .to_bits()
            .wrapping_sub(anchor.to_bits());
        let pattern = if magnitude < (128 - Self::BIAS) << 23 {
            subnormal
        } else {
            normal
        };
        let pattern = if pattern > Self::LARGEST {
            Self::LARGEST
        } else {
            pattern
        };
        if magnitude > INFINITY {
            Self::MAGNITUDE
        } else {
            pattern | sign >> (31 - EXPONENT - MANTISSA)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Evaluates the format's definition in f64, which represents these numbers and their sums exactly.
    fn defined(exponent: u32, mantissa: u32, finite: bool, bits: u32) -> f64 {
        let bias = (1 << (exponent - 1)) - 1;
        let fraction = bits & ((1 << mantissa) - 1);
        let power = bits >> mantissa & ((1 << exponent) - 1);
        let sign = if bits >> (exponent + mantissa) == 1 {
            -1.0
        } else {
            1.0
        };
        let top = (1 << exponent) - 1;
        if power == top && !finite {
            return if fraction == 0 {
                sign * f64::INFINITY
            } else {
                f64::NAN
            };
        }
        if power == top && fraction == (1 << mantissa) - 1 {
            return f64::NAN;
        }
        let places = f64::from(fraction) / f64::from(1u32 << mantissa);
        let (leading, power) = if power == 0 {
            (0.0, 1)
        } else {
            (1.0, power as i32)
        };
        sign * (leading + places) * 2f64.powi(power - bias)
    }

    /// Rounds to nearest, ties to even, by comparing with every finite pattern.
    fn nearest(numbers: &[f64], number: f64) -> u32 {
        let above = numbers.partition_point(|candidate| *candidate < number);
        if above == numbers.len() {
            return above as u32 - 1;
        }
        if above == 0 || numbers[above] == number {
            return above as u32;
        }
        let (low, high) = (number - numbers[above - 1], numbers[above] - number);
        let even = (above - 1) % 2 == 0;
        (if low < high || low == high && even {
            above - 1
        } else {
            above
        }) as u32
    }

    fn agree<const E: u32, const M: u32, const F: bool, const S: bool>() {
        let patterns = 1 << (E + M);
        for bits in 0..2 * patterns {
            let (made, wanted) = (Format::<E, M, F, S>::widen(bits), defined(E, M, F, bits));
            assert!(
                f64::from(made) == wanted || made.is_nan() && wanted.is_nan(),
                "{bits:#x} is {wanted}, not {made}"
            );
            assert!(wanted.is_nan() || made.is_sign_negative() == (bits >= patterns));
            if !(wanted.is_nan() || S && wanted.is_infinite()) {
                assert_eq!(
                    Format::<E, M, F, S>::narrow(made),
                    bits,
                    "{wanted} goes back"
                );
            }
        }
        let finite: Vec<f64> = (0..patterns)
            .map(|bits| defined(E, M, F, bits))
            .take_while(|number| number.is_finite())
            .collect();
        // Each number, the midpoint to the next one, and the f32 values right beside both.
        let mut numbers = vec![0.0f32, f32::MIN_POSITIVE, f32::from_bits(1), f32::MAX];
        for pair in finite.windows(2) {
            for number in [pair[0] as f32, ((pair[0] + pair[1]) / 2.0) as f32] {
                numbers.extend([number, number.next_up(), number.next_down().max(0.0)]);
            }
        }
        let largest = *finite.last().unwrap();
        let step = largest - finite[finite.len() - 2];
        for number in numbers {
            let over = f64::from(number) >= largest + step / 2.0;
            let wanted = if over && !S {
                finite.len() as u32
            } else {
                nearest(&finite, f64::from(number))
            };
            assert_eq!(Format::<E, M, F, S>::narrow(number), wanted, "{number:e}");
            assert_eq!(
                Format::<E, M, F, S>::narrow(-number),
                wanted | patterns,
                "-{number:e}"
            );
        }
        assert_eq!(Format::<E, M, F, S>::narrow(f32::NAN), patterns - 1);
        assert_eq!(Format::<E, M, F, S>::narrow(-f32::NAN), patterns - 1);
        let infinite = finite.len() as u32 - u32::from(S);
        assert_eq!(Format::<E, M, F, S>::narrow(f32::INFINITY), infinite);
        assert_eq!(
            Format::<E, M, F, S>::narrow(f32::NEG_INFINITY),
            infinite | patterns
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn every_pattern_means_what_its_format_defines_and_every_number_goes_to_the_nearest() {
        agree::<5, 10, false, false>();
        agree::<8, 7, false, false>();
        agree::<4, 3, true, true>();
        agree::<5, 2, false, true>();
    }

    #[test]
    fn the_largest_numbers_are_those_of_the_standards() {
        assert_eq!(Half::widen(Half::LARGEST - 1), 65504.0);
        assert_eq!(E4m3::widen(E4m3::LARGEST), 448.0);
        assert_eq!(E5m2::widen(E5m2::LARGEST), 57344.0);
        assert_eq!(Bfloat::widen(0x3f80), 1.0);
    }
}
