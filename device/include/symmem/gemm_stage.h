// The operands of a tile GEMM on their way through shared memory: lines of `gemm_depth` elements that run along the
// depth, which are rows of A and columns of B.
//
// A line consists of units of 16 bytes. Unit u of line l is in place u ^ (l / 2) % 4, so that no access conflicts in the
// banks of shared memory. With 32 banks (gfx90a, gfx942), an access of 16 bytes takes eight lanes per cycle, which must
// touch the eight places that lie at different addresses modulo 128 bytes; two lines are as long. Stores take lanes in
// groups of eight adjacent ones. Loads take for example lanes 0 to 3 with 20 to 23, which read unit 0 of lines 0 to 3 and
// unit 1 of lines 4 to 7: for even lines, the places 0, 1, 1 ^ 2 and 1 ^ 3. With 64 banks (gfx950), the groups have 16
// lanes and four lines: lanes 0 to 3, 12 to 15, 20 to 23 and 24 to 27 read the places 0, 2, 1 ^ 2 and 1 ^ 0 of lines 0,
// 12, 4 and 8. (Groups: "Avoiding LDS Bank Conflicts on AMD GPUs Using CK-Tile", ROCm Blogs; HipKittens.)
//
// Where reads transpose (arch::loads_transposed), a B whose lines run across the depth is not turned: see GemmAcross.
#pragma once

#include "symmem/gathered_gemm.h"

#if SYMMEM_HAS_MATRIX

namespace symmem {

constexpr uint32 gemm_threads = 8 * arch::warp_size;
constexpr uint32 gemm_depth = 32;   // elements of a line in a stage: the depth of a fragment
constexpr uint32 gemm_unit = 8;     // elements of a unit
constexpr uint32 gemm_units = gemm_depth / gemm_unit;

// The units of an operand along the depth.
struct GemmPlace {
  // Returns the element of an operand in shared memory at which a unit of a line begins.
  static SYMMEM_DEVICE uint32 at(uint32 line, uint32 unit) {
    return line * gemm_depth + (unit ^ line / 2 % gemm_units) * gemm_unit;
  }

  // Returns the unit of a line that is in a place of it.
  static SYMMEM_DEVICE uint32 unit(uint32 line, uint32 place) { return place ^ line / 2 % gemm_units; }
};

// A block's part of a matrix: `lines` lines of `length` adjacent elements; everything else reads as zero.
struct GemmLines {
  uint64 address;
  uint64 stride;  // bytes from line to line
  uint32 lines;
  uint32 length;

  SYMMEM_DEVICE GemmLines(uint64 matrix, uint64 elements, uint64 line, uint64 first, uint64 lines_there,
                          uint64 length_there)
      : address(arch::uniform(matrix + (line * elements + first) * gemm_element_bytes)),
        stride(arch::uniform(elements * gemm_element_bytes)),
        lines(arch::uniform(static_cast<uint32>(lines_there))),
        length(arch::uniform(static_cast<uint32>(length_there))) {}

  // Returns whether offsets within `count` lines fit 32 bits, and elements at multiples of `bytes` in a line are aligned
  // to `bytes`.
  SYMMEM_DEVICE bool regular(uint32 count, uint32 bytes) const {
    return ((address | stride) & (bytes - 1)) == 0 && stride < (1ull << 32) / count;
  }

  // Returns the part behind the first elements of each line.
  SYMMEM_DEVICE GemmLines behind(uint32 elements) const {
    GemmLines part = *this;
    part.address += elements * gemm_element_bytes;
    part.length -= elements;
    return part;
  }

