// Sums of rows in Lamport packets, to which a residual is added, and which are normalised: what stands at the end of each half
// of a tensor-parallel transformer's layer. A block has a row at a time. It sends all its rows, and then takes what peers send
// of the same, so that nothing is stored between the sum and the norm.
//
// The sum with the residual is rounded once, and the norm is of the rounded sum, as if a program had computed it from what
// is stored. Sums over a row are in f32, in an order that follows from the number of threads alone: all members choose the same
// grid, so that they have the same bits.
//
// A small kernel for whole vectors, and one for rows of any length at any address. The first keeps a row in registers. The second
// takes a row's packets several times, once for each sum over the row, and empties their places the last time.
#pragma once

#include "symmem/block_sums.h"
#include "symmem/reduce_lamport.h"

namespace symmem {

// Largest number in OCP E4M3, and the smallest of a row or a group for which a scale is computed.
constexpr float largest_f8 = 448;
constexpr float smallest_maximum = 1e-10f;

SYMMEM_DEVICE float magnitude(float number) { return arch::float_of(arch::bits_of(number) & 0x7fffffffu); }

// What a small kernel is for: all calls, those with neither LayerNorm nor a bias, or such calls with results of 8 bits. What is only
// jumped over costs time.
enum class NormForm : uint32 { any, plain, narrow };

// The norm of a call, for the elements of a vector.
template <class Element>
class RowNorm {
 public:
  using Vector = Accumulation<Element, 4>;
  static constexpr int count = Vector::count;
  static constexpr uint32 group_vectors = norm_group / count;

  SYMMEM_DEVICE explicit RowNorm(const ReduceNormArguments& arguments) : arguments_(arguments) {}

  SYMMEM_DEVICE const ReduceNormArguments& arguments() const { return read_anew(arguments_); }

  SYMMEM_DEVICE bool is(Norm norm) const { return arguments().norm == static_cast<uint32>(norm); }
  SYMMEM_DEVICE bool is(Quantization kind) const { return arguments().quantization == static_cast<uint32>(kind); }

  // Return `start` and the sum of a vector's elements, that of their squared differences from `mean`, and their largest magnitude.
  // Elements from `end` on do not count; they are 0.
  SYMMEM_DEVICE static float sum(const float (&from)[count], float start) {
    SYMMEM_UNROLL
    for (int index = 0; index < count; ++index) start += from[index];
    return start;
  }
  SYMMEM_DEVICE static float squares(const float (&from)[count], uint32 end, float mean, float start) {
    SYMMEM_UNROLL
    for (int index = 0; index < count; ++index) {
      const float difference = static_cast<uint32>(index) < end ? from[index] - mean : 0;
      start += difference * difference;
    }
    return start;
  }
  SYMMEM_DEVICE static float largest(const float (&from)[count], float start) {
    SYMMEM_UNROLL
    for (int index = 0; index < count; ++index) {
      const float here = magnitude(from[index]);
      start = here > start ? here : start;
    }
    return start;
  }

  // Normalises a vector. Elements from `end` on become 0.
  SYMMEM_DEVICE void normalise(float (&numbers)[count], uint32 end, float mean, float factor, const arch::Vector16& weight,
                               const arch::Vector16& bias) const {
    if (is(Norm::none)) return;
    float weights[count], biases[count];
    Vector::widen(weight.words, weights);
    Vector::widen(bias.words, biases);
    SYMMEM_UNROLL
    for (int index = 0; index < count; ++index) {
      const float scaled = (numbers[index] - mean) * factor * (weights[index] + arguments().weight_offset) + biases[index];
      numbers[index] = static_cast<uint32>(index) < end ? scaled : 0;
    }
  }

  // Returns the mean of a row, if its norm has one, from the sum of its elements, and the factor from that of its squares.
  SYMMEM_DEVICE float mean(float sum) const { return sum / static_cast<float>(arguments().hidden); }
  SYMMEM_DEVICE float factor(float squares) const {
    return arch::reciprocal_root(squares / static_cast<float>(arguments().hidden) + arguments().epsilon);
  }

  // Returns the scale of numbers whose largest magnitude is given.
  SYMMEM_DEVICE static float scale(float largest) {
    return (largest > smallest_maximum ? largest : smallest_maximum) / largest_f8;
  }

