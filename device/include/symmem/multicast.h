// Multicast (NVLS) collectives. Between two barriers, each of which raises its words at all members with one access,
// they load elements from all members' sources with reduction, or from this rank's source, and store them to all
// members' destinations or to this rank's. See MulticastArguments.
//
// If SYMMEM_MULTICAST_HARDWARE is defined, accesses use the multicast addresses. Otherwise each access is emulated
// through the members' own addresses, in the members' order. All other code is the same. Edges that are too narrow for
// a multicast access use the members' own addresses in both cases.
//
// The switch returns a sum rounded to the element type, and an average divides that. Because of this, and because the
// switch chooses the order of additions, results may differ slightly from symmem/reduce.h, and an average of f16
// overflows if its sum does.
#pragma once

#include "symmem/copy.h"
#include "symmem/reduce.h"

namespace symmem {

// ---- which types, which operations ----

// A type that the switch reduces: the unit of one access (16 bytes, or one element if there is no vector form), and
// whether it has sums, also for averages, and minimum and maximum. The switch reduces no other types and no products.
// Its f16 and bf16 minimum and maximum treat NaN and signed zeros differently from what symmem promises, so symmem does
// not use them; for f32 and f64 it has none.
template <ElementType type>
struct MulticastType {
  using Unit = arch::Vector16;
  static constexpr bool sums = true, selects = false;
};

template <class Unit_, bool sums_, bool selects_>
struct MulticastScalar {
  using Unit = Unit_;
  static constexpr bool sums = sums_, selects = selects_;
};
template <> struct MulticastType<ElementType::i32> : MulticastScalar<uint32, true, true> {};
template <> struct MulticastType<ElementType::u32> : MulticastScalar<uint32, true, true> {};
template <> struct MulticastType<ElementType::u64> : MulticastScalar<uint64, true, true> {};
template <> struct MulticastType<ElementType::i64> : MulticastScalar<uint64, false, true> {};
template <> struct MulticastType<ElementType::f64> : MulticastScalar<uint64, true, false> {};

// Combines two elements as the switch does: fp8 sums in f16, everything else as `Element` does.
template <ElementType type, ReduceOperation operation>
struct SwitchOperation {
  static constexpr bool average = false;
  template <class Element>
  SYMMEM_DEVICE typename Element::Wide combined(typename Element::Wide a, typename Element::Wide b) const {
    if constexpr (operation == ReduceOperation::minimum) {
      return Element::minimum(a, b);
    } else if constexpr (operation == ReduceOperation::maximum) {
      return Element::maximum(a, b);
    } else if constexpr (type == ElementType::f8_e4m3 || type == ElementType::f8_e5m2) {
      return F16Element::widen(F16Element::narrow(Element::sum(a, b)));
    } else {
      return Element::sum(a, b);
    }
  }
};

// ---- by the members' own addresses ----

// Loads the elements at byte `byte` of the members' sources, reduced in the members' order.
template <ElementType type, ReduceOperation operation, class Unit>
SYMMEM_DEVICE Unit load_of_members(const MulticastArguments& arguments, uint64 byte) {
  using Element = typename ElementOf<type>::Type;
  const SwitchOperation<type, operation> combine;
  const uint32 world = arguments.group.world;
  if constexpr (sizeof(Unit) == sizeof(typename Element::Bits)) {
    return reduce_element<Element>(world, combine, [&](uint32 member) { return arguments.sources[member] + byte; });
  } else {
    Accumulation<Element, 4> sum;
    sum.begin(arch::load(pointer<const Unit>(arguments.sources[0] + byte)).words);
    SYMMEM_ROLLED
    for (uint32 member = 1; member < world; ++member) {
      sum.add(arch::load(pointer<const Unit>(arguments.sources[member] + byte)).words, combine);
    }
    Unit result;
    sum.finish(result.words, combine, world);
    return result;
  }
}

// Stores at byte `byte` of every member's destination, beginning with the next member's.
template <class Unit>
SYMMEM_DEVICE void store_at_members(const MulticastArguments& arguments, uint64 byte, const Unit& unit) {
  const uint32 world = arguments.group.world;
  uint32 member = arguments.group.rank;
  SYMMEM_ROLLED
  for (uint32 step = 0; step < world; ++step) {
    member = member + 1 < world ? member + 1 : 0;
    arch::store(pointer<Unit>(arguments.destinations[member] + byte), unit);
  }
}

// ---- by multicast addresses, or emulated ----

// Returns the byte offset in the members' slots of the word that this block raises.
SYMMEM_DEVICE uint64 own_word(const MulticastArguments& arguments) {
  return arch::block_index() * slot_bytes + slot_words + arguments.group.rank * 4;
}

#if defined(SYMMEM_MULTICAST_HARDWARE)

// Accesses in flight per thread.
constexpr int multicast_unroll = 8;

template <ElementType type, ReduceOperation operation>
SYMMEM_DEVICE typename MulticastType<type>::Unit load_reduced(const MulticastArguments& arguments, uint64 byte) {
  return arch::MulticastReduction<type, operation>::load(arguments.source + byte);
}

template <class Unit>
SYMMEM_DEVICE void store_to_all(const MulticastArguments& arguments, uint64 byte, const Unit& unit) {
  arch::multicast_store(arguments.destination + byte, unit);
}

// Adds 1 to this rank's word in this block's slot at every member. Called by every thread.
SYMMEM_DEVICE void raise_at_all(const MulticastArguments& arguments, bool stored_at_peers) {
  if (arch::thread_index() == 0) arch::multicast_raise(arguments.slots + own_word(arguments), stored_at_peers);
}

// Called by every thread after the last barrier, since the next kernel may raise the words through the members' own
// addresses.
SYMMEM_DEVICE void end_raises() {
  if (arch::thread_index() == 0) arch::fence_aliases();
}

#else

// Fewer, since each emulated access is several; the emulation is not meant to be fast.
constexpr int multicast_unroll = 4;

template <ElementType type, ReduceOperation operation>
SYMMEM_DEVICE typename MulticastType<type>::Unit load_reduced(const MulticastArguments& arguments, uint64 byte) {
  return load_of_members<type, operation, typename MulticastType<type>::Unit>(arguments, byte);
}

template <class Unit>
SYMMEM_DEVICE void store_to_all(const MulticastArguments& arguments, uint64 byte, const Unit& unit) {
  store_at_members(arguments, byte, unit);
}

// Through peers' own addresses, every raise needs a system release.
SYMMEM_DEVICE void raise_at_all(const MulticastArguments& arguments, bool) {
  for (uint32 member = arch::thread_index(); member < arguments.group.world; member += arch::thread_count()) {
    arch::fetch_add(pointer<uint32>(arguments.group.slots[member] + own_word(arguments)), 1u);
  }
}

SYMMEM_DEVICE void end_raises() {}

#endif

// A group barrier with the same words, epochs and waits as Members::barrier, except that it raises all words at once.
// Multicast and other collectives may therefore share the slots.
SYMMEM_DEVICE bool multicast_barrier(Members& members, const MulticastArguments& arguments, bool stored_at_peers) {
  arch::release_wave();
  return members.barrier([&](uint32, uint32, uint32) { raise_at_all(arguments, stored_at_peers); });
}

SYMMEM_DEVICE bool loads_reduced(const MulticastArguments& arguments) {
  return static_cast<MulticastLoad>(arguments.load) == MulticastLoad::reduced;
}

SYMMEM_DEVICE bool stores_to_all(const MulticastArguments& arguments) {
  return static_cast<MulticastStore>(arguments.store) == MulticastStore::all;
}

// Does `work` between two barriers. Before the first barrier, this kernel has stored nothing at peers, and the stores
// of earlier kernels are complete. If no data moves between members, one barrier is enough; it covers stores at peers,
// too.
template <class Work>
SYMMEM_DEVICE void between_multicast_barriers(const MulticastArguments& arguments, const Work& work) {
  const bool only_meets = !loads_reduced(arguments) && !stores_to_all(arguments);
  enter_collective();
  Members members(arguments.group);
  if (multicast_barrier(members, arguments, only_meets) && !only_meets) {
    work.run();
    multicast_barrier(members, arguments, stores_to_all(arguments));
  }
  end_raises();
  members.leave();
}

// ---- the work between the barriers ----

// Returns whether all used addresses agree modulo `unit`, a power of two.
SYMMEM_DEVICE bool addresses_agree(const MulticastArguments& arguments, uint64 unit) {
  const uint32 rank = arguments.group.rank;
  const uint64 origin = arguments.sources[rank];
  uint64 differ = 0;
  const auto with = [&](uint64 address) {
    if (address != 0) differ |= address - origin;  // 0: none
  };
  if (loads_reduced(arguments)) {
    with(arguments.source);
    SYMMEM_ROLLED
    for (uint32 member = 0; member < arguments.group.world; ++member) with(arguments.sources[member]);
  }
  if (stores_to_all(arguments)) {
    with(arguments.destination);
    SYMMEM_ROLLED
    for (uint32 member = 0; member < arguments.group.world; ++member) with(arguments.destinations[member]);
  } else {
    with(arguments.destinations[rank]);
  }
  return (differ & (unit - 1)) == 0;
}

// Splits the elements of `arguments`, of `size` bytes each. Calls `work.units(byte, count)` for whole units from `byte`
// on, and `work.element(byte)` for each element before and after them, or for all if the addresses do not agree. The
// whole grid shares the work.
template <class Unit, class Work>
SYMMEM_DEVICE void units_and_edges(const MulticastArguments& arguments, uint64 size, bool agree, const Work& work) {
  constexpr uint64 unit = sizeof(Unit);
  const uint64 count = arguments.count;
  uint64 head = ((0 - arguments.sources[arguments.group.rank]) & (unit - 1)) / size;
  if (head > count || !agree) head = count;
  const uint64 whole = (count - head) * size / unit;
  const uint64 tail = count - head - whole * unit / size;
  work.units(head * size, whole);
  const uint64 stride = static_cast<uint64>(arch::thread_count()) * arch::block_count();
  uint64 index = static_cast<uint64>(arch::thread_count()) * arch::block_index() + arch::thread_index();
  for (; index < head + tail; index += stride) {
    work.element((index < head ? index : count - tail + (index - head)) * size);
  }
}

// Divides a sum over all members to get the average.
template <class Element>
SYMMEM_DEVICE void divide(typename Element::Bits& sum, uint32 world) {
  sum = Element::narrow(Element::divided(Element::widen(sum), world));
}

template <class Element>
SYMMEM_DEVICE void divide(arch::Vector16& sums, uint32 world) {
  Accumulation<Element, 4> wide;
  wide.begin(sums.words);
  wide.finish(sums.words, Sum(static_cast<uint32>(ReduceOperation::average)), world);
}

template <ElementType type, ReduceOperation operation, bool to_all, bool average>
struct MulticastReduce {
  using Element = typename ElementOf<type>::Type;
  using Bits = typename Element::Bits;
  using Unit = typename MulticastType<type>::Unit;
  // Loads in flight per thread; fewer for averages, which need much code for each.
  static constexpr int unroll = average ? multicast_unroll / 4 : multicast_unroll;