  // Returns an element's bits, or zero outside.
  SYMMEM_DEVICE uint32 element(uint32 line, uint32 place) const {
    if (line >= lines || place >= length) return 0;
    return arch::load(pointer<const uint16>(address + line * stride) + place);
  }
};

SYMMEM_DEVICE uint32 least(uint32 left, uint32 right) { return left < right ? left : right; }

// The order of an operand's lines in shared memory. `lines_of_b` puts the columns of B that are four apart beside each
// other: the four squares of a wave then have columns 4 i, 4 i + 1, 4 i + 2 and 4 i + 3, so that a thread has 16
// adjacent elements of C, and the stores of transposed elements do not conflict.
template <uint32 count, bool of_b>
struct GemmOrder {
  // Returns the line of the matrix that is line `line` in shared memory.
  static SYMMEM_DEVICE uint32 matrix(uint32 line) { return of_b ? line % (count / 4) * 4 + line / (count / 4) : line; }
};

// Returns the address of a thread's part of what begins at `base`, which is equal in all threads. The offset is widened
// here and not before a loop, so that the load takes both as they are, in three registers instead of four.
template <class T>
SYMMEM_DEVICE T* place_in(uint64 base, uint32& offset) {
  offset = arch::per_thread(offset);
  return pointer<T>(base + offset);
}

// A piece of a unit that a thread loads at once: 16 bytes, or 8 if that gives all threads something to load.
template <bool whole>
struct GemmPiece {
  using Type = arch::Vector16;
};

template <>
struct GemmPiece<false> {
  using Type = uint64;
};

// An operand's next stage in the registers of all threads, on its way from global to shared memory, if the lines of the
// matrix run along the depth. Lines behind the last repeat it, since their products are not stored. There are registers for
// `sets` stages.
template <ElementType type, uint32 count, bool of_b, uint32 sets = 1>
class AlongDepth {
 public:
  // Whether the matrix is fit for this, with `depth` as its depth.
  static SYMMEM_DEVICE bool takes(const GemmLines& from) { return from.regular(count, 16); }

  SYMMEM_DEVICE explicit AlongDepth(const GemmLines& from) : base_(from.address) {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < loads; ++number) {
      const uint32 line = GemmOrder<count, of_b>::matrix(index(number) / pieces);
      offsets_[number] = least(line, from.lines - 1) * static_cast<uint32>(from.stride) + index(number) % pieces * sizeof(Piece);
    }
  }

  // Loads a stage. Moves on to the next if there is one.
  SYMMEM_DEVICE void load(uint32 set, bool more) {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < loads; ++number) load(set, number);
    move_on(more);
  }

  // Loads a piece of a stage.
  SYMMEM_DEVICE void load(uint32 set, uint32 number) {
    loaded_[set][number] = arch::load_reused(place_in<const Piece>(base_, offsets_[number]));
  }

  SYMMEM_DEVICE void move_on(bool more) { base_ += more ? gemm_depth * gemm_element_bytes : 0; }

  // Stores a stage, converted if it must be.
  SYMMEM_DEVICE void store(uint32 set, uint16* to) {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < loads; ++number) {
      if constexpr (arch::converts<type>) {
        SYMMEM_UNROLL
        for (uint32 word = 0; word < words_of_piece; ++word) {
          convert_half(set, number, word, 0);
          convert_half(set, number, word, 1);
        }
      }
      store(set, number, to);
    }
    if constexpr (arch::converts<type>) {
      if (take_nans()) store_nans(to);
    }
  }

  // Stores a piece, whose words were converted if they must be.
  SYMMEM_DEVICE void store(uint32 set, uint32 number, uint16* to) { arch::store_shared(place(number, to), loaded_[set][number]); }

  // Does the first half of the work to convert a word, or the second.
  SYMMEM_DEVICE void convert_half(uint32 set, uint32 number, uint32 word, uint32 half) {
    change(loaded_[set][number], word, [&](uint32 bits) { return half == 0 ? conversion_.begin(bits) : conversion_.end(bits, nans_); });
  }

  // Returns whether there was a NaN among what this warp has converted since the last call. It is then replaced where it was stored:
  // to do so with every word would take as long as all else.
  SYMMEM_DEVICE bool take_nans() {
    const bool has = arch::has_nans(nans_);
    nans_ = 0;
    return __builtin_expect(has, false);
  }

  // Replaces what was NaN in this thread's pieces of a stage.
  SYMMEM_DEVICE void store_nans(uint16* to) const {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < loads; ++number) {
      Piece piece = arch::load_shared<Piece>(place(number, to));
      SYMMEM_UNROLL
      for (uint32 word = 0; word < words_of_piece; ++word) change(piece, word, arch::with_nans);
      arch::store_shared(place(number, to), piece);
    }
  }

 private:
  using Piece = typename GemmPiece<count * gemm_units >= gemm_threads>::Type;
  static constexpr uint32 pieces = gemm_depth * gemm_element_bytes / sizeof(Piece);  // of a line

 public:
  static constexpr uint32 words_of_piece = sizeof(Piece) / sizeof(uint32);
  static constexpr uint32 loads = count * pieces / gemm_threads;  // of a thread, for a stage

 private:
  static_assert(loads * gemm_threads == count * pieces, "all threads load equally much");

  static SYMMEM_DEVICE uint32 index(uint32 number) { return arch::thread_index() + number * gemm_threads; }

  // Returns the place of a piece in a stage.
  static SYMMEM_DEVICE uint16* place(uint32 number, uint16* stage) {
    const uint32 piece = index(number) % pieces;
    uint16* const unit = stage + GemmPlace::at(index(number) / pieces, piece * gemm_units / pieces);
    return unit + piece % (pieces / gemm_units) * (gemm_unit / 2);
  }

  // Replaces a word by what `function` returns of it.
  template <class Function>
  static SYMMEM_DEVICE void change(Piece& piece, uint32 word, Function function) {
    if constexpr (sizeof(Piece) == sizeof(uint64)) {
      const uint32 turn = word * 32;
      const uint64 other = piece & ~(0xffffffffull << turn);
      piece = other | static_cast<uint64>(function(static_cast<uint32>(piece >> turn))) << turn;
    } else {
      piece.words[word] = function(piece.words[word]);
    }
  }

  uint64 base_;
  uint32 offsets_[loads];
  Piece loaded_[sets][loads];
  arch::Conversion conversion_;
  uint32 nans_ = 0;
};

