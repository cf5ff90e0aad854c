// Two-shot sums of rows with a norm: each member owns a share of the rows. It adds what the others send of its rows, adds its
// residual, normalises, and sends the normalised rows to all. So a member sends two shares to each peer, where a one-shot sum sends
// all rows, and a row's residual is read and written by its owner only.
//
// A block has one row of each share at a time, and its threads the same vectors of it in all steps. So no thread waits for another
// but where a row's numbers are added up. Shares have the same number of rows: what follows a short one is zeros, so that every
// member hears from each. All members get a row from its owner, so that they have the same bits.
//
// A block that has several rows of a share takes its peers' results one row late: they come while it adds up the next one.
//
// If a thread's wait gives up, its row's other threads may send numbers that lack a part. But that thread sends nothing from then
// on, so that no member's call succeeds.
#pragma once

#include "symmem/reduce_norm.h"

namespace symmem {

// The shares of a call, and where a message has its parts: a share's rows, and behind them its sender's results.
class RowShares {
 public:
  SYMMEM_DEVICE explicit RowShares(const ReduceNormArguments& arguments) : arguments_(arguments) {}

  // The rows of every share, with those that are only zeros; and those that a member has.
  SYMMEM_DEVICE uint32 rows() const { return arguments().share_rows; }
  SYMMEM_DEVICE uint32 rows_of(uint32 member) const {
    const uint64 before = static_cast<uint64>(member) * arguments().owner_rows;
    if (arguments().rows <= before) return 0;
    const uint32 left = arguments().rows - static_cast<uint32>(before);
    return left < rows() ? left : rows();
  }
  // Returns the number of a member's row, which exists, among all rows.
  SYMMEM_DEVICE uint32 number(uint32 member, uint32 row) const { return member * arguments().owner_rows + row; }
  // Return the places of a vector of a row, and of one of a result, in a message of rows of `vectors`.
  SYMMEM_DEVICE uint32 sent_at(uint32 row, uint32 vectors, uint32 vector) const { return row * vectors + vector; }
  SYMMEM_DEVICE uint32 result_at(uint32 row, uint32 vectors, uint32 vector) const { return (rows() + row) * vectors + vector; }

 private:
  SYMMEM_DEVICE const ReduceNormArguments& arguments() const { return read_anew(arguments_); }

