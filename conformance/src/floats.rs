//! Floating-point formats of at most 32 bits, implemented from their definition: sign, exponent, mantissa.
//!
//! Slow and plain on purpose, and independent of the library's conversions: this is the reference for
//! kernels that round by instructions or bit tricks.

use super::dtype::Dtype;

/// A format: its field widths, and the meaning of its highest exponent.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Bits of the exponent.
    pub exponent: u32,
    /// Bits of the mantissa.
    pub mantissa: u32,
    /// Whether the highest exponent encodes numbers too, and only all ones is NaN (OCP E4M3).
    finite: bool,
    /// Whether overflow gives the largest number instead of infinity.
    saturating: bool,
}

impl Format {
    /// Returns the format of a floating-point type of at most 32 bits; the format of f32 for all other types.
    pub fn of(dtype: Dtype) -> Self {
        let (exponent, mantissa) = match dtype {
            Dtype::F16 => (5, 10),
            Dtype::Bf16 => (8, 7),
            Dtype::F8E4m3 => (4, 3),
            Dtype::F8E5m2 => (5, 2),
            _ => (8, 23),
        };
        Self {
            exponent,
            mantissa,
            finite: dtype == Dtype::F8E4m3,
            saturating: matches!(dtype, Dtype::F8E4m3 | Dtype::F8E5m2),
        }
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The highest stored exponent.
    fn top(self) -> u32 {
        (1 << self.exponent) - 1
    }

    fn sign(self) -> u32 {
        1 << (self.exponent + self.mantissa)
    }

    /// The bits of positive infinity; only for formats that have one.
    fn infinity(self) -> u32 {
        self.top() << self.mantissa
    }

    /// Returns the bits of the largest finite number.
    pub fn largest(self) -> u32 {
        if self.finite {
            // All ones is NaN; the number before it is the largest.
            self.sign() - 2
        } else {
            self.infinity() - 1
        }
    }

    /// Decodes `bits`. Exact, since f32 has every value of every narrower format.
    pub fn decode(self, bits: u32) -> f32 {
        let magnitude = bits & (self.sign() - 1);
        let sign = if bits & self.sign() == 0 { 1.0 } else { -1.0 };
        if magnitude > self.largest() {
            let is_infinity = !self.finite && magnitude == self.infinity();
            return if is_infinity {
                sign as f32 * f32::INFINITY
            } else {
                f32::NAN
            };
        }
        let exponent = (magnitude >> self.mantissa) as i32;
        let hidden = if exponent == 0 { 0 } else { 1 << self.mantissa };
        let digits = (magnitude & ((1 << self.mantissa) - 1)) | hidden;
        (sign * f64::from(digits) * self.unit(exponent.max(1))) as f32
    }

    /// The unit in the last place of numbers whose stored exponent is `exponent`.
    fn unit(self, exponent: i32) -> f64 {
        // The power is a normal f64 with mantissa 0, so its bits are the biased exponent alone.
        let power = exponent - self.bias() - self.mantissa as i32;
        f64::from_bits(((power + 1023) as u64) << 52)
    }

    /// Rounds `value` to the nearest number of the format, ties to even, and returns its bits.
    pub fn encode(self, value: f32) -> u32 {
        let sign = if value.is_sign_negative() {
            self.sign()
        } else {
            0
        };
        if value.is_nan() {
            return sign | (self.sign() - 1);
        }
        let magnitude = f64::from(value.abs());
        let over = if self.saturating {
            self.largest()
        } else {
            self.infinity()
        };
        if magnitude.is_infinite() {
            return sign | over;
        }
        // A nonzero f32 is a normal f64; 0 has the lowest exponent and no digits.
        let power = (magnitude.to_bits() >> 52) as i32 - 1023;
        let exponent = (power + self.bias()).max(1);
        let digits = (magnitude / self.unit(exponent)).round_ties_even();
        // The digits include the hidden bit unless the number is subnormal. Rounding up to the next
        // power of two carries into the exponent, which is correct.
        let bits = ((exponent as u64 - 1) << self.mantissa) + digits as u64;
        sign | if bits > u64::from(self.largest()) {
            over
        } else {
            bits as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_from_its_value() {
        for (dtype, values) in [
            (Dtype::F16, 1 << 16),
            (Dtype::Bf16, 1 << 16),
            (Dtype::F8E4m3, 256),
            (Dtype::F8E5m2, 256),
        ] {
            let format = Format::of(dtype);
            for bits in 0..values {
                let value = format.decode(bits);
                if value.is_nan() {
                    assert!(format.decode(format.encode(value)).is_nan());
                } else if value.is_finite() || !format.saturating {
                    assert_eq!(format.encode(value), bits, "{dtype:?} {bits:#x} {value}");
                }
            }
        }
    }

    #[test]
    fn half_precision_agrees_with_the_library_of_it() {
        let mut random = crate::covering::Random(1);
        let (f16, bf16) = (Format::of(Dtype::F16), Format::of(Dtype::Bf16));
        for bits in 0..=u16::MAX {
            let (a, b) = (half::f16::from_bits(bits), half::bf16::from_bits(bits));
            assert!(a.to_f32() == f16.decode(bits.into()) || a.is_nan());
            assert!(b.to_f32() == bf16.decode(bits.into()) || b.is_nan());
        }
        for _ in 0..200_000 {
            let value = f32::from_bits(random.number() as u32);
            // Most f32 are far outside f16's range; scale some into it.
            let near = (value.to_bits() >> 16) as f32 * 1e-5;
            for value in [value, near, near * 1e-5] {
                if !value.is_nan() {
                    assert_eq!(
                        f16.encode(value),
                        u32::from(half::f16::from_f32(value).to_bits()),
                        "{value:e}"
                    );
                    assert_eq!(
                        bf16.encode(value),
                        u32::from(half::bf16::from_f32(value).to_bits()),
                        "{value:e}"
                    );
                }
            }
        }
    }

    #[test]
    fn eight_bits_round_to_the_nearest_by_trial_of_all() {
        for dtype in [Dtype::F8E4m3, Dtype::F8E5m2] {
            let format = Format::of(dtype);
            let numbers: Vec<(u32, f32)> = (0..=format.largest())
                .map(|bits| (bits, format.decode(bits)))
                .collect();
            let mut random = crate::covering::Random(2);
            for step in 0..20_000 {
                // Halfway between two numbers, or anywhere.
                let at = random.below(numbers.len() - 1);
                let value = if step % 2 == 0 {
                    (numbers[at].1 + numbers[at + 1].1) / 2.0
                } else {
                    numbers[at].1 + numbers[1].1 * random.below(1000) as f32 / 250.0
                };
                let distance = |number: f32| (f64::from(number) - f64::from(value)).abs();
                let nearest = numbers
                    .iter()
                    .min_by(|a, b| {
                        let by_distance = distance(a.1).total_cmp(&distance(b.1));
                        by_distance.then((a.0 % 2).cmp(&(b.0 % 2)))
                    })
                    .unwrap();
                assert_eq!(format.encode(value), nearest.0, "{dtype:?} {value}");
                assert_eq!(format.encode(-value), nearest.0 | 0x80, "{dtype:?} {value}");
            }
        }
    }

    #[test]
    fn eight_bits_saturate_and_know_their_limits() {
        let (e4m3, e5m2) = (Format::of(Dtype::F8E4m3), Format::of(Dtype::F8E5m2));
        assert_eq!(e4m3.decode(0x7e), 448.0);
        assert_eq!(e5m2.decode(0x7b), 57344.0);
        assert_eq!(e4m3.decode(0x01), 2f32.powi(-9));
        assert_eq!(e5m2.decode(0x01), 2f32.powi(-16));
        for huge in [1e30, f32::INFINITY] {
            assert_eq!(e4m3.encode(huge), 0x7e);
            assert_eq!(e5m2.encode(-huge), 0xfb);
        }
        assert!(e4m3.decode(0x7f).is_nan() && e5m2.decode(0x7d).is_nan());
        assert_eq!(e5m2.decode(0xfc), f32::NEG_INFINITY);
        assert_eq!(Format::of(Dtype::F16).encode(65520.0), 0x7c00);
    }
}
