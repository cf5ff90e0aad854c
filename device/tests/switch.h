// A simulated NVLS switch for the host twin, if SYMMEM_MULTICAST_HARDWARE is defined: multicast addresses of several
// ranks' memory, and accesses to them. It is stricter than hardware: a misaligned access or one outside of the bound
// memory is a fault. Any ordinary access to these addresses crashes, since nothing is mapped there.
#pragma once

#include <map>

#include "symmem/reduce.h"

using namespace symmem;

namespace {

struct Window {
  uint64 address, bytes;
  std::vector<uint64> members;
};

// Changes only while no rank runs. It has no lock, which would hide races of the tested code.
inline std::vector<Window>& windows() {
  static std::vector<Window> all;
  return all;
}

// For each word, the argument `stored_at_peers` of its raises (arch::multicast_raise), in order. Only one thread raises
// a word. A test inserts the words that it checks while no rank runs.
inline std::map<uint64, std::vector<bool>>& raises() {
  static std::map<uint64, std::vector<bool>> all;
  return all;
}

}  // namespace

#if defined(SYMMEM_MULTICAST_HARDWARE)

namespace symmem {
namespace arch {

// Returns each member's address of the bytes at a multicast address.
inline std::vector<uint64> behind(uint64 address, uint64 bytes) {
  if (address % bytes != 0) fault("a multicast access is not aligned");
  for (const Window& window : windows()) {
    const uint64 offset = address - window.address;
    if (address < window.address || offset + bytes > window.bytes) continue;
    std::vector<uint64> all = window.members;
    for (uint64& member : all) member += offset;
    return all;
  }
  fault("a multicast access to what nobody bound");
}

// Reduces from the last member on, since no order is promised. The sums of the tests' numbers do not depend on it.
template <ElementType type, ReduceOperation operation>
struct MulticastReduction {
  static auto load(uint64 address) {
    using Element = typename ElementOf<type>::Type;
    using Bits = typename Element::Bits;
    constexpr bool scalar = (sizeof(Bits) == 8 || type == ElementType::i32 || type == ElementType::u32);
    constexpr uint32 count = scalar ? 1 : 16 / sizeof(Bits);
    Bits results[count];
    std::vector<uint64> members = behind(address, sizeof results);
    for (uint32 index = 0; index < count; ++index) {
      std::vector<Bits> all;
      for (uint64 member : members) all.push_back(pointer<const Bits>(member)[index]);
      typename Element::Wide result = Element::widen(all.back());
      for (size_t member = all.size() - 1; member-- != 0;) {
        const typename Element::Wide other = Element::widen(all[member]);
        if (operation == ReduceOperation::minimum) result = Element::minimum(result, other);
        else if (operation == ReduceOperation::maximum) result = Element::maximum(result, other);
        else result = Element::sum(result, other);
      }
      results[index] = Element::narrow(result);
    }
    if constexpr (scalar) {
      return results[0];
    } else {
      Vector16 vector;
      std::memcpy(&vector, results, sizeof vector);
      return vector;
    }
  }
};

template <class Word>
void multicast_store(uint64 address, const Word& value) {
  for (uint64 member : behind(address, sizeof(Word))) store(pointer<Word>(member), value);
}

inline void multicast_raise(uint64 word, bool stored_at_peers) {
  const auto noted = raises().find(word);
  if (noted != raises().end()) noted->second.push_back(stored_at_peers);
  for (uint64 member : behind(word, sizeof(uint32))) fetch_add(pointer<uint32>(member), 1u);
}

inline void fence_aliases() {}

}  // namespace arch
}  // namespace symmem

#endif

namespace {

#if defined(SYMMEM_MULTICAST_HARDWARE)
constexpr bool has_switch = true;
#else
constexpr bool has_switch = false;
#endif

// Returns a multicast address for the members' memory at `members`, which agrees with theirs modulo 16; 0 without a
// switch.
inline uint64 bind_members(const std::vector<uint64>& members, uint64 bytes) {
  if (!has_switch) return 0;
  // No program has memory at this address.
  const uint64 address = (1ull << 62) + (windows().size() << 32) + members[0] % 16;
  windows().push_back({address, bytes, members});
  return address;
}

}  // namespace
