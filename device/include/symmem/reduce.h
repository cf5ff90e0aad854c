// Reductions between two barriers of a group: load every member's elements, reduce them in the members' order, and
// store the result at each destination.
#pragma once

#include "symmem/element.h"
#include "symmem/group.h"

namespace symmem {

// Reduces `vectors` vectors over all members. `load(vector, member, loaded)` loads one vector, if that member exists;
// the vectors of `most` members are in flight at once. `sums` is scratch space.
template <class Element, int vectors, int most, class Operation, class Load>
SYMMEM_DEVICE void reduce_vectors(uint32 world, const Operation& operation, Load load,
                                  Accumulation<Element, 4> (&sums)[vectors], arch::Vector16 (&results)[vectors]) {
  uint32 first = 0;
  do {
    arch::Vector16 loaded[vectors][most];
    SYMMEM_UNROLL
    for (int vector = 0; vector < vectors; ++vector) {
      SYMMEM_UNROLL
      for (int member = 0; member < most; ++member) {
        SYMMEM_UNROLL
        for (uint32& word : loaded[vector][member].words) arch::set_any(word);
        load(vector, first + member, loaded[vector][member]);
      }
    }
    // One wait for all loads. Otherwise a wait for a conditional load stands at the loop's top on AMD, where it also waits
    // for the stores of the previous vectors.
    SYMMEM_UNROLL
    for (auto& row : loaded) {
      SYMMEM_UNROLL
      for (arch::Vector16& one : row) {
        SYMMEM_UNROLL
        for (uint32& word : one.words) word = arch::per_thread(word);
      }
    }
    SYMMEM_UNROLL
    for (int member = 0; member < most; ++member) {
      if (member > 0 && first + member >= world) continue;
      SYMMEM_UNROLL
      for (int vector = 0; vector < vectors; ++vector) {
        if (member == 0 && first == 0) {
          sums[vector].begin(loaded[vector][member].words);
        } else {
          sums[vector].add(loaded[vector][member].words, operation);
        }
      }
    }
    first += most;
  } while (first < world);
  SYMMEM_UNROLL
  for (int vector = 0; vector < vectors; ++vector) sums[vector].finish(results[vector].words, operation, world);
}

// Reduces one element over all members; `address(member)` is its address.
template <class Element, class Operation, class Address>
SYMMEM_DEVICE typename Element::Bits reduce_element(uint32 world, const Operation& operation, Address address) {
  using Bits = typename Element::Bits;
  typename Element::Wide sum = Element::widen(arch::load(pointer<const Bits>(address(0))));
  for (uint32 member = 1; member < world; ++member) {
    sum = operation.template combined<Element>(sum, Element::widen(arch::load(pointer<const Bits>(address(member)))));
  }
  if (operation.average) sum = Element::divided(sum, world);
  return Element::narrow(sum);
}

// Calls `store(address)` for every destination, beginning with the next member's.
template <class Store>
SYMMEM_DEVICE void each_destination(const ReduceArguments& arguments, Store store) {
  const uint32 world = arguments.group.world;
  uint32 member = arguments.group.rank;
  for (uint32 step = 0; step < world; ++step) {
    member = member + 1 < world ? member + 1 : 0;
    if (arguments.destinations[member] != 0) store(arguments.destinations[member]);
  }
}

// A reduction's arguments, shared by all threads.
template <class Element, class Operation>
struct Reduction {
  const ReduceArguments& arguments;
  const Operation& operation;

  // Reduces `count` vectors of 16 bytes from byte `head` on. A thread has `vectors` vectors of `most` members in flight
  // and loads all before it reduces the first.
  template <int vectors, int most>
  SYMMEM_DEVICE void vectors_of(uint64 head, uint64 count) const {
    const ReduceArguments& arguments = read_anew(this->arguments);
    const uint32 world = arguments.group.world;
    const uint64 stride = static_cast<uint64>(arch::thread_count()) * arch::block_count();
    uint64 index = static_cast<uint64>(arch::thread_count()) * arch::block_index() + arch::thread_index();
    arch::settle_loads();
    for (; index < count; index += stride * vectors) {
      Accumulation<Element, 4> sums[vectors];
      arch::Vector16 results[vectors];
      reduce_vectors<Element, vectors, most>(
          world, operation,
          [&](int vector, uint32 member, arch::Vector16& loaded) {
            if (index + vector * stride < count && member < world) {
              loaded = arch::load(pointer<const arch::Vector16>(arguments.sources[member] + head) +
                                  (index + vector * stride));
            }
          },
          sums, results);
      each_destination(arguments, [&](uint64 destination) {
        SYMMEM_UNROLL
        for (int vector = 0; vector < vectors; ++vector) {
          if (index + vector * stride < count) {
            arch::store(pointer<arch::Vector16>(destination + head) + (index + vector * stride), results[vector]);
          }
        }
      });
    }
  }