  const MulticastArguments& arguments;

  struct Load {
    const MulticastArguments& arguments;
    uint64 begin;
    SYMMEM_DEVICE Unit operator()(uint64 index) const {
      return load_reduced<type, operation>(arguments, begin + index * sizeof(Unit));
    }
  };

  struct Store {
    const MulticastArguments& arguments;
    uint64 begin;
    SYMMEM_DEVICE void operator()(uint64 index, Unit unit) const {
      const uint64 byte = begin + index * sizeof(Unit);
      if constexpr (average) divide<Element>(unit, arguments.group.world);
      if constexpr (to_all) {
        store_to_all(arguments, byte, unit);
      } else {
        arch::store(pointer<Unit>(arguments.destinations[arguments.group.rank] + byte), unit);
      }
    }
  };

  SYMMEM_DEVICE void units(uint64 begin, uint64 count) const {
    move_tiles<unroll, Unit>(count, Load{arguments, begin}, Store{arguments, begin}, share_of_grid());
  }

  SYMMEM_DEVICE void element(uint64 byte) const {
    Bits bits = load_of_members<type, operation, Bits>(arguments, byte);
    if constexpr (average) divide<Element>(bits, arguments.group.world);
    if constexpr (to_all) {
      store_at_members(arguments, byte, bits);
    } else {
      arch::store(pointer<Bits>(arguments.destinations[arguments.group.rank] + byte), bits);
    }
  }

