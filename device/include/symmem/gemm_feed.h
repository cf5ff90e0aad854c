// What keeps the stages of a tile GEMM full while the block multiplies: a feed. Its parts are called by every thread
// between the products of a stage:
//
//   begin(steps)       fills the first stage, and begins with the next
//   part(row, at)      does a part of the work beside the products of stage `at`, behind those of a row of squares
//   finish()           the next stage is complete for this thread
//   end()              nothing is in flight that would change shared memory
//
// A feed that `works_beside` has two others in place of `part`. Their constants are template arguments, without which the compiler
// would not keep everything in registers:
//
//   beside<row, number>()   does a part of the work behind each of a row's `turns_of_row` matrix instructions
//   behind<row>(at)    does a part behind the row
//
// A block barrier follows `begin`, `finish` and `end`. The last steps load a stage again that nobody multiplies, which
// costs less than a second loop.
#pragma once

#include "symmem/gemm_stage.h"

#if SYMMEM_HAS_MATRIX

namespace symmem {

// The stages of a tile in shared memory: lines of A, and then of B.
template <uint32 rows, uint32 columns>
struct GemmStages {
  static constexpr uint32 count = arch::loads_to_shared ? 4 : 2;
  static constexpr uint32 a_elements = rows * gemm_depth;
  static constexpr uint32 elements = (rows + columns) * gemm_depth;

  static SYMMEM_DEVICE uint16* a(uint32 number) {
    return reinterpret_cast<uint16*>(arch::dynamic_shared()) + number % count * elements;
  }
  static SYMMEM_DEVICE uint16* b(uint32 number) { return a(number) + a_elements; }
};

// Feeds through registers. A stage is loaded `sets` steps before it is stored, and stored a step before it is multiplied.
// `both` says whether both operands are fed behind the same row.
template <uint32 rows, uint32 columns, class LoadsA, class LoadsB, uint32 register_sets, bool both>
class RegisterFeed {
 public:
  static constexpr uint32 sets = register_sets;
  static constexpr bool works_beside = false;

  static SYMMEM_DEVICE bool takes(const GemmLines& a, const GemmLines& b) { return LoadsA::takes(a) && LoadsB::takes(b); }

  SYMMEM_DEVICE RegisterFeed(const GemmLines& a, const GemmLines& b) : a_(a), b_(b) {}

  SYMMEM_DEVICE void begin(uint32 steps) {
    steps_ = steps;
    a_.load(0, steps > 1);
    b_.load(0, steps > 1);
    a_.store(0, Stages::a(0));
    b_.store(0, Stages::b(0));
    SYMMEM_UNROLL
    for (uint32 set = 0; set < sets; ++set) {
      a_.load(set, steps > set + 2);
      b_.load(set, steps > set + 2);
      arch::keep_order();  // the order of the loop, so that the compiler counts alike on both ways into it
    }
  }

  template <uint32 set>
  SYMMEM_DEVICE void part(uint32 row, uint32 at) {
    if (row == 0) {
      a_.store(set, Stages::a(at + 1));
      a_.load(set, at + sets + 2 < steps_);
    }
    if (row == (both ? 0 : 1)) {
      b_.store(set, Stages::b(at + 1));
      b_.load(set, at + sets + 2 < steps_);
    }
  }

  SYMMEM_DEVICE void finish() {}
  SYMMEM_DEVICE void end() {}

 private:
  using Stages = GemmStages<rows, columns>;

  LoadsA a_;
  LoadsB b_;
  uint32 steps_ = 0;
};

// Feeds through registers what must be converted (arch::converts): beside the matrix instructions, since behind them all waves of a
// SIMD would do it at the same time, and the matrix cores nothing. Each piece is loaded again, for the stage after the next, as
// soon as it is stored, so that most bytes are in flight.
template <uint32 rows, uint32 columns, class LoadsA, class LoadsB, uint32 parts>
class ConvertingFeed {
 public:
  static constexpr uint32 sets = 1;
  static constexpr bool works_beside = true;
  static constexpr uint32 turns_of_row = 8;

