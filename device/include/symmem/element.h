// Element types and their reduction over members: always in the members' order, in a wider type, with one rounding at
// the end. A result thus has the same bits on every rank and for every partition of the elements. (The payload of a NaN
// is not guaranteed.)
#pragma once

#include "symmem/float.h"

namespace symmem {

// An integer type, reduced in `Wide_`. Sums and products are computed in `Unsigned`, so that they wrap.
template <class Bits_, class Stored, class Wide_, class Unsigned>
struct IntegerElement {
  using Bits = Bits_;
  using Wide = Wide_;
  static constexpr bool hurried = false;
  SYMMEM_DEVICE static Wide widen(Bits bits) { return static_cast<Wide>(static_cast<Stored>(bits)); }
  SYMMEM_DEVICE static Bits narrow(Wide wide) { return static_cast<Bits>(static_cast<Unsigned>(wide)); }
  SYMMEM_DEVICE static Wide sum(Wide a, Wide b) {
    return static_cast<Wide>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  }
  SYMMEM_DEVICE static Wide product(Wide a, Wide b) {
    return static_cast<Wide>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
  }
  SYMMEM_DEVICE static Wide minimum(Wide a, Wide b) { return a < b ? a : b; }
  SYMMEM_DEVICE static Wide maximum(Wide a, Wide b) { return a > b ? a : b; }
  SYMMEM_DEVICE static Wide divided(Wide wide, uint32 members) { return wide / static_cast<Wide>(members); }
};

// Arithmetic of floating-point types. Minimum and maximum propagate NaN, and -0 is smaller than +0 (IEEE 754-2019).
template <class Wide_>
struct FloatArithmetic {
  using Wide = Wide_;
  static constexpr bool hurried = true;  // optimize for speed, not for code size
  SYMMEM_DEVICE static Wide sum(Wide a, Wide b) { return a + b; }
  SYMMEM_DEVICE static Wide product(Wide a, Wide b) { return a * b; }
  SYMMEM_DEVICE static bool negative(float number) { return arch::bits_of(number) >> 31 != 0; }
  SYMMEM_DEVICE static bool negative(double number) { return arch::bits_of(number) >> 63 != 0; }
  SYMMEM_DEVICE static Wide minimum(Wide a, Wide b) {
    const Wide smaller = a < b || (a == b && negative(a)) ? a : b;
    return a != a ? a : smaller;
  }
  SYMMEM_DEVICE static Wide maximum(Wide a, Wide b) {
    const Wide larger = a > b || (a == b && !negative(a)) ? a : b;
    return a != a ? a : larger;
  }
  SYMMEM_DEVICE static Wide divided(Wide wide, uint32 members) { return wide / static_cast<Wide>(members); }
};

template <class Bits_, class Wide_>
struct WideFloatElement : FloatArithmetic<Wide_> {
  using Bits = Bits_;
  SYMMEM_DEVICE static Wide_ widen(Bits bits) { return arch::float_of(bits); }
  SYMMEM_DEVICE static Bits narrow(Wide_ wide) { return arch::bits_of(wide); }
};

template <class Bits_, class Format_>
struct NarrowFloatElement : FloatArithmetic<float> {
  using Bits = Bits_;
  SYMMEM_DEVICE static float widen(Bits bits) { return Format_::widen(bits); }
  SYMMEM_DEVICE static Bits narrow(float wide) { return static_cast<Bits>(Format_::narrow(wide)); }
};

#if SYMMEM_HAS_HALF_CONVERSIONS
struct F16Element : FloatArithmetic<float> {
  using Bits = uint16;
  SYMMEM_DEVICE static float widen(Bits bits) { return arch::widen_f16(bits); }
  SYMMEM_DEVICE static uint32 narrow_pair(float low, float high) { return arch::narrow_f16(low, high); }
  SYMMEM_DEVICE static Bits narrow(float wide) { return static_cast<Bits>(narrow_pair(wide, 0)); }
};
struct Bf16Element : FloatArithmetic<float> {
  using Bits = uint16;
  SYMMEM_DEVICE static float widen(Bits bits) { return arch::float_of(static_cast<uint32>(bits) << 16); }
  SYMMEM_DEVICE static uint32 narrow_pair(float low, float high) { return arch::narrow_bf16(low, high); }
  SYMMEM_DEVICE static Bits narrow(float wide) { return static_cast<Bits>(narrow_pair(wide, 0)); }
};
#else
using F16Element = NarrowFloatElement<uint16, Format<5, 10, false, false>>;
using Bf16Element = NarrowFloatElement<uint16, Format<8, 7, false, false>>;
#endif

// Expands `entry(name)` for every element type.
#define SYMMEM_EACH_ELEMENT(entry)                                                            \
  entry(i8) entry(u8) entry(i16) entry(u16) entry(i32) entry(u32) entry(i64) entry(u64)       \
  entry(f16) entry(bf16) entry(f32) entry(f64) entry(f8_e4m3) entry(f8_e5m2)

template <ElementType type>
struct ElementOf;
template <> struct ElementOf<ElementType::i8> { using Type = IntegerElement<uint8, signed char, int, uint32>; };
template <> struct ElementOf<ElementType::u8> { using Type = IntegerElement<uint8, uint8, uint32, uint32>; };
template <> struct ElementOf<ElementType::i16> { using Type = IntegerElement<uint16, short, int, uint32>; };
template <> struct ElementOf<ElementType::u16> { using Type = IntegerElement<uint16, uint16, uint32, uint32>; };
template <> struct ElementOf<ElementType::i32> { using Type = IntegerElement<uint32, int, int, uint32>; };
template <> struct ElementOf<ElementType::u32> { using Type = IntegerElement<uint32, uint32, uint32, uint32>; };
template <> struct ElementOf<ElementType::i64> { using Type = IntegerElement<uint64, long long, long long, uint64>; };
template <> struct ElementOf<ElementType::u64> { using Type = IntegerElement<uint64, uint64, uint64, uint64>; };
template <> struct ElementOf<ElementType::f16> { using Type = F16Element; };
template <> struct ElementOf<ElementType::bf16> { using Type = Bf16Element; };
template <> struct ElementOf<ElementType::f32> { using Type = WideFloatElement<uint32, float>; };
template <> struct ElementOf<ElementType::f64> { using Type = WideFloatElement<uint64, double>; };
template <> struct ElementOf<ElementType::f8_e4m3> { using Type = NarrowFloatElement<uint8, Format<4, 3, true, true>>; };
template <> struct ElementOf<ElementType::f8_e5m2> { using Type = NarrowFloatElement<uint8, Format<5, 2, false, true>>; };

// Reduction operators on two wide numbers. Sum and average are one (`Sum`). The others are either selected when a kernel is
// compiled (`Only`) or share code and are selected at run time (`Selection`).
struct Sum {
  static constexpr bool hurried = true;
  bool average;
  SYMMEM_DEVICE explicit Sum(uint32 reduce) : average(static_cast<ReduceOperation>(reduce) == ReduceOperation::average) {}
  template <class Element>
  SYMMEM_DEVICE typename Element::Wide combined(typename Element::Wide a, typename Element::Wide b) const {
    return Element::sum(a, b);
  }
};

template <ReduceOperation operation>
struct Only {
  static constexpr bool hurried = true;
  static constexpr bool average = false;
  template <class Element>
  SYMMEM_DEVICE typename Element::Wide combined(typename Element::Wide a, typename Element::Wide b) const {
    if constexpr (operation == ReduceOperation::product) return Element::product(a, b);
    return operation == ReduceOperation::minimum ? Element::minimum(a, b) : Element::maximum(a, b);
  }
};

struct Selection {
  static constexpr bool hurried = false;
  static constexpr bool average = false;
  ReduceOperation operation;
  SYMMEM_DEVICE explicit Selection(uint32 reduce) : operation(static_cast<ReduceOperation>(reduce)) {}
  template <class Element>
  SYMMEM_DEVICE typename Element::Wide combined(typename Element::Wide a, typename Element::Wide b) const {
    if (operation == ReduceOperation::product) return Only<ReduceOperation::product>().combined<Element>(a, b);
    if (operation == ReduceOperation::minimum) return Only<ReduceOperation::minimum>().combined<Element>(a, b);
    return Only<ReduceOperation::maximum>().combined<Element>(a, b);
  }
};

SYMMEM_DEVICE bool is_sum(uint32 reduce) {
  const ReduceOperation operation = static_cast<ReduceOperation>(reduce);
  return operation == ReduceOperation::sum || operation == ReduceOperation::average;
}

// The partial reduction of the elements in `words` 32-bit words.
template <class Element, int words>
class Accumulation {
 public:
  using Bits = typename Element::Bits;
  using Wide = typename Element::Wide;
  static constexpr int count = words * 4 / static_cast<int>(sizeof(Bits));

