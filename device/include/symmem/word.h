// Words of symmetric memory: atomic operations on any rank's, waits for this rank's, and order among what a
// thread does.
#pragma once

#include "symmem/wait.h"

namespace symmem {

// What this thread, and by a block barrier its block, did before is seen by every rank before what it does
// after. Bulk stores must be complete first (bulk_wait_complete).
SYMMEM_DEVICE void fence() { arch::fence_system(); }

// What this thread put before has arrived: whoever learns of the call by any means sees it. As far as a
// fence goes on machines that order stores by addresses they have reached; bulk stores are waited for too.
SYMMEM_DEVICE void quiet() {
#if SYMMEM_HAS_BULK
  arch::bulk_wait_complete();
#endif
  arch::fence_system();
}

// Atomic operations, 32 and 64 bits, at any rank: system scope, acquire and release. Each returns what was
// there. Sums wrap.
template <class Word>
SYMMEM_DEVICE Word word_fetch(const Word* word) {
  return arch::load_acquire(word);
}

template <class Word>
SYMMEM_DEVICE void word_set(Word* word, Word value) {
  arch::publish_flag(word, value);
}

template <class Word>
SYMMEM_DEVICE Word word_add(Word* word, Word operand) {
  return arch::fetch_add(word, operand);
}

template <class Word>
SYMMEM_DEVICE Word word_swap(Word* word, Word operand) {
  return arch::fetch_set(word, operand);
}

template <class Word>
SYMMEM_DEVICE Word word_compare_swap(Word* word, Word compare, Word operand) {
  return arch::fetch_compare_set(word, compare, operand);
}

template <class Word>
SYMMEM_DEVICE void update_word(const WordOperation& operation) {
  Word* word = pointer<Word>(operation.word);
  const Word operand = static_cast<Word>(operation.operand);
  Word before = 0;
  switch (static_cast<WordUpdate>(operation.update)) {
    case WordUpdate::fetch: before = word_fetch(word); break;
    case WordUpdate::set:
      // Nobody asks for the old value: a store will do, which a peer's link carries one way only.
      if (operation.result == 0) {
        word_set(word, operand);
        return;
      }
      before = word_swap(word, operand);
      break;
    case WordUpdate::add: before = word_add(word, operand); break;
    case WordUpdate::swap: before = word_swap(word, operand); break;
    case WordUpdate::compare_swap:
      before = word_compare_swap(word, static_cast<Word>(operation.compare), operand);
      break;
  }
  if (operation.result != 0) arch::store_relaxed(pointer<Word>(operation.result), before);
}

// One thread does the operation.
SYMMEM_DEVICE void word_update(const WordOperation& operation) {
  if (operation.bits == 64) {
    update_word<uint64>(operation);
  } else {
    update_word<uint32>(operation);
  }
}

// Whether a word is as it should be. Words wrap: one is ahead if it is by less than half the range.
template <class Word>
SYMMEM_DEVICE bool satisfies(Word seen, Condition condition, Word value) {
  const Word difference = seen - value;
  const bool behind = difference >> (sizeof(Word) * 8 - 1) != 0;
  switch (condition) {
    case Condition::equal: return difference == 0;
    case Condition::not_equal: return difference != 0;
    case Condition::greater_or_equal: return !behind;
    case Condition::greater: return !behind && difference != 0;
    case Condition::less_or_equal: return behind || difference == 0;
    case Condition::less: return behind;
  }
  return false;
}

// Called by every thread of one block. For all words, each thread waits for its own; for any, the first waits.
template <class Word>
SYMMEM_DEVICE bool await_words(const WordWait& wait) {
  Waiter waiter(wait.watch);
  const Condition condition = static_cast<Condition>(wait.condition);
  const Word value = static_cast<Word>(wait.value);
  const auto look = [&](uint32 index) {
    return arch::load_word(pointer<const Word>(wait.words + index * wait.stride));
  };
  const auto gives_up = [&](uint32 index, Word seen) {
    return waiter.gives_up(WaitKind::words, index, 0, static_cast<uint32>(value), static_cast<uint32>(seen));
  };
  const uint32 thread = arch::thread_index();
  bool good = true;
  if (wait.any != 0) {
    uint32 found = wait.count;
    // From the last to the first, without a way out between: so that the loads are under way together, and the
    // first of those that satisfied is kept.
    while (thread == 0 && good && found == wait.count) {
      Word seen = 0;
      for (uint32 polls = polls_per_clock; found == wait.count && polls != 0; --polls) {
        arch::pause();
        for (uint32 index = wait.count; index-- != 0;) {
          seen = look(index);
          if (satisfies(seen, condition, value)) found = index;
        }
      }
      if (found == wait.count) good = !gives_up(0, seen);
    }
    if (thread == 0 && good) {
      arch::acquire_words();
      if (wait.index != 0) arch::store_relaxed(pointer<uint32>(wait.index), found);
    }
  } else {
    for (uint32 index = thread; good && index < wait.count; index += arch::thread_count()) {
      Word seen = look(index);
      while (good && !satisfies(seen, condition, value)) {
        for (uint32 polls = polls_per_clock; !satisfies(seen, condition, value) && polls != 0; --polls) {
          arch::pause();
          seen = look(index);
        }
        if (!satisfies(seen, condition, value)) good = !gives_up(index, seen);
      }
    }
    if (good) arch::acquire_words();
    if (thread == 0 && wait.index != 0) arch::store_relaxed(pointer<uint32>(wait.index), 0u);
  }
  return arch::block_all(good);
}

// Called by every thread of one block. Once it has returned true, what was done before the words became so
// is visible to the block. False: the wait gave up.
SYMMEM_DEVICE bool word_wait(const WordWait& wait) {
  return wait.bits == 64 ? await_words<uint64>(wait) : await_words<uint32>(wait);
}

}  // namespace symmem