  const ReduceNormArguments& arguments_;
};

// Normalises rows of whole vectors at multiples of 16, at most one a thread, in a group of `fixed_world` if that is not 0. Results
// are of the rows' type. Called by every thread of every block, as the other kernel.
template <class Element, uint32 fixed_world>
SYMMEM_DEVICE void norm_few_shares(const ReduceNormArguments& arguments) {
  using Row = RowNorm<Element>;
  constexpr int count = Row::count;
  const Row norm(arguments);
  const RowShares shares(arguments);
  Group group(arguments.reduce.group);
  LamportInboxes<fixed_world, ReduceLamportArguments> inboxes(arguments.reduce, group);
  BlockSums block;
  const uint32 rank = group.rank();
  const uint64 source = fixed_world == 2 ? arguments.reduce.pair.source : arguments.reduce.sources[rank];
  const uint32 thread = arch::thread_index();
  const uint32 vectors = norm.vectors();
  const bool used = thread < vectors;
  // Loads this thread's vector of a row of a matrix of `rows`, or zeros where there is none.
  const auto load = [&](uint64 matrix, uint32 row, uint32 rows) {
    arch::Vector16 vector = {};
    if (matrix != 0 && used && row < rows) {
      vector = arch::load(pointer<const arch::Vector16>(matrix) + (static_cast<uint64>(row) * vectors + thread));
    }
    return vector;
  };
  arch::wait_for_prerequisites();
  const uint32 own_rows = shares.rows_of(rank);
  // What is needed after a wait is loaded before it, if registers have room.
  constexpr bool early = fixed_world == 2;
  arch::Vector16 own = {}, residual = {}, weight = {};
  const auto load_own = [&](uint32 row) {
    own = load(source, row, own_rows);
    residual = load(norm.arguments().residual, row, own_rows);
  };
  if (early) {
    load_own(arch::block_index());
    weight = load(norm.arguments().weight, 0, 1);
  }
  bool good = inboxes.begin() && used;
  SYMMEM_ROLLED
  for (uint32 row = arch::block_index(); row < shares.rows(); row += arch::block_count()) {
    const uint32 place = shares.sent_at(row, vectors, thread);
    SYMMEM_ROLLED
    for (uint32 step = 1; step < inboxes.world(); ++step) {
      const uint32 member = group.after(step);
      const uint64 sent = fixed_world == 2 ? norm.arguments().reduce.pair.sent : norm.arguments().reduce.sources[member];
      const arch::Vector16 packet = to_packet(load(sent, row, shares.rows_of(member)));
      if (good && fixed_world == 2) inboxes.send_after(1, place, packet);
      if (good && fixed_world != 2) inboxes.send_to(member, place, packet);
    }
  }
  inboxes.count();
  // Takes all peers' results of a row.
  const auto take = [&](uint32 row) {
    SYMMEM_ROLLED
    for (uint32 peer = 0; good && peer < inboxes.peers(); ++peer) {
      arch::Vector16 data[1][1];
      good = inboxes.template receive<1, 1>(peer, shares.result_at(row, vectors, thread), 0, 1, data);
      // The inbox has the peers in the members' order.
      const uint32 member = peer < rank ? peer : peer + 1;
      if (!good || row >= shares.rows_of(member)) continue;
      const uint64 at = static_cast<uint64>(shares.number(member, row)) * vectors + thread;
      arch::store(pointer<arch::Vector16>(norm.arguments().reduce.destination) + at, data[0][0]);
    }
  };
  const Sum sum(static_cast<uint32>(ReduceOperation::sum));
  uint32 row = arch::block_index();
  SYMMEM_ROLLED
  for (; row < shares.rows(); row += arch::block_count()) {
    if (!early) load_own(row);
    const arch::Vector16 here[1] = {from_packet(to_packet(own))};
    const arch::Vector16 added = residual;
    if (early) load_own(row + arch::block_count());
    arch::Vector16 rounded = {};
    const auto round = [&](int, Accumulation<Element, 4>& total) {
      if (norm.arguments().residual != 0) total.add(added.words, sum);
      total.finish(rounded.words, sum, 1);
    };
    if (good) {
      good = sum_arrived<Element, 1, 1, false>(inboxes, rank, sum, shares.sent_at(row, vectors, thread), 0, 1, here, round);
    }
    // The blocks of the peers that this block waits for are resident: they have sent.
    if (good) group.answered(norm.arguments().reduce.dependents);
    const bool stores = good && row < own_rows;
    if (stores && norm.arguments().residual_out != 0) {
      const uint64 at = static_cast<uint64>(row) * vectors + thread;
      arch::store(pointer<arch::Vector16>(norm.arguments().residual_out) + at, rounded);
    }
    float numbers[count];
    Row::Vector::widen(rounded.words, numbers);
    const uint32 end = used ? count : 0;
    float mean = 0, factor = 1;
    if (norm.is(Norm::layer)) mean = norm.mean(block.sum(Row::sum(numbers, 0)));
    if (!norm.is(Norm::none)) factor = norm.factor(block.sum(Row::squares(numbers, end, mean, 0)));
    if (!early) weight = load(norm.arguments().weight, 0, 1);
    norm.normalise(numbers, end, mean, factor, weight, load(norm.arguments().bias, 0, 1));
    arch::Vector16 result;
    Row::Vector::narrow(numbers, result.words);
    const arch::Vector16 packet = to_packet(result);
    SYMMEM_ROLLED
    for (uint32 step = 1; good && step < inboxes.world(); ++step) {
      const uint32 place = shares.result_at(row, vectors, thread);
      if (fixed_world == 2) inboxes.send_after(1, place, packet);
      if (fixed_world != 2) inboxes.send_to(group.after(step), place, packet);
    }
    // As the peers get it, or members would get different bits.
    if (stores) {
      const uint64 at = static_cast<uint64>(shares.number(rank, row)) * vectors + thread;
      arch::store(pointer<arch::Vector16>(norm.arguments().reduce.destination) + at, from_packet(packet));
    }
    if (row >= arch::block_count()) take(row - arch::block_count());
  }
  take(row - arch::block_count());
}

// Normalises rows of any length at any address, in any group of more than one. Results are of the rows' type.
template <class Element>
SYMMEM_DEVICE void norm_shares(const ReduceNormArguments& arguments) {
  using Row = RowNorm<Element>;
  constexpr int count = Row::count;
  const Row norm(arguments);
  const RowShares shares(arguments);
  Group group(arguments.reduce.group);
  LamportInboxes<0, ReduceLamportArguments> inboxes(arguments.reduce, group);
  BlockSums block;
  // Returns a row of the results.
  const auto result_of = [&](uint32 member, uint32 row) {
    return norm.message(norm.arguments().reduce.destination, shares.number(member, row));
  };
  arch::wait_for_prerequisites();
  bool good = inboxes.begin();
  SYMMEM_ROLLED
  for (uint32 row = arch::block_index(); good && row < shares.rows(); row += arch::block_count()) {
    SYMMEM_ROLLED
    for (uint32 place = arch::thread_index(); place < norm.vectors(); place += arch::thread_count()) {
      SYMMEM_ROLLED
      for (uint32 step = 1; step < inboxes.world(); ++step) {
        const uint32 member = group.after(step);
        const uint64 source = row < shares.rows_of(member) ? norm.arguments().reduce.sources[member] : 0;
        inboxes.send_to(member, shares.sent_at(row, norm.vectors(), place), to_packet(norm.vector(source, row, place)));
      }
    }
  }
  inboxes.count();
  const Sum sum(static_cast<uint32>(ReduceOperation::sum));
  SYMMEM_ROLLED
  for (uint32 row = arch::block_index(); row < shares.rows(); row += arch::block_count()) {
    // Zeros stand for a row that does not exist.
    const bool present = row < shares.rows_of(group.rank());
    float mean = 0, factor = 1;
    SYMMEM_ROLLED
    for (uint32 step = 0; step <= static_cast<uint32>(NormPass::store); ++step) {
      const NormPass pass = static_cast<NormPass>(step);
      if (pass == NormPass::mean && !norm.is(Norm::layer)) continue;
      if (pass == NormPass::squares && norm.is(Norm::none)) continue;
      if (pass == NormPass::largest) continue;
      float statistic = 0;
      SYMMEM_ROLLED
      for (uint32 place = arch::thread_index(); good && place < norm.vectors(); place += arch::thread_count()) {
        arch::Vector16 rounded = {};
        const arch::Vector16 own[1] = {from_packet(to_packet(norm.vector(present ? norm.arguments().reduce.sources[group.rank()] : 0, row, place)))};
        const auto round = [&](int, Accumulation<Element, 4>& total) {
          // It is null where this rank has no rows.
          if (present) total.add(norm.vector(norm.arguments().residual, row, place).words, sum);
          total.finish(rounded.words, sum, 1);
        };
        good = sum_arrived<Element, 1, 1, true>(inboxes, group.rank(), sum, shares.sent_at(row, norm.vectors(), place), 0, 1, own, round);
        if (!good) break;
        float numbers[count];
        Row::Vector::widen(rounded.words, numbers);
        const uint32 end = norm.arguments().hidden - place * count;
        if (pass != NormPass::store) {
          statistic = pass == NormPass::mean ? Row::sum(numbers, statistic) : Row::squares(numbers, end, mean, statistic);
          continue;
        }
        inboxes.empty(shares.sent_at(row, norm.vectors(), place));
        if (present && norm.arguments().residual_out != 0) norm.message(norm.arguments().residual_out, row).store(place, rounded);
        norm.normalise(numbers, end, mean, factor, norm.vector(norm.arguments().weight, 0, place),
                       norm.vector(norm.arguments().bias, 0, place));
        arch::Vector16 result;
        Row::Vector::narrow(numbers, result.words);
        const arch::Vector16 packet = to_packet(result);
        SYMMEM_ROLLED
        for (uint32 peer = 1; peer < inboxes.world(); ++peer) {
          inboxes.send_to(group.after(peer), shares.result_at(row, norm.vectors(), place), packet);
        }
        // As the peers get it, or members would get different bits.
        if (present) result_of(group.rank(), row).store(place, from_packet(packet));
      }
      if (pass == NormPass::mean) mean = norm.mean(block.sum(statistic));
      if (pass == NormPass::squares) factor = norm.factor(block.sum(statistic));
    }
  }
  SYMMEM_ROLLED
  for (uint32 row = arch::block_index(); row < shares.rows(); row += arch::block_count()) {
    SYMMEM_ROLLED
    for (uint32 place = arch::thread_index(); place < norm.vectors(); place += arch::thread_count()) {
      SYMMEM_ROLLED
      for (uint32 peer = 0; good && peer < inboxes.peers(); ++peer) {
        arch::Vector16 data[1][1];
        good = inboxes.template receive<1, 1>(peer, shares.result_at(row, norm.vectors(), place), 0, 1, data);
        const uint32 member = peer < group.rank() ? peer : peer + 1;
        if (good && row < shares.rows_of(member)) result_of(member, row).store(place, data[0][0]);
      }
    }
  }
  arch::end_waits();
}

}  // namespace symmem