  // Starts with the first member's elements.
  SYMMEM_DEVICE void begin(const uint32* from) {
    SYMMEM_UNROLL
    for (int index = 0; index < count; ++index) wide_[index] = Element::widen(bits(from, index));
  }

  // Adds the next member's elements.
  template <class Operation>
  SYMMEM_DEVICE void add(const uint32* from, const Operation& operation) {
    SYMMEM_UNROLL
    for (int index = 0; index < count; ++index) {
      wide_[index] = operation.template combined<Element>(wide_[index], Element::widen(bits(from, index)));
    }
  }

  // Returns elements as wide numbers.
  SYMMEM_DEVICE static void widen(const uint32* from, Wide (&to)[count]) {
    SYMMEM_UNROLL
    for (int index = 0; index < count; ++index) to[index] = Element::widen(bits(from, index));
  }

  // Stores wide numbers as elements.
  SYMMEM_DEVICE static void narrow(const Wide (&from)[count], uint32* to) {
    Accumulation numbers;
    SYMMEM_UNROLL
    for (int index = 0; index < count; ++index) numbers.wide_[index] = from[index];
    SYMMEM_UNROLL
    for (int word = 0; word < words; ++word) to[word] = numbers.template narrowed<Element>(word, 0);
  }

  // Stores the result over all `members`.
  template <class Operation>
  SYMMEM_DEVICE void finish(uint32* to, const Operation& operation, uint32 members) {
    if (operation.average) {
      SYMMEM_UNROLL
      for (int index = 0; index < count; ++index) wide_[index] = Element::divided(wide_[index], members);
    }
    SYMMEM_UNROLL
    for (int word = 0; word < words; ++word) to[word] = narrowed<Element>(word, 0);
  }