  // Reduces the first `head` and the last `tail` of `count` elements one at a time, with the whole grid.
  SYMMEM_DEVICE void elements_of(uint64 count, uint64 head, uint64 tail) const {
    using Bits = typename Element::Bits;
    const uint32 world = arguments.group.world;
    const uint64 stride = static_cast<uint64>(arch::thread_count()) * arch::block_count();
    uint64 index = static_cast<uint64>(arch::thread_count()) * arch::block_index() + arch::thread_index();
    for (; index < head + tail; index += stride) {
      const uint64 element = index < head ? index : count - tail + (index - head);
      const Bits result = reduce_element<Element>(
          world, operation, [&](uint32 member) { return arguments.sources[member] + element * sizeof(Bits); });
      each_destination(arguments, [&](uint64 destination) { arch::store(pointer<Bits>(destination) + element, result); });
    }
  }

  // Reduces in vectors if all addresses agree modulo 16, otherwise in single elements.
  SYMMEM_DEVICE void run() const {
    constexpr uint64 size = sizeof(typename Element::Bits);
    const uint64 count = arguments.count;
    const uint32 world = arguments.group.world;
    const uint64 origin = arguments.sources[0];
    uint64 differ = 0;
    for (uint32 member = 0; member < world; ++member) {
      differ |= arguments.sources[member] - origin;
      if (arguments.destinations[member] != 0) differ |= arguments.destinations[member] - origin;
    }
    uint64 head = ((0 - origin) & 15) / size;
    if (head > count || (differ & 15) != 0) head = count;
    const uint64 whole = (count - head) * size / 16;
    // Keep the number of loads in flight independent of the world size; rarely used reductions share one variant.
    if constexpr (Element::hurried && Operation::hurried) {
      constexpr int most = size > 1 ? 4 : 2;  // limited by registers for the sums
      if (world <= 2) {
        vectors_of<most, 2>(head * size, whole);
      } else if (world <= 4) {
        vectors_of<most / 2, 4>(head * size, whole);
      } else {
        vectors_of<1, 8>(head * size, whole);
      }
    } else {
      vectors_of<1, Element::hurried ? 8 : 4>(head * size, whole);
    }
    elements_of(count, head, count - head - whole * 16 / size);
  }
};

template <class Element, class Operation>
SYMMEM_DEVICE void reduce(const ReduceArguments& arguments, const Operation& operation) {
  Reduction<Element, Operation>{arguments, operation}.run();
}

// Returns whether a reduction stores results at peers; else its last barrier need cover none.
SYMMEM_DEVICE bool stores_at_peers(const ReduceArguments& arguments) {
  uint64 any = 0;
  SYMMEM_ROLLED
  for (uint32 member = 0; member < arguments.group.world; ++member) {
    if (member != arguments.group.rank) any |= arguments.destinations[member];
  }
  return any != 0;
}

// Reduces as ReduceArguments says. Called by every thread of every block. Addresses are multiples of an element's size.
template <ElementType type>
SYMMEM_DEVICE void collective_reduce(const ReduceArguments& arguments) {
  using Element = typename ElementOf<type>::Type;
  enter_collective();
  Members members(arguments.group);
  if (members.barrier(Tells::entered)) {
    if (is_sum(arguments.reduce)) {
      reduce<Element>(arguments, Sum(arguments.reduce));
    } else if constexpr (Element::hurried && sizeof(typename Element::Bits) > 1) {
      const ReduceOperation operation = static_cast<ReduceOperation>(arguments.reduce);
      if (operation == ReduceOperation::product) {
        reduce<Element>(arguments, Only<ReduceOperation::product>());
      } else if (operation == ReduceOperation::minimum) {
        reduce<Element>(arguments, Only<ReduceOperation::minimum>());
      } else {
        reduce<Element>(arguments, Only<ReduceOperation::maximum>());
      }
    } else {
      // One code for three operators: 8-bit floats would take more than a branch can jump over on AMD.
      reduce<Element>(arguments, Selection(arguments.reduce));
    }
    members.barrier(stores_at_peers(arguments) ? Tells::stored : Tells::taken);
  }
  members.leave();
}

}  // namespace symmem
