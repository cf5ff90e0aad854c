// Conversions of narrow floating-point formats, for targets without instructions for them: exact to f32, and back with
// one rounding to nearest, ties to even.
//
// Both directions are a shift and a scaling by a power of two, with selects instead of branches. f32 multiplication
// must keep subnormal numbers: do not compile with flushing to zero.
#pragma once

#include "symmem/arch.h"

namespace symmem {

// A format with a sign, `exponent` and `mantissa` bits. A `finite` format has no infinities (OCP E4M3); only the
// pattern of all ones is NaN. A format that `saturates` converts larger numbers, also infinities, to its largest finite
// number, as hardware conversions can.
template <int exponent, int mantissa, bool finite, bool saturates>
struct Format {
  static constexpr uint32 bias = (1u << (exponent - 1)) - 1;
  static constexpr uint32 magnitude_bits = (1u << (exponent + mantissa)) - 1;  // all bits except the sign
  // The first pattern that is not a finite number.
  static constexpr uint32 first_special =
      finite ? magnitude_bits : magnitude_bits & ~((1u << mantissa) - 1);
  static constexpr uint32 largest = first_special - (saturates ? 1 : 0);
  static constexpr int shift = 23 - mantissa;
  static constexpr uint32 infinity = 0xffu << 23;

  SYMMEM_DEVICE static float widen(uint32 bits) {
    const uint32 magnitude = bits & magnitude_bits;
    const uint32 sign = bits >> (exponent + mantissa) << 31;
    // The shifted exponent is too small by the difference of the biases; the multiplication corrects it. A subnormal
    // pattern is a subnormal f32 here, and the multiplication makes it normal.
    const float number = arch::float_of(magnitude << shift) * arch::float_of((254 - bias) << 23);
    const uint32 special = infinity | (magnitude & ((1u << mantissa) - 1)) << shift;
    return arch::float_of(sign | (magnitude >= first_special ? special : arch::bits_of(number)));
  }

  // Converts NaN to all ones without the sign, as hardware conversions do.
  SYMMEM_DEVICE static uint32 narrow(float number) {
    const uint32 bits = arch::bits_of(number);
    const uint32 sign = bits >> 31;
    const uint32 magnitude = bits & 0x7fffffffu;
    // Half a unit of the last kept place, less one if that place is even.
    const uint32 half = (1u << (shift - 1)) - 1 + (magnitude >> shift & 1);
    const uint32 normal = ((magnitude + half) >> shift) - ((127 - bias) << mantissa);
    // At this magnitude an f32 has the resolution of a subnormal pattern, so the addition rounds.
    const uint32 anchor = (127 + 23 + 1 - bias - mantissa) << 23;
    const uint32 subnormal = arch::bits_of(arch::float_of(magnitude) + arch::float_of(anchor)) - anchor;
    uint32 pattern = magnitude < (128 - bias) << 23 ? subnormal : normal;
    if (pattern > largest) pattern = largest;
    return magnitude > infinity ? magnitude_bits : pattern | sign << (exponent + mantissa);
  }
};

}  // namespace symmem
