// Module `base`: transfers.
#include "symmem/copy.h"
#include "symmem/signal.h"

using namespace symmem;

SYMMEM_KERNEL(1024) symmem_copy_vector(SYMMEM_ARGUMENTS(TransferArguments) transfer) {
  copy_vector<8>(transfer.destination, transfer.source, transfer.bytes);
  give_signal(transfer.signal);
}

// TileScale's published method, for comparison in the benchmark: each warp (four in their kernel) copies one contiguous
// part with 4-byte loads unrolled by four, then four stores; a scalar loop copies the rest.
SYMMEM_KERNEL(1024) symmem_copy_unrolled(SYMMEM_ARGUMENTS(TransferArguments) transfer) {
  constexpr uint32 unroll = 4;
  if (((transfer.destination | transfer.source) & 3) != 0) {
    copy_edges(transfer.destination, transfer.source, transfer.bytes, transfer.bytes, 0);
    give_signal(transfer.signal);
    return;
  }
  uint32* destination = pointer<uint32>(transfer.destination);
  const uint32* source = pointer<const uint32>(transfer.source);
  const uint64 count = transfer.bytes / 4;
  // A block that does not consist of whole warps counts as one warp.
  const uint32 threads = arch::thread_count();
  const uint32 width = threads % arch::warp_size == 0 ? arch::warp_size : threads;
  const uint32 warps_per_block = threads / width;
  const uint64 warps = static_cast<uint64>(arch::block_count()) * warps_per_block;
  const uint64 warp = static_cast<uint64>(arch::block_index()) * warps_per_block + arch::thread_index() / width;
  const uint64 part = (count + warps - 1) / warps;
  uint64 index = part * warp;
  const uint64 end = index + part < count ? index + part : count;
  const uint32 lane = arch::thread_index() % width;
  for (; index + unroll * width <= end; index += unroll * width) {
    uint32 words[unroll];
    SYMMEM_UNROLL
    for (uint32 row = 0; row < unroll; ++row) words[row] = arch::load(source + index + row * width + lane);
    SYMMEM_UNROLL
    for (uint32 row = 0; row < unroll; ++row) arch::store(destination + index + row * width + lane, words[row]);
  }
  for (index += lane; index < end; index += width) arch::store(destination + index, arch::load(source + index));
  copy_edges(transfer.destination, transfer.source, transfer.bytes, 0, transfer.bytes % 4);
  give_signal(transfer.signal);
}