// The same for a B whose lines run across the depth. A thread transposes blocks of four columns and four lines, or of fewer
// lines if there are more threads than blocks. Eight adjacent threads have consecutive lines, and the next eight the next
// columns.
template <uint32 count, uint32 sets = 1>
class AcrossDepth {
 public:
  static SYMMEM_DEVICE bool takes(const GemmLines& from) {
    return from.regular(gemm_depth, 8) && (from.length >= count || from.length % 4 == 0);
  }

  SYMMEM_DEVICE explicit AcrossDepth(const GemmLines& from) : base_(from.address), stride_(from.stride) {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < blocks; ++number) {
      const uint32 column = least(four(number) * 4, from.length - 4);
      offsets_[number] = depth(number) * static_cast<uint32>(stride_) + column * gemm_element_bytes;
    }
  }

  SYMMEM_DEVICE void load(uint32 set, bool more) {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < blocks; ++number) {
      SYMMEM_UNROLL
      for (uint32 line = 0; line < lines; ++line) {
        loaded_[set][number][line] = arch::load_reused(place_in<const uint64>(base_ + line * stride_, offsets_[number]));
      }
    }
    base_ += more ? gemm_depth * stride_ : 0;
  }

  SYMMEM_DEVICE void store(uint32 set, uint16* to) const {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < blocks; ++number) {
      SYMMEM_UNROLL
      for (uint32 column = 0; column < 4; ++column) {
        const auto word = [&](uint32 line) { return static_cast<uint32>(loaded_[set][number][line] >> column / 2 * 32); };
        const uint32 first = depth(number);
        uint16* const place = to + GemmPlace::at(column * (count / 4) + four(number), first / gemm_unit) + first % gemm_unit;
        if constexpr (lines == 4) {
          const uint64 low = arch::paired(word(0), word(1), column % 2), high = arch::paired(word(2), word(3), column % 2);
          arch::store_shared(place, high << 32 | low);
        } else if constexpr (lines == 2) {
          arch::store_shared(place, arch::paired(word(0), word(1), column % 2));
        } else {
          arch::store_shared(place, static_cast<uint16>(word(0) >> column % 2 * 16));
        }
      }
    }
  }

 private:
  static constexpr uint32 fours = count / 4;
  static constexpr uint32 elements = gemm_depth * count / gemm_threads;  // of a thread
  static constexpr uint32 lines = elements < 16 ? elements / 4 : 4;      // of a block
  static constexpr uint32 blocks = elements / (lines * 4);
  static_assert(blocks * lines * 4 * gemm_threads == gemm_depth * count, "all threads load equally much");

  static SYMMEM_DEVICE uint32 index(uint32 number) { return arch::thread_index() + number * gemm_threads; }
  static SYMMEM_DEVICE uint32 four(uint32 number) { return index(number) / 8 % fours; }
  static SYMMEM_DEVICE uint32 depth(uint32 number) { return (index(number) / (8 * fours) * 8 + index(number) % 8) * lines; }

  uint64 base_, stride_;
  uint32 offsets_[blocks];
  uint64 loaded_[sets][blocks][lines];
};