  SYMMEM_DEVICE void run(bool agree) const { units_and_edges<Unit>(arguments, sizeof(Bits), agree, *this); }
};

template <ElementType type>
struct MulticastReduceBy {
  const MulticastArguments& arguments;

  template <ReduceOperation operation, bool average = false>
  SYMMEM_DEVICE void by(bool agree) const {
    if constexpr (operation == ReduceOperation::sum ? MulticastType<type>::sums : MulticastType<type>::selects) {
      if (stores_to_all(arguments)) {
        MulticastReduce<type, operation, true, average>{arguments}.run(agree);
      } else {
        MulticastReduce<type, operation, false, average>{arguments}.run(agree);
      }
    }
  }

  SYMMEM_DEVICE void run() const {
    const bool agree = addresses_agree(arguments, sizeof(typename MulticastType<type>::Unit));
    switch (static_cast<ReduceOperation>(arguments.reduce)) {
      case ReduceOperation::sum: return by<ReduceOperation::sum>(agree);
      case ReduceOperation::average: return by<ReduceOperation::sum, true>(agree);
      case ReduceOperation::minimum: return by<ReduceOperation::minimum>(agree);
      case ReduceOperation::maximum: return by<ReduceOperation::maximum>(agree);
      case ReduceOperation::product: return;
    }
  }
};

// Reduces as MulticastArguments says. Called by every thread of every block. Addresses are multiples of an element's
// size. The launching code must check that the type has the operation (MulticastType).
template <ElementType type>
SYMMEM_DEVICE void collective_multicast_reduce(const MulticastArguments& arguments) {
  between_multicast_barriers(arguments, MulticastReduceBy<type>{arguments});
}

struct MulticastMove {
  using Unit = arch::Vector16;

