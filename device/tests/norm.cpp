// Tests sums of rows with a residual and a norm on the host twin. `cargo xtask twin` builds and runs them under
// AddressSanitizer and UndefinedBehaviorSanitizer, and under ThreadSanitizer. Ranks are host threads that launch grids one
// after the other, without synchronization between calls, each by any kernel that can do the call. A seed determines types,
// data, lengths, alignments, grids, kernels and schedule.
//
// Every bit is compared with a reference in f32 that adds in the order of the kernels: elements of a thread, threads of a line,
// lines of a block. It computes what the host backend computes (core/src/host/collectives/reduce_norm.rs), in another order.
//
// Verified to fail if packets are emptied in the first pass or never, if the residual is left out or added after the rounding, if
// the second line of a block does not count, if the two halves of a block's memory are one, if a vector has a scale of its own,
// and if what has not come is stored. Two-shot: if a member's rows begin at another's, if a row that does not exist is stored, and if the
// last results are not taken.
#include "symmem/abi.h"

// A group is as many vectors as a line of threads: 128 elements are more than the twin's lines have.
#define norm_group (count * arch::line_threads)
#include "../entries/reduce_norm.h"
#undef norm_group

#include "lamport_inboxes.h"

namespace {

using Kernel = void (*)(const ReduceNormArguments&);

// The small kernels for one-shot calls of every form, without mean and bias, and those with results of 8 bits; and for two-shot calls.
struct Forms {
  Kernel any, plain, narrow, shares;
};

struct Type {
  const PlainType& plain;
  Kernel any, shares;
  Forms pair, few;  // null for f32
};

#define FORMS(size, type)                                                                                                    \
  {symmem_reduce_norm_##size##_##type, symmem_reduce_norm_##size##_plain_##type, symmem_reduce_norm_##size##_narrow_##type, \
   symmem_reduce_norm_##size##_shares_##type}
const Type row_types[] = {
    {types[8], symmem_reduce_norm_f16, symmem_reduce_norm_shares_f16, FORMS(pair, f16), FORMS(few, f16)},
    {types[9], symmem_reduce_norm_bf16, symmem_reduce_norm_shares_bf16, FORMS(pair, bf16), FORMS(few, bf16)},
    {types[10], symmem_reduce_norm_f32, symmem_reduce_norm_shares_f32, {}, {}}};

// Most vectors that a rank sends another in a call.
constexpr uint32 most_vectors = 40;

float wide(const PlainType& plain, uint32 bits) {
  return plain.exponent == 0 ? arch::float_of(bits) : static_cast<float>(defined(plain.exponent, plain.mantissa, false, bits));
}
uint32 narrow(const PlainType& plain, float number) {
  return plain.exponent == 0 ? arch::bits_of(number) : nearest(plain.exponent, plain.mantissa, false, false, number);
}

uint32 word_at(const Buffer& buffer, uint64 at, uint32 bytes) {
  uint32 word = 0;
  std::memcpy(&word, buffer.memory.data() + buffer.offset + at, bytes);
  return word;
}
void put(Buffer& buffer, uint64 at, uint32 word, uint32 bytes) {
  std::memcpy(buffer.memory.data() + buffer.offset + at, &word, bytes);
}

// Adds up numbers in the order of a block: `of` returns the sum of a thread.
float block_sum(uint32 threads, const std::function<float(uint32)>& of) {
  float lines = 0;
  for (uint32 first = 0; first < threads; first += arch::line_threads) {
    float line = of(first);
    for (uint32 thread = 1; thread < arch::line_threads; ++thread) line += of(first + thread);
    lines = first == 0 ? line : lines + line;
  }
  return lines;
}

enum class Residual { absent, in_place, apart, not_stored };

struct Call {
  const Type& type;
  Norm norm;
  Quantization quantization;
  Residual residual;
  bool in_place, has_weight, has_bias;
  bool two_shot;  // residuals and sums then have a rank's own rows
  uint32 ranks;
  uint32 rows, hidden;
  uint32 blocks, threads;  // of the grid, equal on all ranks
  float epsilon, weight_offset;
  Buffer weight, bias;
  std::vector<Buffer> inputs, outputs, residuals, sums, scales;                 // per rank
  std::vector<Buffer> wanted_inputs, wanted_outputs, wanted_residuals, wanted_sums, wanted_scales;
  std::vector<uint8> whole_residual;  // of all rows

  Call(uint32 ranks, Random& random)
      : type(row_types[up_to(random, 2)]), norm(static_cast<Norm>(up_to(random, 2))),
        quantization(static_cast<Quantization>(up_to(random, 3))), residual(static_cast<Residual>(up_to(random, 3))),
        in_place(quantization == Quantization::none && up_to(random, 1) != 0),
        two_shot(ranks > 1 && quantization == Quantization::none && up_to(random, 3) != 0), ranks(ranks), weight(0, 0), bias(0, 0) {
    has_weight = norm != Norm::none;
    has_bias = norm == Norm::layer && up_to(random, 3) != 0;
    // Mostly short and aligned, so that the small kernels can do the call.
    const bool whole = up_to(random, 2) != 0;
    threads = arch::line_threads * (1 + up_to(random, 1));
    const uint32 most = whole ? threads : 3 * threads;
    const uint32 vectors = 1 + up_to(random, most - 1);
    hidden = vectors * count();
    if (!whole) hidden -= up_to(random, count() - 1);
    if (quantization == Quantization::group) hidden = (vectors + 1) / 2 * group();
    // Two-shot, a part has a share's rows and its results.
    const uint32 fit = std::min(5u, most_vectors / row_vectors() / (two_shot ? 2 : 1));
    rows = 1 + up_to(random, (two_shot ? fit * ranks : fit) - 1);
    blocks = 1 + up_to(random, std::min(share_rows(), 3u) - 1);
    epsilon = up_to(random, 1) == 0 ? 1e-5f : 0.25f;
    weight_offset = static_cast<float>(up_to(random, 1));
    const auto offset = [&] { return whole ? up_to(random, 1) * 16 : up_to(random, 16 / width()) * width(); };
    const uint64 bytes = static_cast<uint64>(elements()) * width();
    inputs = buffers(ranks, bytes, offset);
    for (uint32 rank = 0; rank < ranks; ++rank) {
      const uint64 own = rows_of(rank) * hidden * width();
      residuals.emplace_back(residual == Residual::absent ? 0 : own, offset());
      sums.emplace_back(residual == Residual::apart ? own : 0, offset());
    }
    outputs = buffers(ranks, in_place ? 0 : elements() * (is_narrow() ? 1 : width()), offset);
    scales = buffers(ranks, scale_count() * 4, [&] { return up_to(random, 1) * 4; });
    weight = Buffer(hidden * width(), offset());
    bias = Buffer(hidden * width(), offset());
    fill_all(random);
    compute();
  }

  uint32 width() const { return type.plain.bytes; }
  uint32 count() const { return 16 / width(); }
  uint32 group() const { return count() * arch::line_threads; }
  uint32 row_vectors() const { return (hidden * width() + 15) / 16; }
  uint32 elements() const { return rows * hidden; }
  // Rows of a share, and those of a rank, from `first_row` on; one-shot all.
  uint32 share_rows() const { return two_shot ? (rows + ranks - 1) / ranks : rows; }
  uint32 first_row(uint32 rank) const { return two_shot ? rank * share_rows() : 0; }
  uint32 rows_of(uint32 rank) const { return std::min(share_rows(), rows - std::min(rows, first_row(rank))); }
  bool is_narrow() const { return quantization != Quantization::none; }
  bool has_no_mean() const { return norm != Norm::layer && !has_bias; }
  uint32 scale_count() const {
    switch (quantization) {
      case Quantization::none: return 0;
      case Quantization::tensor: return 1;
      case Quantization::row: return rows;
      default: return elements() / group();
    }
  }

  // Numbers of all digits, and rows of zeros.
  void fill_all(Random& random) {
    const auto fill_one = [&](Buffer& buffer) {
      for (uint64 at = 0; at < buffer.size(); at += width()) {
        const float number = (static_cast<float>(up_to(random, 2000000)) - 1000000) / 300000;
        put(buffer, at, narrow(type.plain, number), width());
      }
    };
    for (Buffer& input : inputs) fill_one(input);
    // A residual is the same at all ranks that have it.
    const bool zeros = up_to(random, 3) == 0;
    Buffer all(static_cast<uint64>(elements()) * width(), 0);
    fill_one(all);
    if (zeros) for (uint64 at = 0; at < hidden * width(); at += width()) put(all, at, 0, width());
    whole_residual.assign(all.memory.begin() + static_cast<long>(all.offset), all.memory.end());
    for (uint32 rank = 0; rank < ranks; ++rank) {
      Buffer& one = residuals[rank];
      const uint64 from = all.offset + static_cast<uint64>(first_row(rank)) * hidden * width();
      if (one.size() != 0) std::memcpy(one.memory.data() + one.offset, all.memory.data() + from, one.size());
    }
    fill_one(weight);
    fill_one(bias);
    for (Buffer& one : inputs)
      for (uint64 at = 0; zeros && at < hidden * width(); at += width()) put(one, at, 0, width());
    const float scale = static_cast<float>(1 + up_to(random, 100)) / 1000;
    if (quantization == Quantization::tensor) for (Buffer& one : scales) put(one, 0, arch::bits_of(scale), 4);
  }

  // Computes what each rank must have after the call.
  void compute() {
    wanted_inputs = inputs, wanted_outputs = outputs, wanted_residuals = residuals, wanted_sums = sums, wanted_scales = scales;
    for (uint32 row = 0; row < rows; ++row) {
      std::vector<float> numbers(hidden);
      for (uint32 index = 0; index < hidden; ++index) {
        const uint64 at = (static_cast<uint64>(row) * hidden + index) * width();
        float sum = wide(type.plain, word_at(inputs[0], at, width()));
        for (size_t rank = 1; rank < inputs.size(); ++rank) sum += wide(type.plain, word_at(inputs[rank], at, width()));
        if (residual != Residual::absent) {
          uint32 word = 0;
          std::memcpy(&word, whole_residual.data() + at, width());
          sum += wide(type.plain, word);
        }
        const uint32 rounded = narrow(type.plain, sum);
        for (uint32 rank = 0; rank < ranks; ++rank) {
          if (row < first_row(rank) || row >= first_row(rank) + rows_of(rank)) continue;
          const uint64 own = at - static_cast<uint64>(first_row(rank)) * hidden * width();
          if (residual == Residual::in_place) put(wanted_residuals[rank], own, rounded, width());
          if (residual == Residual::apart) put(wanted_sums[rank], own, rounded, width());
        }
        numbers[index] = wide(type.plain, rounded);
      }
      normalise(numbers);
      store(row, numbers);
    }
  }

  // Adds up `of` each element of a row, in the kernels' order.
  float row_sum(const std::vector<float>& row, const std::function<float(float)>& of) const {
    return block_sum(threads, [&](uint32 thread) {
      float sum = 0;
      for (uint32 vector = thread; vector * count() < hidden; vector += threads)
        for (uint32 index = vector * count(); index < std::min(hidden, (vector + 1) * count()); ++index) sum += of(row[index]);
      return sum;
    });
  }

  void normalise(std::vector<float>& row) const {
    if (norm == Norm::none) return;
    const float elements = static_cast<float>(hidden);
    const float mean = norm == Norm::layer ? row_sum(row, [](float number) { return number; }) / elements : 0;
    const float squares = row_sum(row, [&](float number) { return (number - mean) * (number - mean); });
    const float factor = 1 / std::sqrt(squares / elements + epsilon);
    for (uint32 index = 0; index < hidden; ++index) {
      const float by = wide(type.plain, word_at(weight, index * width(), width())) + weight_offset;
      const float more = has_bias ? wide(type.plain, word_at(bias, index * width(), width())) : 0;
      row[index] = (row[index] - mean) * factor * by + more;
    }
  }

  void store(uint32 row, const std::vector<float>& numbers) {
    std::vector<Buffer>& results = in_place ? wanted_inputs : wanted_outputs;
    const uint32 together = quantization == Quantization::group ? group() : hidden;
    for (uint32 index = 0; index < hidden; ++index) {
      const uint64 at = static_cast<uint64>(row) * hidden + index;
      float scale = 1;
      if (quantization == Quantization::tensor) {
        scale = arch::float_of(word_at(scales[0], 0, 4));
      } else if (is_narrow()) {
        float largest = smallest_maximum;
        for (uint32 each = index / together * together; each < (index / together + 1) * together; ++each)
          largest = std::max(largest, std::fabs(numbers[each]));
        scale = largest / largest_f8;
        for (Buffer& one : wanted_scales) put(one, at / together * 4, arch::bits_of(scale), 4);
      }
      const uint32 bits = is_narrow() ? nearest(4, 3, true, true, numbers[index] * (1 / scale)) : narrow(type.plain, numbers[index]);
      for (Buffer& one : results) put(one, is_narrow() ? at : at * width(), bits, is_narrow() ? 1 : width());
    }
  }

  // Returns a kernel that can do the call, any of them.
  Kernel kernel(const ReduceNormArguments& arguments, uint32 dice) const {
    uint64 all = hidden * width() | arguments.reduce.destination | arguments.residual | arguments.residual_out | arguments.weight |
                 arguments.bias;
    for (uint32 member = 0; member < ranks; ++member) all |= arguments.reduce.sources[member];
    std::vector<Kernel> able = {two_shot ? type.shares : type.any};
    const auto add = [&](const Forms& forms) {
      able.push_back(two_shot ? forms.shares : forms.any);
      if (two_shot) return;
      if (has_no_mean()) able.push_back(is_narrow() ? forms.narrow : forms.plain);
    };
    if (type.few.any != nullptr && ranks > 1 && all % 16 == 0 && row_vectors() <= threads) {
      add(type.few);
      if (ranks == 2) add(type.pair);
    }
    return able[dice % able.size()];
  }

  void launch(World& world, Inboxes& inboxes, uint32 rank, uint32 dice) {
    ReduceNormArguments arguments{};
    arguments.reduce = inboxes.arguments(world, rank);
    for (uint32 member = 0; member < world.ranks; ++member) {
      // One without rows has no address.
      const uint64 from = inputs[rank].at() + static_cast<uint64>(first_row(member)) * hidden * width();
      arguments.reduce.sources[member] = rows_of(member) == 0 ? 0 : from;
    }
    arguments.reduce.pair = pair_of(arguments.reduce);
    arguments.share_rows = two_shot ? share_rows() : 0;
    arguments.owner_rows = arguments.share_rows;
    arguments.reduce.share_bytes = arguments.share_rows * row_vectors() * 16;
    arguments.reduce.destination = in_place ? inputs[rank].at() : outputs[rank].at();
    arguments.reduce.count = elements();
    arguments.reduce.element = static_cast<uint32>(type.plain.type);
    arguments.reduce.reduce = static_cast<uint32>(ReduceOperation::sum);
    arguments.reduce.receiver = every_member;
    const bool owns = rows_of(rank) != 0;
    if (owns && residual != Residual::absent) arguments.residual = residuals[rank].at();
    if (owns && residual == Residual::in_place) arguments.residual_out = residuals[rank].at();
    if (owns && residual == Residual::apart) arguments.residual_out = sums[rank].at();
    if (has_weight) arguments.weight = weight.at();
    if (has_bias) arguments.bias = bias.at();
    if (is_narrow()) arguments.scales = scales[rank].at();
    arguments.hidden = hidden;
    arguments.rows = rows;
    arguments.epsilon = epsilon;
    arguments.weight_offset = weight_offset;
    arguments.norm = static_cast<uint32>(norm);
    arguments.quantization = static_cast<uint32>(quantization);
    const Kernel call = kernel(arguments, dice);
    arch::launch(blocks, threads, threads / arch::line_threads * 8, [&] { call(arguments); });
  }

  void check(uint32 ranks, const std::string& what) const {
    for (uint32 rank = 0; rank < ranks; ++rank) {
      const auto is = [&](const std::vector<Buffer>& seen, const std::vector<Buffer>& wanted, const char* name) {
        expect(seen[rank].memory == wanted[rank].memory, name + what);
      };
      is(sums, wanted_sums, "the sum with the residual is rounded once");
      is(residuals, wanted_residuals, "a residual is replaced by the sum, or stays");
      is(scales, wanted_scales, "a scale is that of its largest result");
      is(inputs, wanted_inputs, "the results in place, or the source as it was");
      is(outputs, wanted_outputs, "the results");
    }
  }
};

void calls(uint32 seed, uint32 ranks) {
  Random random(seed * 100 + ranks);
  arch::schedule() = seed;
  World world(ranks, 1, 1, ranks * 2 * 16, 0);
  Inboxes inboxes(ranks, 16 * most_vectors);
  std::vector<Call> all;
  std::vector<uint32> dice;
  const int count = ranks == 2 ? 24 : 12;
  for (int call = 0; call < count; ++call) {
    all.emplace_back(ranks, random);
    for (uint32 rank = 0; rank < ranks; ++rank) dice.push_back(static_cast<uint32>(random() >> 8));
  }
  std::vector<std::thread> running;
  for (uint32 rank = 0; rank < ranks; ++rank) {
    running.emplace_back([&, rank] {
      for (size_t call = 0; call < all.size(); ++call) all[call].launch(world, inboxes, rank, dice[call * ranks + rank]);
    });
  }
  for (auto& thread : running) thread.join();
  const std::string what = " (seed " + std::to_string(seed) + ", world " + std::to_string(ranks) + ", call ";
  for (size_t call = 0; call < all.size(); ++call) all[call].check(ranks, what + std::to_string(call) + ")");
  expect(world.record.state == 0, "no wait gave up");
  arch::schedule() = 0;
}

// Every kernel of a type of 16 bits. Grids have one block, and calls two rows of two vectors.
struct Waiting {
  Kernel kernel;
  uint32 ranks;
  bool is_narrow = false;
  bool two_shot = false;
};

const Waiting all_kernels[] = {
    {symmem_reduce_norm_bf16, 3},
    {symmem_reduce_norm_few_bf16, 3},
    {symmem_reduce_norm_few_plain_bf16, 3},
    {symmem_reduce_norm_few_narrow_bf16, 3, true},
    {symmem_reduce_norm_pair_bf16, 2},
    {symmem_reduce_norm_pair_plain_bf16, 2},
    {symmem_reduce_norm_pair_narrow_bf16, 2, true},
    {symmem_reduce_norm_shares_bf16, 3, false, true},
    {symmem_reduce_norm_few_shares_bf16, 3, false, true},
    {symmem_reduce_norm_pair_shares_bf16, 2, false, true},
};

// Launches a call of zeros at a rank. Returns its result and its sum, of which bytes that are not stored are 0xA5.
std::vector<Buffer> launch_zeros(const Waiting& waiting, World& world, Inboxes& inboxes, uint32 rank) {
  constexpr uint32 hidden = 16, rows = 2;
  Buffer input(hidden * rows * 2, 0), result(hidden * rows * 2, 0), sum(hidden * rows * 2, 0), scales(rows * 4, 0);
  std::fill(input.memory.begin(), input.memory.end(), 0);
  ReduceNormArguments arguments{};
  arguments.reduce = inboxes.arguments(world, rank);
  for (uint32 member = 0; member < world.ranks; ++member) arguments.reduce.sources[member] = input.at();
  arguments.reduce.pair = pair_of(arguments.reduce);
  arguments.reduce.destination = result.at();
  arguments.reduce.count = hidden * rows;
  arguments.reduce.element = static_cast<uint32>(ElementType::bf16);
  arguments.reduce.reduce = static_cast<uint32>(ReduceOperation::sum);
  arguments.reduce.receiver = every_member;
  arguments.residual_out = sum.at();
  arguments.hidden = hidden;
  arguments.rows = rows;
  if (waiting.two_shot) {
    arguments.share_rows = arguments.owner_rows = 1;
    arguments.reduce.share_bytes = hidden * 2;
  }
  arguments.norm = static_cast<uint32>(Norm::root_mean_square);
  arguments.epsilon = 1;
  if (waiting.is_narrow) {
    arguments.scales = scales.at();
    arguments.quantization = static_cast<uint32>(Quantization::row);
  }
  arch::launch(1, 2, 8, [&] { waiting.kernel(arguments); });
  return {result, sum, scales};
}

void is_untouched(const std::vector<Buffer>& all) {
  for (const Buffer& one : all) {
    same(one, 0, std::vector<uint8>(one.size(), 0xA5), "what has not come is neither stored nor has it a scale");
  }
}

// Rank 0 calls alone, or after rank 1 in a world of three. It must leave at the deadline and name the rank that is missing, or
// leave when the host has aborted.
void waits_end() {
  for (const Waiting& waiting : all_kernels) {
    for (const bool aborts : {false, true}) {
      for (const bool second_comes : {false, true}) {
        if (second_comes && (waiting.ranks == 2 || aborts)) continue;
        World world(waiting.ranks, 1, 2, waiting.ranks * 2 * 16, 4);
        Inboxes inboxes(waiting.ranks, 16 * 4);
        world.deadline = second / 50;
        if (second_comes) launch_zeros(waiting, world, inboxes, 1);
        world.record = {};
        if (aborts) world.deadline = 60 * second;
        std::thread host([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          if (aborts) __atomic_store_n(&world.abort, 1u, __ATOMIC_RELEASE);
        });
        is_untouched(launch_zeros(waiting, world, inboxes, 0));
        host.join();
        const WaitRecord& record = world.record;
        expect(record.state == 2 && record.kind == 16 + operation && record.rank == 10 &&
                   record.peer == (second_comes ? 12 : 11) && record.reason == (aborts ? 2 : 1),
               "a wait for rows ends, and its record tells who waited for whom");
      }
    }
  }
}

}  // namespace

int main(int count, char** words) {
  waits_end();
  return run_seeds(count, words, "Norms on the host twin", 4, calls);
}
