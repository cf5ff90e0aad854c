// Copies by ordinary loads and stores, for any alignment and length. They neither read nor write a byte outside.
//
// Throughput is bytes in flight over latency, so an unrolled step issues all its loads before its stores.
#pragma once

#include "symmem/memory.h"

namespace symmem {

// One of `count` equal parts of work that blocks share.
struct Share {
  uint32 index;
  uint32 count;
};

SYMMEM_DEVICE Share share_of_grid() { return {arch::block_index(), arch::block_count()}; }

// Moves words by all blocks that share the work. A tile is what a block moves in one unrolled step; blocks take tiles
// in turn.
template <int unroll, class Word, class Load, class Store>
SYMMEM_DEVICE void move_tiles(uint64 count, Load load_word, Store store_word, Share share) {
  const uint32 stride = arch::thread_count();
  const uint32 blocks = share.count;
  uint32 rows = unroll;
  // Too few words to fill a tile per block: shrink the tiles, so that every block has a share.
  if (blocks > 1 && count < static_cast<uint64>(stride) * unroll * blocks) {
    const uint32 width = stride * blocks;
    rows = (static_cast<uint32>(count) + width - 1) / width;
  }
  const uint32 tile = stride * rows;
  const uint64 step = static_cast<uint64>(tile) * blocks;
  uint64 begin = static_cast<uint64>(tile) * share.index;
  const uint32 thread = arch::thread_index();
  Word words[unroll];
  const uint32 row_stride = arch::per_thread(stride);
  if (rows == unroll) {
    for (; begin + tile <= count; begin += step) {
      const uint64 index = begin + thread;
      SYMMEM_UNROLL
      for (int row = 0; row < unroll; ++row) words[row] = load_word(index + row * row_stride);
      SYMMEM_UNROLL
      for (int row = 0; row < unroll; ++row) store_word(index + row * row_stride, words[row]);
    }
  }
  // At most one tile, possibly a partial one, is left for this block.
  if (begin >= count) return;
  const uint64 left = count - begin;
  const uint32 end = left < tile ? static_cast<uint32>(left) : tile;
  SYMMEM_UNROLL
  for (int row = 0; row < unroll; ++row) {
    const uint32 offset = thread + row * row_stride;
    if (offset < end) words[row] = load_word(begin + offset);
  }
  SYMMEM_UNROLL
  for (int row = 0; row < unroll; ++row) {
    const uint32 offset = thread + row * row_stride;
    if (offset < end) store_word(begin + offset, words[row]);
  }
}

template <int unroll, class Word, class Load>
SYMMEM_DEVICE void copy_tiles(Word* destination, uint64 count, Load load_word, Share share = share_of_grid()) {
  move_tiles<unroll, Word>(
      count, load_word, [&](uint64 index, const Word& word) { arch::store(destination + index, word); }, share);
}

template <class Word>
struct LoadWord {
  const Word* source;
  SYMMEM_DEVICE Word operator()(uint64 index) const { return arch::load(source + index); }
};

// Loads a 32-bit word that straddles two aligned words.
struct LoadStraddling {
  const uint32* source;
  uint32 bits;
  SYMMEM_DEVICE uint32 operator()(uint64 index) const {
    const uint32 low = arch::load(source + index);
    const uint32 high = arch::load(source + index + 1);
    return arch::funnel(low, high, bits);
  }
};

// Copies the first `head` and last `tail` bytes by the last threads of the first block, since the first thread may be
// issuing bulk copies.
SYMMEM_DEVICE void copy_edges(uint64 destination, uint64 source, uint64 bytes, uint64 head, uint64 tail,
                              Share share = share_of_grid()) {
  if (share.index != 0) return;
  const uint32 threads = arch::thread_count();
  for (uint64 index = threads - 1 - arch::thread_index(); index < head + tail; index += threads) {
    const uint64 offset = index < head ? index : bytes - tail + (index - head);
    arch::store(pointer<uint8>(destination + offset), arch::load(pointer<const uint8>(source + offset)));
  }
}

template <int unroll, class Word>
SYMMEM_DEVICE void copy_words(uint64 destination, uint64 source, uint64 bytes, Share share) {
  uint64 head = (0 - destination) & (sizeof(Word) - 1);
  if (head > bytes) head = bytes;
  const uint64 count = (bytes - head) / sizeof(Word);
  copy_tiles<unroll>(pointer<Word>(destination + head), count,
                     LoadWord<Word>{pointer<const Word>(source + head)}, share);
  copy_edges(destination, source, bytes, head, (bytes - head) % sizeof(Word), share);
}

// Copies between addresses that differ modulo 4: combines two aligned 32-bit loads into each aligned 32-bit store.
template <int unroll>
SYMMEM_DEVICE void copy_straddling(uint64 destination, uint64 source, uint64 bytes, Share share) {
  uint64 head = (0 - destination) & 3;
  // The first aligned load may not start before the source.
  if (((source + head) & ~3ull) < source) head += 4;
  const uint64 aligned = (source + head) & ~3ull;
  if (bytes < head || source + bytes < aligned + 8) {
    copy_edges(destination, source, bytes, bytes, 0, share);
    return;
  }
  const uint64 count = (source + bytes - aligned) / 4 - 1;
  copy_tiles<unroll>(pointer<uint32>(destination + head), count,
                     LoadStraddling{pointer<const uint32>(aligned), static_cast<uint32>(source + head - aligned) * 8},
                     share);
  copy_edges(destination, source, bytes, head, bytes - head - 4 * count, share);
}

// Copies with the widest access that both addresses allow, `unroll` of them in flight per thread. Called by every
// thread of every block that shares the work, by default the whole grid.
template <int unroll>
SYMMEM_DEVICE void copy_vector(uint64 destination, uint64 source, uint64 bytes, Share share = share_of_grid()) {
  const uint64 difference = destination - source;
  if ((difference & 15) == 0) {
    copy_words<unroll, arch::Vector16>(destination, source, bytes, share);
  } else if ((difference & 7) == 0) {
    copy_words<unroll, uint64>(destination, source, bytes, share);
  } else if ((difference & 3) == 0) {
    copy_words<unroll, uint32>(destination, source, bytes, share);
  } else {
    copy_straddling<unroll>(destination, source, bytes, share);
  }
}

}  // namespace symmem
