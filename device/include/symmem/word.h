// Words of symmetric memory: atomic operations on words of any rank, waits for words of this rank, and fences.
#pragma once

#include "symmem/wait.h"

namespace symmem {

// Orders this thread's earlier accesses, and those of its block before a block barrier, before its later accesses, as
// seen by every rank. Bulk stores must be complete first (bulk_wait_complete).
SYMMEM_DEVICE void fence() { arch::fence_system(); }

// Completes this thread's earlier puts, bulk stores included: a rank that learns of this call in any way sees them.
// The guarantee is that of a system fence.
SYMMEM_DEVICE void quiet() {
#if SYMMEM_HAS_BULK
  arch::bulk_wait_complete();
#endif
  arch::fence_system();
}

// Atomic operations on words of any rank, 32 and 64 bits: system scope, acquire and release. Each returns the previous
// value, except word_set. word_fetch only acquires, word_set only releases. Sums wrap.
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
      // Without a result, a store is enough; it crosses the link only once.
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

// Performs the operation. Called by one thread.
SYMMEM_DEVICE void word_update(const WordOperation& operation) {
  if (operation.bits == 64) {
    update_word<uint64>(operation);
  } else {
    update_word<uint32>(operation);
  }
}

// Returns whether a word satisfies the condition. Words wrap: a word is ahead if it is so by less than half the range.
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

// Called by every thread of one block. To wait for all words, the threads share them; to wait for any, the first thread
// polls all.
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
    // From the last to the first without an early exit, so that the loads overlap and the first satisfied word wins.
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

// Waits for words. Called by every thread of one block. If it returns true, the block sees what was stored before the
// words changed. Returns false if the wait gave up.
SYMMEM_DEVICE bool word_wait(const WordWait& wait) {
  return wait.bits == 64 ? await_words<uint64>(wait) : await_words<uint32>(wait);
}

}  // namespace symmem