  static SYMMEM_DEVICE bool takes(const GemmLines& a, const GemmLines& b) { return LoadsA::takes(a) && LoadsB::takes(b); }

  SYMMEM_DEVICE ConvertingFeed(const GemmLines& a, const GemmLines& b) : a_(a), b_(b) {}

  SYMMEM_DEVICE void begin(uint32 steps) {
    steps_ = steps;
    a_.load(0, steps > 1);
    b_.load(0, steps > 1);
    a_.store(0, Stages::a(0));
    b_.store(0, Stages::b(0));
    a_.load(0, steps > 2);
    b_.load(0, steps > 2);
    arch::keep_order();  // the order of the loop, so that the compiler counts alike on both ways into it
  }

  // A word is converted in two halves, each beside an instruction of its own if there are enough: a SIMD issues for its two waves in
  // turn, and two matrix instructions leave time for six others.
  template <uint32 row, uint32 number>
  SYMMEM_DEVICE void beside() {
    constexpr uint32 halves = pieces * halves_of_piece, turn = row * turns_of_row + number, turns = parts * turns_of_row;
    SYMMEM_UNROLL
    for (uint32 half = halves * turn / turns; half < halves * (turn + 1) / turns; ++half) {
      const uint32 piece = half / halves_of_piece, word = half % halves_of_piece / 2;
      if (piece < LoadsA::loads) {
        a_.convert_half(0, piece, word, half % 2);
      } else {
        b_.convert_half(0, piece - LoadsA::loads, word, half % 2);
      }
    }
  }

  template <uint32 row>
  SYMMEM_DEVICE void behind(uint32 at) {
    SYMMEM_UNROLL
    for (uint32 piece = first_piece(row); piece < first_piece(row + 1); ++piece) {
      if (piece < LoadsA::loads) {
        pass(a_, piece, Stages::a(at + 1), at);
      } else {
        pass(b_, piece - LoadsA::loads, Stages::b(at + 1), at);
      }
    }
    if constexpr (row + 1 == parts) {
      const bool a_has = a_.take_nans(), b_has = b_.take_nans();
      if (__builtin_expect(a_has || b_has, false)) {
        a_.store_nans(Stages::a(at + 1));
        b_.store_nans(Stages::b(at + 1));
      }
    }
  }

  SYMMEM_DEVICE void finish() {}
  SYMMEM_DEVICE void end() {}

 private:
  using Stages = GemmStages<rows, columns>;
  static constexpr uint32 pieces = LoadsA::loads + LoadsB::loads;
  static constexpr uint32 halves_of_piece = 2 * 4;  // of its words
  static_assert(LoadsA::words_of_piece == 4 && LoadsB::words_of_piece == 4, "pieces of 16 bytes");

  // Returns the first piece, of A's and then B's, that is stored behind a row.
  static SYMMEM_DEVICE constexpr uint32 first_piece(uint32 row) { return pieces * row / parts; }

  // Stores a piece, and loads that of the next stage but one.
  template <class Loads>
  SYMMEM_DEVICE void pass(Loads& loads, uint32 piece, uint16* to, uint32 at) {
    loads.store(0, piece, to);
    loads.load(0, piece);
    if (piece + 1 == Loads::loads) loads.move_on(at + 3 < steps_);
  }

  LoadsA a_;
  LoadsB b_;
  uint32 steps_ = 0;
};

// Feeds from global to shared memory. Loads have three steps to arrive, and are spread over `parts` parts of a step.
template <ElementType type, uint32 rows, uint32 columns, class LoadsB, uint32 parts>
class StraightFeed {
 public:
  static constexpr uint32 sets = 1;
  static constexpr bool works_beside = false;

  static SYMMEM_DEVICE bool takes(const GemmLines& a, const GemmLines& b) { return LoadsA::takes(a) && LoadsB::takes(b); }