  // Returns the scale of a row, from its thread's largest magnitude, and that of the group with vector `place`, alike. The scale
  // is stored if `stores`. Called by every thread of the block.
  SYMMEM_DEVICE float row_scale(BlockSums& block, uint32 row, float largest, bool stores) const {
    const float chosen = scale(block.maximum(largest));
    if (stores && arch::thread_index() == 0) store_scale(row, chosen);
    return chosen;
  }
  SYMMEM_DEVICE float group_scale(uint32 row, uint32 place, float largest, bool stores) const {
    const float chosen = scale(BlockSums::maximum_of<group_vectors>(largest));
    const uint64 groups = arguments().hidden / norm_group;
    if (stores && place % group_vectors == 0) store_scale(row * groups + place / group_vectors, chosen);
    return chosen;
  }
  SYMMEM_DEVICE float tensor_scale() const { return arch::float_of(arch::load(pointer<const uint32>(arguments().scales))); }

  // Stores a vector's numbers at its place in the output: as elements, or times the inverse of `scale` in 8 bits.
  template <bool whole, NormForm form>
  SYMMEM_DEVICE void store(uint32 row, uint32 place, const float (&numbers)[count], float scale) const {
    if constexpr (form == NormForm::plain) {
      store_elements<whole>(row, place, numbers);
    } else if constexpr (form == NormForm::narrow) {
      store_bytes<whole>(row, place, numbers, scale);
    } else if (is(Quantization::none)) {
      store_elements<whole>(row, place, numbers);
    } else {
      store_bytes<whole>(row, place, numbers, scale);
    }
  }

  // A row of a matrix of elements.
  SYMMEM_DEVICE LamportMessage message(uint64 matrix, uint32 row) const {
    return {arch::per_thread(matrix + row * row_bytes()), arch::per_thread(row_bytes())};
  }
  // Loads a vector of a row, or zeros if there is no matrix.
  SYMMEM_DEVICE arch::Vector16 vector(uint64 matrix, uint32 row, uint32 place) const {
    if (matrix == 0) return {};
    return message(matrix, row).load(place);
  }
  SYMMEM_DEVICE uint64 row_bytes() const { return arguments().hidden * sizeof(typename Element::Bits); }
  // The number of a row's vectors, of which the last may be partial.
  SYMMEM_DEVICE uint32 vectors() const { return static_cast<uint32>((row_bytes() + 15) / 16); }

 private:
  template <bool whole>
  SYMMEM_DEVICE void store_elements(uint32 row, uint32 place, const float (&numbers)[count]) const {
    arch::Vector16 vector;
    Vector::narrow(numbers, vector.words);
    if constexpr (whole) {
      arch::store(pointer<arch::Vector16>(arguments().reduce.destination + row * row_bytes()) + place, vector);
    } else {
      message(arguments().reduce.destination, row).store(place, vector);
    }
  }

  template <bool whole>
  SYMMEM_DEVICE void store_bytes(uint32 row, uint32 place, const float (&numbers)[count], float scale) const {
    const float inverse = 1 / scale;
    const uint64 address = arguments().reduce.destination + static_cast<uint64>(row) * arguments().hidden + place * count;
    if constexpr (whole) {
      static_assert(count == 8, "the small kernels are for types of 16 bits");
      const uint64 high = narrow_four(numbers + 4, inverse);
      arch::store(pointer<uint64>(address), high << 32 | narrow_four(numbers, inverse));
    } else {
      using Narrow = Accumulation<ElementOf<ElementType::f8_e4m3>::Type, count / 4>;
      float scaled[count];
      SYMMEM_UNROLL
      for (int index = 0; index < count; ++index) scaled[index] = numbers[index] * inverse;
      uint32 words[count / 4];
      Narrow::narrow(scaled, words);
      SYMMEM_ROLLED
      for (uint32 index = 0; index < count && place * count + index < arguments().hidden; ++index) {
        const uint32 word = count == 8 && index >= 4 ? words[count / 4 - 1] : words[0];
        arch::store(pointer<uint8>(address + index), static_cast<uint8>(word >> (index % 4 * 8)));
      }
    }
  }

  // Returns four numbers times a factor as 8 bits each.
  SYMMEM_DEVICE static uint32 narrow_four(const float* numbers, float by) {
#if SYMMEM_HAS_F8_CONVERSIONS
    const uint32 low = arch::narrow_f8_e4m3(numbers[0] * by, numbers[1] * by);
    return low | arch::narrow_f8_e4m3(numbers[2] * by, numbers[3] * by) << 16;
#else
    using Narrow = ElementOf<ElementType::f8_e4m3>::Type;
    uint32 word = 0;
    SYMMEM_UNROLL
    for (int index = 0; index < 4; ++index) word |= static_cast<uint32>(Narrow::narrow(numbers[index] * by)) << (8 * index);
    return word;
#endif
  }

  SYMMEM_DEVICE void store_scale(uint64 index, float scale) const {
    arch::store(pointer<uint32>(arguments().scales) + index, arch::bits_of(scale));
  }