 private:
  SYMMEM_DEVICE static Bits bits(const uint32* from, int index) {
    if constexpr (sizeof(Bits) == 8) {
      return static_cast<uint64>(from[2 * index + 1]) << 32 | from[2 * index];
    } else {
      constexpr int per_word = 4 / static_cast<int>(sizeof(Bits));
      return static_cast<Bits>(from[index / per_word] >> (index % per_word * 8 * static_cast<int>(sizeof(Bits))));
    }
  }

  // Returns one word of the result. The first overload is for types that are narrowed in pairs.
  template <class Narrowing>
  SYMMEM_DEVICE auto narrowed(int word, int) const -> decltype(Narrowing::narrow_pair(0.0f, 0.0f)) {
    return Narrowing::narrow_pair(wide_[2 * word], wide_[2 * word + 1]);
  }
  template <class Narrowing>
  SYMMEM_DEVICE uint32 narrowed(int word, long) const {
    if constexpr (sizeof(Bits) == 8) {
      return static_cast<uint32>(Narrowing::narrow(wide_[word / 2]) >> (word % 2 * 32));
    } else {
      constexpr int per_word = 4 / static_cast<int>(sizeof(Bits));
      uint32 whole = 0;
      SYMMEM_UNROLL
      for (int index = 0; index < per_word; ++index) {
        whole |= static_cast<uint32>(Narrowing::narrow(wide_[word * per_word + index]))
                 << (index * 8 * static_cast<int>(sizeof(Bits)));
      }
      return whole;
    }
  }

  Wide wide_[count];
};

}  // namespace symmem