  SYMMEM_DEVICE StraightFeed(const GemmLines& a, const GemmLines& b) : a_(a), b_(b) {}

  SYMMEM_DEVICE void begin(uint32 steps) {
    steps_ = steps;
    for (uint32 stage = 0; stage < ahead; ++stage) load(stage, 0, loads, stage + 1 < steps);
    finish();
  }

  template <uint32 set>
  SYMMEM_DEVICE void part(uint32 row, uint32 at) {
    const uint32 first = loads * row / parts, end = loads * (row + 1) / parts;
    if (row < parts) load(at + ahead, first, end, at + ahead + 1 < steps_);
  }

  SYMMEM_DEVICE void finish() { arch::wait_for_loads<(ahead - 1) * loads>(); }
  SYMMEM_DEVICE void end() { arch::wait_for_loads<0>(); }

 private:
  using Stages = GemmStages<rows, columns>;
  using LoadsA = StraightAlongDepth<type, rows, false>;
  static constexpr uint32 ahead = Stages::count - 1;
  static constexpr uint32 loads = LoadsA::loads + LoadsB::loads;  // of a warp, for a stage

  // Begins some of a stage's loads. Moves on behind the last of an operand.
  SYMMEM_DEVICE void load(uint32 stage, uint32 first, uint32 end, bool more) {
    SYMMEM_UNROLL
    for (uint32 number = first; number < end; ++number) {
      if (number < LoadsA::loads) {
        a_.load(Stages::a(stage), number);
        if (number + 1 == LoadsA::loads) a_.move_on(more);
      } else {
        b_.load(Stages::b(stage), number - LoadsA::loads);
        if (number + 1 == loads) b_.move_on(more);
      }
    }
  }

  LoadsA a_;
  LoadsB b_;
  uint32 steps_ = 0;
};

template <bool first, class First, class Second>
struct Choice {
  using Type = First;
};
template <class First, class Second>
struct Choice<false, First, Second> {
  using Type = Second;
};
template <bool first, class First, class Second>
using ChoiceOf = typename Choice<first, First, Second>::Type;

// The feed for an order of B. Lines of B across the depth are transposed in registers, or when they are read.
template <ElementType type, uint32 rows, uint32 columns, MatrixOrder b_order, bool straight, uint32 parts>
struct FeedOf {
  // A step of a wave with two rows of squares is too short for loads to arrive in, and leaves registers.
  static constexpr uint32 sets = parts == 1 ? 2 : 1;
  using LoadsA = AlongDepth<type, rows, false, sets>;
  using LoadsB = AlongDepth<type, columns, true, sets>;
  using Type = ChoiceOf<arch::converts<type> && (parts > 1), ConvertingFeed<rows, columns, LoadsA, LoadsB, parts>,
                        RegisterFeed<rows, columns, LoadsA, LoadsB, sets, parts == 1>>;
};

template <ElementType type, uint32 rows, uint32 columns, bool straight, uint32 parts>
struct FeedOf<type, rows, columns, MatrixOrder::rows, straight, parts> {
  static constexpr uint32 sets = parts == 1 ? 2 : 1;
  using LoadsA = AlongDepth<type, rows, false, sets>;
  using Type = RegisterFeed<rows, columns, LoadsA, AcrossDepth<columns, sets>, sets, parts == 1>;
};

template <ElementType type, uint32 rows, uint32 columns, uint32 parts>
struct FeedOf<type, rows, columns, MatrixOrder::columns, true, parts> {
  using Type = StraightFeed<type, rows, columns, StraightAlongDepth<type, columns, true>, parts>;
};

template <ElementType type, uint32 rows, uint32 columns, uint32 parts>
struct FeedOf<type, rows, columns, MatrixOrder::rows, true, parts> {
  using Type = StraightFeed<type, rows, columns, StraightAcrossDepth<columns>, parts>;
};

}  // namespace symmem

#endif  // SYMMEM_HAS_MATRIX