  const ReduceNormArguments& arguments_;
};

// Normalises rows of whole vectors at multiples of 16, at most one a thread, in a group of `fixed_world` if that is not 0. Packets
// of `most` peers are polled together. Called by every thread of every block, as the other kernel.
template <class Element, int most, uint32 fixed_world, NormForm form>
SYMMEM_DEVICE void norm_few_vectors(const ReduceNormArguments& arguments) {
  using Row = RowNorm<Element>;
  constexpr int count = Row::count;
  const Row norm(arguments);
  Group group(arguments.reduce.group);
  LamportInboxes<fixed_world, ReduceLamportArguments> inboxes(arguments.reduce, group);
  BlockSums block;
  const uint32 rank = group.rank();
  const uint64 source = fixed_world == 2 ? arguments.reduce.pair.source : arguments.reduce.sources[rank];
  const uint32 thread = arch::thread_index();
  const uint32 vectors = norm.vectors();
  const bool used = thread < vectors;
  // Loads this thread's vector of a row of a matrix, or zeros where there is none.
  const auto load = [&](uint64 matrix, uint32 row) {
    arch::Vector16 vector = {};
    if (matrix != 0 && used) vector = arch::load(pointer<const arch::Vector16>(matrix) + (row * vectors + thread));
    return vector;
  };
  arch::wait_for_prerequisites();
  arch::Vector16 own[1] = {load(source, arch::block_index())};
  // What is needed after the wait is loaded before it, if registers have room.
  constexpr bool early = most == 1;
  constexpr bool is_any = form == NormForm::any;
  arch::Vector16 residual, weight;
  if (early) {
    residual = load(norm.arguments().residual, arch::block_index());
    weight = load(norm.arguments().weight, 0);
  }
  float scale = 1;
  if (form == NormForm::narrow && norm.is(Quantization::tensor)) scale = norm.tensor_scale();
  bool good = inboxes.begin();
  SYMMEM_ROLLED
  for (uint32 row = arch::block_index(); row < norm.arguments().rows; row += arch::block_count()) {
    if (row != arch::block_index()) own[0] = load(source, row);
    if (!good || !used) continue;
    const arch::Vector16 packet = to_packet(own[0]);
    inboxes.send_after(1, row * vectors + thread, packet);
    SYMMEM_ROLLED
    for (uint32 step = 2; step < inboxes.world(); ++step) inboxes.send_to(group.after(step), row * vectors + thread, packet);
  }
  inboxes.count();
  const Sum sum(static_cast<uint32>(ReduceOperation::sum));
  SYMMEM_ROLLED
  for (uint32 row = arch::block_index(); row < norm.arguments().rows; row += arch::block_count()) {
    if (!early || row != arch::block_index()) residual = load(norm.arguments().residual, row);
    if (arch::block_count() < norm.arguments().rows) own[0] = load(source, row);
    own[0] = from_packet(to_packet(own[0]));
    arch::Vector16 rounded = {};
    const auto round = [&](int, Accumulation<Element, 4>& total) {
      if (norm.arguments().residual != 0) total.add(residual.words, sum);
      total.finish(rounded.words, sum, 1);
    };
    if (good && used) {
      good = sum_arrived<Element, most, 1, false>(inboxes, rank, sum, row * vectors + thread, 0, 1, own, round);
    }
    // The blocks of the peers that this block waits for are resident: they have sent.
    if (good) group.answered(norm.arguments().reduce.dependents);
    if (good && used && norm.arguments().residual_out != 0) {
      arch::store(pointer<arch::Vector16>(norm.arguments().residual_out) + (row * vectors + thread), rounded);
    }
    float numbers[count];
    Row::Vector::widen(rounded.words, numbers);
    const uint32 end = used ? count : 0;
    float mean = 0, factor = 1;
    if (is_any && norm.is(Norm::layer)) mean = norm.mean(block.sum(Row::sum(numbers, 0)));
    if (!norm.is(Norm::none)) factor = norm.factor(block.sum(Row::squares(numbers, end, mean, 0)));
    if (!early) weight = load(norm.arguments().weight, 0);
    arch::Vector16 bias = {};
    if (is_any) bias = load(norm.arguments().bias, 0);
    norm.normalise(numbers, end, mean, factor, weight, bias);
    if (is_any && norm.is(Quantization::tensor)) scale = norm.tensor_scale();
    if (form != NormForm::plain && norm.is(Quantization::row)) scale = norm.row_scale(block, row, Row::largest(numbers, 0), good);
    if (form != NormForm::plain && norm.is(Quantization::group)) {
      scale = norm.group_scale(row, thread, Row::largest(numbers, 0), good && used);
    }
    if (good && used) norm.template store<true, form>(row, thread, numbers, scale);
  }
}

// The passes of the other kernel over a row.
enum class NormPass : uint32 { mean, squares, largest, store };

// Normalises rows of any length at any address, in any group, also of one.
template <class Element>
SYMMEM_DEVICE void norm_any(const ReduceNormArguments& arguments) {
  using Row = RowNorm<Element>;
  constexpr int count = Row::count;
  const Row norm(arguments);
  Group group(arguments.reduce.group);
  LamportInboxes<0, ReduceLamportArguments> inboxes(arguments.reduce, group);
  BlockSums block;
  const bool alone = inboxes.peers() == 0;
  arch::wait_for_prerequisites();
  bool good = alone || inboxes.begin();
  SYMMEM_ROLLED
  for (uint32 row = arch::block_index(); good && !alone && row < norm.arguments().rows; row += arch::block_count()) {
    SYMMEM_ROLLED
    for (uint32 place = arch::thread_index(); place < norm.vectors(); place += arch::thread_count()) {
      const arch::Vector16 packet = to_packet(norm.vector(norm.arguments().reduce.sources[group.rank()], row, place));
      SYMMEM_ROLLED
      for (uint32 step = 1; step < inboxes.world(); ++step) inboxes.send_to(group.after(step), row * norm.vectors() + place, packet);
    }
  }
  if (!alone) inboxes.count();
  const Sum sum(static_cast<uint32>(ReduceOperation::sum));
  SYMMEM_ROLLED
  for (uint32 row = arch::block_index(); row < norm.arguments().rows; row += arch::block_count()) {
    float mean = 0, factor = 1, scale = 1;
    if (norm.is(Quantization::tensor)) scale = norm.tensor_scale();
    SYMMEM_ROLLED
    for (uint32 step = 0; step <= static_cast<uint32>(NormPass::store); ++step) {
      const NormPass pass = static_cast<NormPass>(step);
      if (pass == NormPass::mean && !norm.is(Norm::layer)) continue;
      if (pass == NormPass::squares && norm.is(Norm::none)) continue;
      if (pass == NormPass::largest && !norm.is(Quantization::row)) continue;
      float statistic = 0;
      // Every thread comes equally often, with zeros behind the row's end.
      SYMMEM_ROLLED
      for (uint32 first = 0; first < norm.vectors(); first += arch::thread_count()) {
        const uint32 place = first + arch::thread_index();
        arch::Vector16 rounded = {};
        if (good && place < norm.vectors()) {
          const arch::Vector16 own[1] = {from_packet(to_packet(norm.vector(norm.arguments().reduce.sources[group.rank()], row, place)))};
          const auto round = [&](int, Accumulation<Element, 4>& total) {
            if (alone) total.begin(own[0].words);
            total.add(norm.vector(norm.arguments().residual, row, place).words, sum);
            total.finish(rounded.words, sum, 1);
          };
          good = sum_arrived<Element, 1, 1, true>(inboxes, group.rank(), sum, row * norm.vectors() + place, 0, 1, own, round);
          if (pass == NormPass::store && good) {
            inboxes.empty(row * norm.vectors() + place);
            if (norm.arguments().residual_out != 0) norm.message(norm.arguments().residual_out, row).store(place, rounded);
          }
        }
        float numbers[count];
        Row::Vector::widen(rounded.words, numbers);
        const uint32 before = place * count;
        const uint32 end = before < norm.arguments().hidden ? norm.arguments().hidden - before : 0;
        if (pass == NormPass::mean) {
          statistic = Row::sum(numbers, statistic);
        } else if (pass == NormPass::squares) {
          statistic = Row::squares(numbers, end, mean, statistic);
        } else {
          norm.normalise(numbers, end, mean, factor, norm.vector(norm.arguments().weight, 0, place),
                         norm.vector(norm.arguments().bias, 0, place));
          const float largest = Row::largest(numbers, pass == NormPass::largest ? statistic : 0);
          if (pass == NormPass::largest) {
            statistic = largest;
            continue;
          }
          const bool used = good && place < norm.vectors();
          if (norm.is(Quantization::group)) scale = norm.group_scale(row, place, largest, used);
          if (used) norm.template store<false, NormForm::any>(row, place, numbers, scale);
        }
      }
      if (pass == NormPass::mean) mean = norm.mean(block.sum(statistic));
      if (pass == NormPass::squares) factor = norm.factor(block.sum(statistic));
      if (pass == NormPass::largest) scale = norm.row_scale(block, row, statistic, good);
    }
  }
  arch::end_waits();
}

}  // namespace symmem