// B in shared memory as it lies in a matrix whose lines run across the depth: `gemm_depth` lines of `columns` elements, for
// reads that transpose. Such a read takes four columns from each lane, and four lanes of one depth have the 16 columns of
// a square.
//
// A wave has 64 columns, 16 fours. Four `quarter` of its square `square` is four 4 quarter + (square ^ quarter % 2). So a
// thread has 16 adjacent elements of C, four from each square; the squares change places in pairs if its quarter is odd.
//
// Unit u of a line is in place u ^ turn(depth), so that reads do not conflict in the 64 banks of shared memory. They take
// lanes in groups of 32, each 8 bytes: four quarters of eight lines, which are lines 0 to 3 (or 4 to 7) of eight, and of
// the next eight. The halves of a unit differ by quarter % 2, which leaves 16 units to distinguish by `turn` and quarter / 2.
// (Groups: HipKittens, `analysis/paper_experiments/phases`, for reads of 8 bytes; Primus-Turbo's attention for gfx950
// derives the measured conflicts of transposing reads from the same two halves of a wave.)
template <uint32 columns>
struct GemmAcross {
  static constexpr uint32 units = columns / gemm_unit;  // of a line

  // Returns the element of the operand at which four columns of a wave begin, whose first column is `first`.
  static SYMMEM_DEVICE uint32 at(uint32 depth, uint32 first, uint32 square, uint32 quarter) {
    const uint32 four = first / 4 + quarter * 4 + (square ^ quarter % 2);
    return place(depth, four / 2) * gemm_unit + four % 2 * 4;
  }

  // Returns the place of a unit among all units of the operand.
  static SYMMEM_DEVICE uint32 place(uint32 depth, uint32 unit) { return depth * units + (unit ^ turn(depth)); }

  // Returns the unit of a line that is in a place of it.
  static SYMMEM_DEVICE uint32 unit(uint32 depth, uint32 place) { return place ^ turn(depth); }

 private:
  static_assert(columns == 64 || columns % 128 == 0, "a line has 8 units, or a multiple of 16");

  // Two lines of 8 units, or a part of one line, occupy all banks. Of the depths' bits 0, 1 and 3, one distinguishes the
  // halves of the banks; the others the first units.
  static SYMMEM_DEVICE uint32 turn(uint32 depth) {
    return columns == 64 ? (depth >> 1 & 1) | (depth >> 2 & 2) : depth & 11;
  }
};

// An operand's next stage on its way from global to shared memory without registers. Where there are more threads than
// units, some load a unit again, the same bytes to the same place, so that all warps have equally many loads in flight.
template <uint32 count>
class StraightLoads {
 public:
  static constexpr uint32 units = count * gemm_units;
  static constexpr uint32 loads = (units + gemm_threads - 1) / gemm_threads;  // of a warp, for a stage

  // Begins a load of a stage.
  SYMMEM_DEVICE void load(uint16* to, uint32 number) const {
    const uint32 first = (warp_ + number * gemm_threads) % units;
    arch::load_to_shared(to + first * gemm_unit, base_, offsets_[number]);
  }

 protected:
  SYMMEM_DEVICE explicit StraightLoads(uint64 base)
      : base_(base), warp_(arch::uniform(arch::thread_index() / arch::warp_size * arch::warp_size)) {}

  // Returns the place in shared memory, among all units, that a load of this thread fills.
  static SYMMEM_DEVICE uint32 index(uint32 number) { return (arch::thread_index() + number * gemm_threads) % units; }

  uint64 base_;
  uint32 offsets_[loads];

 private:
  uint32 warp_;  // the first thread of the warp
};

// As AlongDepth, without registers, which must not be converted.
template <ElementType type, uint32 count, bool of_b>
class StraightAlongDepth : public StraightLoads<count> {
 public:
  static SYMMEM_DEVICE bool takes(const GemmLines& from) { return AlongDepth<type, count, of_b>::takes(from); }

  SYMMEM_DEVICE explicit StraightAlongDepth(const GemmLines& from) : StraightLoads<count>(from.address) {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < this->loads; ++number) {
      // The place in shared memory is given, so look for what belongs there.
      const uint32 line = this->index(number) / gemm_units;
      const uint32 unit = GemmPlace::unit(line, this->index(number) % gemm_units);
      const uint32 outer = least(GemmOrder<count, of_b>::matrix(line), from.lines - 1);
      this->offsets_[number] = outer * static_cast<uint32>(from.stride) + unit * 16;
    }
  }

  // Moves on to the next stage.
  SYMMEM_DEVICE void move_on(bool more) { this->base_ += more ? gemm_depth * gemm_element_bytes : 0; }
};

