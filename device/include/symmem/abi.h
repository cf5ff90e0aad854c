// Arguments of symmem's kernels, passed by value from the host.
//
// The same layouts are declared in Rust by symmem-core (`backend::abi`); both sides assert size and
// offsets. Addresses are 64-bit integers as the launching device addresses them; 0 means "none".
#pragma once

namespace symmem {

using uint8 = unsigned char;
using uint32 = unsigned int;
using uint64 = unsigned long long;

// Most ranks of a node group: the largest NVLink domain sold has 72 GPUs (NVL72).
constexpr uint32 max_ranks = 72;
// Bytes between two signal words, so that two peers never write the same cache line.
constexpr uint64 signal_stride = 128;

// Where a signal goes and what counts it. The giver writes `++*epoch` to `word`, or `value` where
// `epoch` is 0.
struct SignalTarget {
  uint64 word;      // the peer's 32-bit word; 0 for no signal
  uint64 epoch;     // this rank's 32-bit counter of signals given to that word; 0 if the host counts
  uint64 arrivals;  // zeroed 32-bit word of this device that counts the blocks of a grid; zero again after
  uint32 value;     // what to write where `epoch` is 0
  uint32 reserved;
};

// What a waiting kernel watches besides its word.
struct Watch {
  uint64 abort;        // 32-bit word in pinned host memory, 0 while all is well
  uint64 record;       // WaitRecord in pinned host memory, filled by the first wait that gives up
  uint64 deadline_ns;  // from the kernel's start
  uint32 rank;
  uint32 reserved;
};

// A wait until `word` has reached `++*epoch` (or `value` where `epoch` is 0), in wrapping arithmetic.
struct SignalWait {
  uint64 word;
  uint64 epoch;  // this rank's 32-bit counter of waits on that word; 0 if the host counts
  Watch watch;
  uint32 value;
  uint32 peer;  // who is to signal, for the record
  uint32 slot;  // the channel, for the record
  uint32 reserved;
};

// A barrier among `world` ranks: each writes its epoch to its word at every peer, then waits until
// every peer's word here has reached it.
struct Barrier {
  Watch watch;
  uint64 epoch;             // this rank's 32-bit counter of barriers on these words
  uint64 own;               // this rank's words; the one that rank p writes is at p * signal_stride
  uint64 peers[max_ranks];  // at each peer the word this rank writes; 0 where there is none to tell
  uint32 world;
  uint32 slot;
};

// A move of bytes, with the signal to give once all of them are visible to the peer.
struct TransferArguments {
  uint64 destination;
  uint64 source;
  uint64 bytes;  // any number, 0 too
  SignalTarget signal;
  uint32 stages;       // bulk copies in flight per block (symmem_copy_bulk)
  uint32 stage_bytes;  // bytes of each, a multiple of 16 (symmem_copy_bulk)
};

// A ping-pong between two ranks inside one kernel.
struct LatencyArguments {
  uint64 local;   // where the peer writes: flag at 0, payload from signal_stride on
  uint64 remote;  // the same at the peer
  uint64 bytes;   // payload of each put (symmem_latency_signal)
  uint64 result;  // 64-bit word: nanoseconds of all rounds; all ones if a wait gave up
  Watch watch;
  uint32 rounds;  // round trips
  uint32 base;    // the value both flags hold before the first round
  uint32 first;   // 1 on the rank that starts, 0 on the one that answers
  uint32 peer;    // for the record
};

// Written once by the first wait that gave up. `state` goes 0 (empty), 1 (being written), 2 (complete).
struct WaitRecord {
  uint32 state;
  uint32 kind;  // a WaitKind
  uint32 rank;
  uint32 peer;
  uint32 slot;
  uint32 expected;
  uint32 seen;
  uint32 reason;  // a WaitReason
};

enum class WaitKind : uint32 { signal = 1, barrier = 2 };
enum class WaitReason : uint32 { deadline = 1, abort = 2 };

#if defined(__CUDACC_RTC__)  // has no offsetof; sizes are still checked
#define SYMMEM_ASSERT_OFFSET(type, field, offset) static_assert(true, "")
#else
#define SYMMEM_ASSERT_OFFSET(type, field, offset) \
  static_assert(__builtin_offsetof(type, field) == offset, #type "." #field " moved")
#endif

static_assert(sizeof(SignalTarget) == 32, "SignalTarget changed size");
SYMMEM_ASSERT_OFFSET(SignalTarget, epoch, 8);
SYMMEM_ASSERT_OFFSET(SignalTarget, arrivals, 16);
SYMMEM_ASSERT_OFFSET(SignalTarget, value, 24);
static_assert(sizeof(Watch) == 32, "Watch changed size");
SYMMEM_ASSERT_OFFSET(Watch, record, 8);
SYMMEM_ASSERT_OFFSET(Watch, deadline_ns, 16);
SYMMEM_ASSERT_OFFSET(Watch, rank, 24);
static_assert(sizeof(SignalWait) == 64, "SignalWait changed size");
SYMMEM_ASSERT_OFFSET(SignalWait, epoch, 8);
SYMMEM_ASSERT_OFFSET(SignalWait, watch, 16);
SYMMEM_ASSERT_OFFSET(SignalWait, value, 48);
SYMMEM_ASSERT_OFFSET(SignalWait, peer, 52);
SYMMEM_ASSERT_OFFSET(SignalWait, slot, 56);
static_assert(sizeof(Barrier) == 632, "Barrier changed size");
SYMMEM_ASSERT_OFFSET(Barrier, epoch, 32);
SYMMEM_ASSERT_OFFSET(Barrier, own, 40);
SYMMEM_ASSERT_OFFSET(Barrier, peers, 48);
SYMMEM_ASSERT_OFFSET(Barrier, world, 624);
SYMMEM_ASSERT_OFFSET(Barrier, slot, 628);
static_assert(sizeof(TransferArguments) == 64, "TransferArguments changed size");
SYMMEM_ASSERT_OFFSET(TransferArguments, source, 8);
SYMMEM_ASSERT_OFFSET(TransferArguments, bytes, 16);
SYMMEM_ASSERT_OFFSET(TransferArguments, signal, 24);
SYMMEM_ASSERT_OFFSET(TransferArguments, stages, 56);
SYMMEM_ASSERT_OFFSET(TransferArguments, stage_bytes, 60);
static_assert(sizeof(LatencyArguments) == 80, "LatencyArguments changed size");
SYMMEM_ASSERT_OFFSET(LatencyArguments, remote, 8);
SYMMEM_ASSERT_OFFSET(LatencyArguments, bytes, 16);
SYMMEM_ASSERT_OFFSET(LatencyArguments, result, 24);
SYMMEM_ASSERT_OFFSET(LatencyArguments, watch, 32);
SYMMEM_ASSERT_OFFSET(LatencyArguments, rounds, 64);
SYMMEM_ASSERT_OFFSET(LatencyArguments, base, 68);
SYMMEM_ASSERT_OFFSET(LatencyArguments, first, 72);
SYMMEM_ASSERT_OFFSET(LatencyArguments, peer, 76);
static_assert(sizeof(WaitRecord) == 32, "WaitRecord changed size");
SYMMEM_ASSERT_OFFSET(WaitRecord, expected, 20);
SYMMEM_ASSERT_OFFSET(WaitRecord, reason, 28);

#undef SYMMEM_ASSERT_OFFSET

}  // namespace symmem
