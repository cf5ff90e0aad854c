// Reference implementations of number formats and reductions, straight from their definitions and in wide numbers, for
// the tests of the device code on the host.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "../entries/reduce.h"
#include "../entries/reduce_packets.h"
#include "../entries/reduce_push.h"

namespace {

// The number of failed expectations; the first 20 are printed.
std::atomic<unsigned> failures{0};

inline void expect(bool condition, const std::string& what) {
  if (condition) return;
  if (++failures <= 20) std::fprintf(stderr, "failed: %s\n", what.c_str());
}

// ---- formats ----

// Returns the number of a pattern in a format with `exponent` and `mantissa` bits; `finite` formats have no infinities.
inline double defined(int exponent, int mantissa, bool finite, uint32 bits) {
  const int bias = (1 << (exponent - 1)) - 1;
  const int fraction = static_cast<int>(bits & ((1u << mantissa) - 1));
  const int power = static_cast<int>(bits >> mantissa & ((1u << exponent) - 1));
  const double sign = bits >> (exponent + mantissa) & 1 ? -1 : 1;
  const bool top = power == (1 << exponent) - 1;
  if (top && !finite) return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  if (top && fraction == (1 << mantissa) - 1) return std::nan("");
  const double places = std::ldexp(fraction, -mantissa);
  return sign * (power == 0 ? std::ldexp(places, 1 - bias) : std::ldexp(1 + places, power - bias));
}

// Returns the nearest pattern, ties to even, by comparison with the neighbors among all finite patterns.
inline uint32 nearest(int exponent, int mantissa, bool finite, bool saturates, float number) {
  const uint32 sign = std::signbit(number) ? 1u << (exponent + mantissa) : 0;
  const uint32 all = (1u << (exponent + mantissa)) - 1;
  if (std::isnan(number)) return all;
  const double magnitude = std::fabs(static_cast<double>(number));
  uint32 largest = all;
  while (!std::isfinite(defined(exponent, mantissa, finite, largest))) --largest;
  uint32 low = 0, high = largest;  // search for the last pattern not above the number
  while (low < high) {
    const uint32 middle = (low + high + 1) / 2;
    if (defined(exponent, mantissa, finite, middle) <= magnitude) low = middle;
    else high = middle - 1;
  }
  const double below = defined(exponent, mantissa, finite, low);
  if (low == largest) {
    const double step = below - defined(exponent, mantissa, finite, low - 1);
    const bool over = magnitude >= below + step / 2;
    return sign | (over && !saturates ? largest + 1 : largest);
  }
  const double above = defined(exponent, mantissa, finite, low + 1);
  const bool up = magnitude - below > above - magnitude || (magnitude - below == above - magnitude && low % 2 == 1);
  return sign | (up ? low + 1 : low);
}

// ---- reductions ----

struct PlainType {
  ElementType type;
  uint32 bytes;
  int exponent, mantissa;  // bits of narrow floating-point types
  void (*barriered)(const ReduceArguments&);
  void (*packets)(const ReducePacketArguments&);
  void (*pushed)(const ReducePushArguments&);  // null for most types
};

#define PLAIN_PUSHED(name, bytes, exponent, mantissa, pushed) \
  {ElementType::name, bytes, exponent, mantissa, symmem_reduce_##name, symmem_reduce_packets_##name, pushed}
#define PLAIN(name, bytes, exponent, mantissa) PLAIN_PUSHED(name, bytes, exponent, mantissa, nullptr)
#define PUSHED(name, bytes, exponent, mantissa) PLAIN_PUSHED(name, bytes, exponent, mantissa, symmem_reduce_push_##name)
const PlainType types[] = {
    PLAIN(i8, 1, 0, 0),  PLAIN(u8, 1, 0, 0),  PLAIN(i16, 2, 0, 0),  PLAIN(u16, 2, 0, 0),   PLAIN(i32, 4, 0, 0),
    PLAIN(u32, 4, 0, 0), PLAIN(i64, 8, 0, 0), PLAIN(u64, 8, 0, 0),  PUSHED(f16, 2, 5, 10),  PUSHED(bf16, 2, 8, 7),
    PUSHED(f32, 4, 0, 0), PLAIN(f64, 8, 0, 0), PLAIN(f8_e4m3, 1, 4, 3), PLAIN(f8_e5m2, 1, 5, 2)};

template <class Number>
Number reduced(const std::vector<Number>& all, ReduceOperation operation) {
  Number result = all[0];
  for (size_t member = 1; member < all.size(); ++member) {
    const Number other = all[member];
    switch (operation) {
      case ReduceOperation::minimum: result = result != result || other != other ? result + other : std::min(result, other); break;
      case ReduceOperation::maximum: result = result != result || other != other ? result + other : std::max(result, other); break;
      case ReduceOperation::product: result = result * other; break;
      default: result = result + other;
    }
  }
  return operation == ReduceOperation::average ? result / static_cast<Number>(all.size()) : result;
}

// Reduces integers of `bits` bits. Sums and products are right modulo 2^bits in any wider type; an average divides a
// sum in the type's wide form.
inline uint64 reduced_integers(const std::vector<uint64>& all, ReduceOperation operation, uint32 bits, bool is_signed) {
  const uint32 wide = bits < 32 ? 32 : bits;
  const auto cut = [&](uint64 value, uint32 to) {
    if (to == 64) return value;
    const uint64 low = value & ((1ull << to) - 1);
    return is_signed && (low >> (to - 1)) != 0 ? low | ~0ull << to : low;
  };
  uint64 result = cut(all[0], bits);
  for (size_t member = 1; member < all.size(); ++member) {
    const uint64 other = cut(all[member], bits);
    const bool less = is_signed ? static_cast<long long>(other) < static_cast<long long>(result) : other < result;
    switch (operation) {
      case ReduceOperation::minimum: result = less ? other : result; break;
      case ReduceOperation::maximum: result = less ? result : other; break;
      case ReduceOperation::product: result = cut(result * other, wide); break;
      default: result = cut(result + other, wide);
    }
  }
  if (operation == ReduceOperation::average) {
    result = is_signed ? static_cast<uint64>(static_cast<long long>(result) / static_cast<long long>(all.size()))
                       : result / all.size();
  }
  return result;
}

inline uint64 reference(const PlainType& plain, const std::vector<uint64>& all, ReduceOperation operation) {
  const bool e4m3 = plain.type == ElementType::f8_e4m3;
  if (plain.exponent != 0) {
    std::vector<float> wide;
    for (uint64 bits : all) wide.push_back(static_cast<float>(defined(plain.exponent, plain.mantissa, e4m3, static_cast<uint32>(bits))));
    return nearest(plain.exponent, plain.mantissa, e4m3, plain.bytes == 1, reduced(wide, operation));
  }
  if (plain.type == ElementType::f32) {
    std::vector<float> wide;
    for (uint64 bits : all) wide.push_back(arch::float_of(static_cast<uint32>(bits)));
    return arch::bits_of(reduced(wide, operation));
  }
  if (plain.type == ElementType::f64) {
    std::vector<double> wide;
    for (uint64 bits : all) wide.push_back(arch::float_of(bits));
    return arch::bits_of(reduced(wide, operation));
  }
  const bool is_signed = plain.type == ElementType::i8 || plain.type == ElementType::i16 || plain.type == ElementType::i32 ||
                         plain.type == ElementType::i64;
  return reduced_integers(all, operation, plain.bytes * 8, is_signed);
}

// Returns the bits of a small number, never NaN and never a signed zero.
inline uint64 element(const PlainType& plain, uint32 dice) {
  const double number = (static_cast<int>(dice % 61) - 30) * 0.125 + 0.0625;
  if (plain.exponent != 0) {
    const bool e4m3 = plain.type == ElementType::f8_e4m3;
    return nearest(plain.exponent, plain.mantissa, e4m3, plain.bytes == 1, static_cast<float>(number));
  }
  if (plain.type == ElementType::f32) return arch::bits_of(static_cast<float>(number));
  if (plain.type == ElementType::f64) return arch::bits_of(number);
  return static_cast<uint64>(dice) * 0x9e3779b97f4a7c15ull >> (64 - plain.bytes * 8);
}

}  // namespace