  const MulticastArguments& arguments;

  struct Store {
    const MulticastArguments& arguments;
    uint64 begin;
    SYMMEM_DEVICE void operator()(uint64 index, const Unit& unit) const {
      store_to_all(arguments, begin + index * sizeof(Unit), unit);
    }
  };

  SYMMEM_DEVICE uint64 source() const { return arguments.sources[arguments.group.rank]; }

  SYMMEM_DEVICE void units(uint64 begin, uint64 count) const {
    move_tiles<multicast_unroll, Unit>(count, LoadWord<Unit>{pointer<const Unit>(source() + begin)},
                                       Store{arguments, begin}, share_of_grid());
  }

  SYMMEM_DEVICE void element(uint64 byte) const {
    store_at_members(arguments, byte, arch::load(pointer<const uint8>(source() + byte)));
  }

  SYMMEM_DEVICE void run() const {
    if (addresses_agree(arguments, sizeof(Unit))) {
      units_and_edges<Unit>(arguments, 1, true, *this);
      return;
    }
    for (uint32 member = 0; member < arguments.group.world; ++member) {
      const uint64 destination = arguments.destinations[member];
      if (destination != source()) copy_vector<4>(destination, source(), arguments.count);
    }
  }
};

// Copies bytes of this rank's source to every member's destination. If the addresses do not agree modulo 16, copies to
// one member after the other, but never onto itself. Called by every thread of every block.
SYMMEM_DEVICE void collective_multicast_move(const MulticastArguments& arguments) {
  between_multicast_barriers(arguments, MulticastMove{arguments});
}

}  // namespace symmem
