// Tests the number formats: the value of each pattern and the conversion of numbers, against their definitions.
#pragma once

#include <random>

#include "plain.h"

namespace {

template <int exponent, int mantissa, bool finite, bool saturates>
void every_pattern_means_what_its_format_defines() {
  using Tested = Format<exponent, mantissa, finite, saturates>;
  const std::string name = "e" + std::to_string(exponent) + "m" + std::to_string(mantissa);
  const uint32 patterns = 1u << (exponent + mantissa + 1);
  const auto narrows = [&](float number) {
    expect(Tested::narrow(number) == nearest(exponent, mantissa, finite, saturates, number),
           name + " narrows " + std::to_string(number));
  };
  for (uint32 bits = 0; bits < patterns; ++bits) {
    const float made = Tested::widen(bits);
    const double wanted = defined(exponent, mantissa, finite, bits);
    expect((std::isnan(made) && std::isnan(wanted)) || (made == wanted && std::signbit(made) == std::signbit(wanted)),
           name + " widens pattern " + std::to_string(bits));
    if (!std::isfinite(made)) continue;
    const float next = static_cast<float>(defined(exponent, mantissa, finite, bits + 1));
    for (float number : {made, std::isfinite(next) ? made + (next - made) / 2 : made}) {
      narrows(number);
      narrows(std::nextafter(number, 1e30f));
      narrows(std::nextafter(number, -1e30f));
    }
  }
  std::mt19937 random(7);
  for (int turn = 0; turn < 100000; ++turn) narrows(arch::float_of(static_cast<uint32>(random())));
}

void numbers() {
  every_pattern_means_what_its_format_defines<4, 3, true, true>();
  every_pattern_means_what_its_format_defines<5, 2, false, true>();
  every_pattern_means_what_its_format_defines<5, 10, false, false>();
  every_pattern_means_what_its_format_defines<8, 7, false, false>();
}

}  // namespace