// As AcrossDepth, without registers, for GemmAcross.
template <uint32 count>
class StraightAcrossDepth : public StraightLoads<count> {
 public:
  static SYMMEM_DEVICE bool takes(const GemmLines& from) {
    return from.regular(gemm_depth, 16) && (from.length >= count || from.length % gemm_unit == 0);
  }

  SYMMEM_DEVICE explicit StraightAcrossDepth(const GemmLines& from)
      : StraightLoads<count>(from.address), stride_(from.stride) {
    using Across = GemmAcross<count>;
    SYMMEM_UNROLL
    for (uint32 number = 0; number < this->loads; ++number) {
      const uint32 depth = this->index(number) / Across::units;
      const uint32 unit = Across::unit(depth, this->index(number) % Across::units);
      const uint32 column = least(unit * gemm_unit, from.length - gemm_unit);
      this->offsets_[number] = depth * static_cast<uint32>(stride_) + column * gemm_element_bytes;
    }
  }

  SYMMEM_DEVICE void move_on(bool more) { this->base_ += more ? gemm_depth * stride_ : 0; }

 private:
  uint64 stride_;
};

// Fills an operand of a stage from any matrix, element by element. `across` says whether its lines run across the depth.
template <ElementType type, uint32 count, bool of_b, bool across>
SYMMEM_DEVICE void fill_stage(uint16* to, const GemmLines& from, uint32 depth) {
  SYMMEM_ROLLED
  for (uint32 index = arch::thread_index(); index < count * gemm_units; index += gemm_threads) {
    const uint32 line = index % count, unit = index / count;
    const uint32 outer = GemmOrder<count, of_b>::matrix(line), first = depth + unit * gemm_unit;
    arch::Vector16 vector = {};
    SYMMEM_UNROLL
    for (uint32 element = 0; element < gemm_unit; ++element) {
      const uint32 inner = first + element;
      const uint32 bits = across ? from.element(inner, outer) : from.element(outer, inner);
      vector.words[element / 2] |= bits << element % 2 * 16;
    }
    if constexpr (arch::converts<type>) {
      uint32 nans = 0;
      SYMMEM_UNROLL
      for (uint32 word = 0; word < 4; ++word) {
        arch::Conversion conversion;
        vector.words[word] = arch::with_nans(conversion.end(conversion.begin(vector.words[word]), nans));
      }
    }
    arch::store_shared(to + GemmPlace::at(line, unit), vector);
  }
}

// The same for GemmAcross, element by element or, for what AcrossDepth takes, by 8 bytes if no line is behind the last.
template <uint32 columns>
SYMMEM_DEVICE void fill_across(uint16* to, const GemmLines& from, uint32 first) {
  using Across = GemmAcross<columns>;
  const bool halves = AcrossDepth<columns>::takes(from) && first + gemm_depth <= from.lines;
  SYMMEM_ROLLED
  for (uint32 index = arch::thread_index(); index < gemm_depth * Across::units; index += gemm_threads) {
    const uint32 depth = index / Across::units, unit = index % Across::units;
    arch::Vector16 vector = {};
    if (halves) {
      SYMMEM_UNROLL
      for (uint32 half = 0; half < 2; ++half) {
        const uint32 column = least(unit * gemm_unit + half * 4, from.length - 4);
        const uint64 line = from.address + (first + depth) * from.stride;
        const uint64 bits = arch::load_reused(pointer<const uint64>(line + column * gemm_element_bytes));
        vector.words[half * 2] = static_cast<uint32>(bits);
        vector.words[half * 2 + 1] = static_cast<uint32>(bits >> 32);
      }
    } else {
      SYMMEM_UNROLL
      for (uint32 element = 0; element < gemm_unit; ++element) {
        const uint32 bits = from.element(first + depth, unit * gemm_unit + element);
        vector.words[element / 2] |= bits << element % 2 * 16;
      }
    }
    arch::store_shared(to + Across::place(depth, unit) * gemm_unit, vector);
  }
}

}  // namespace symmem

#endif  // SYMMEM_HAS_MATRIX
