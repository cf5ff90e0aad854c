// Arguments of symmem's kernels, passed by value from the host.
//
// symmem-core declares the same layouts in Rust (`backend::abi`); both sides assert size and offsets. Addresses are
// 64-bit integers in the address space of the launching device; 0 means "none".
#pragma once

namespace symmem {

using uint8 = unsigned char;
using uint16 = unsigned short;
using uint32 = unsigned int;
using uint64 = unsigned long long;

// Largest world size: the largest NVLink domain has 72 GPUs.
constexpr uint32 max_ranks = 72;
// Bytes between two signal words, so that two peers never write the same cache line.
constexpr uint64 signal_stride = 128;

// The target of a signal. The signaling rank writes `++*epoch` to `word`, or `value` if `epoch` is 0.
struct SignalTarget {
  uint64 word;      // the peer's 32-bit word; 0 for no signal
  uint64 epoch;     // this rank's 32-bit counter of signals to that word; 0 if the host counts
  uint64 arrivals;  // 32-bit word of this device that counts the blocks of a grid; 0 before and after
  uint32 value;     // the value to write if `epoch` is 0
  uint32 reserved;
};

// Abort word, record and deadline of a waiting kernel.
struct Watch {
  uint64 abort;        // 32-bit word in pinned host memory; not 0 if the host has aborted
  uint64 record;       // WaitRecord in pinned host memory, filled by the first wait that gives up
  uint64 aborted;      // 32-bit word in this device's memory, set by the first wait that sees an abort; 0 if abort is 0
  uint64 deadline_ns;  // counted from a thread's first look at the clock
  uint32 rank;
  uint32 reserved;
};

// A wait until `word` has reached `++*epoch`, or `value` if `epoch` is 0, in wrapping arithmetic.
struct SignalWait {
  uint64 word;
  uint64 epoch;  // this rank's 32-bit counter of waits on that word; 0 if the host counts
  Watch watch;
  uint32 value;
  uint32 peer;  // the signaling rank, for the record
  uint32 slot;  // the channel, for the record
  uint32 reserved;
};

// A signal, then a wait for one: a step of a pipeline (symmem_step).
struct StepArguments {
  SignalTarget target;
  SignalWait wait;
};

// A barrier among `world` ranks: each rank writes its epoch to its word at every peer, then waits until every peer's
// word here has reached that epoch.
struct Barrier {
  Watch watch;
  uint64 epoch;             // this rank's 32-bit counter of barriers on these words
  uint64 own;               // this rank's words; rank p writes the word at p * signal_stride
  uint64 peers[max_ranks];  // the word that this rank writes at each peer; 0 to skip a rank
  uint32 world;
  uint32 slot;
};

// A copy, with the signal that makes it visible to the peer.
struct TransferArguments {
  uint64 destination;
  uint64 source;
  uint64 bytes;  // may be 0
  SignalTarget signal;
  uint32 stages;       // bulk copies in flight per block (symmem_copy_bulk)
  uint32 stage_bytes;  // bytes of each bulk copy, a multiple of 16 (symmem_copy_bulk)
};

// A ping-pong between two ranks inside one kernel.
struct LatencyArguments {
  uint64 local;   // where the peer writes: flag at 0, payload from signal_stride on
  uint64 remote;  // the same at the peer
  uint64 bytes;   // payload of each put (symmem_latency_signal)
  uint64 result;  // 64-bit word: nanoseconds of all rounds; all bits set if a wait gave up
  Watch watch;
  uint32 rounds;  // round trips
  uint32 base;    // the value of both flags before the first round
  uint32 first;   // 1 on the rank that starts, 0 on the rank that answers
  uint32 peer;    // for the record
};

enum class ElementType : uint32 {
  i8 = 1, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64, f8_e4m3, f8_e5m2
};
enum class ReduceOperation : uint32 { sum = 1, average, minimum, maximum, product };
enum class WordUpdate : uint32 { fetch = 0, set, add, swap, compare_swap };
enum class Condition : uint32 { equal = 1, not_equal, greater_or_equal, greater, less_or_equal, less };

// The largest grid of a collective, with one slot per block; and the largest grid that uses packets, with one region
// per block after all slots.
constexpr uint32 slot_blocks = 320;
constexpr uint64 slot_bytes = 4096;
constexpr uint32 packet_blocks = 64;
// Byte offsets in a slot: the owner's counters (uint32: barriers, uses of packets, sends, receipts); a word per member
// for barriers; a word per member that says it has received; 32 bytes per member for an announcement of four 8-byte
// packets.
constexpr uint64 slot_counters = 0;
constexpr uint64 slot_words = 128;
constexpr uint64 slot_received = 512;
constexpr uint64 slot_announcements = 1024;

// Bytes between the words of a channel of a pushed reduction, in each member's inbox: a word per member that says it
// has pushed a piece; a word per member that says it has taken one; the owner's counters (uint32: pieces pushed, pieces
// taken). The pieces follow from the next multiple of 128 on, for each other member in turn, one per slot.
constexpr uint64 push_word_stride = 32;

// When the stream's next kernel may start: once every peer has answered this one, or when this one ends.
enum class Dependents : uint32 { answered = 0, ended, never };

// The ranks of one collective call. Block b uses slot b and region b of each member, and talks only to block b of its
// peers. A region has two halves, used alternately, each with `world` inboxes of packet_bytes / 2 / world bytes,
// rounded down to 16.
struct CollectiveGroup {
  Watch watch;              // with the rank in the communicator
  uint64 slots[max_ranks];  // each member's slots, including this rank's
  uint32 packet_bytes;      // bytes of a block's region
  uint32 dependents;        // a Dependents
  uint32 rank;              // in the group
  uint32 world;             // ranks in the group
  uint32 slot;              // the channel, for the record
  uint32 operation;         // for the record
  uint8 members[max_ranks]; // each member's rank in the communicator, for the record
};

// Copies between two barriers, or swaps of destination and source. `concurrent` of them run at once and share the
// blocks. A copy onto itself is skipped.
struct MoveArguments {
  CollectiveGroup group;
  uint64 destinations[max_ranks];
  uint64 sources[max_ranks];
  uint64 bytes[max_ranks];
  uint32 copies;
  uint32 concurrent;
};

// A message from every member to every member, in packets. All addresses are in this rank's memory.
struct PacketArguments {
  CollectiveGroup group;
  uint64 sources[max_ranks];
  uint64 destinations[max_ranks];
  uint64 send_bytes[max_ranks];
  uint64 receive_bytes[max_ranks];
};

// A reduction of `count` elements of every member between two barriers, stored at each destination that is not 0.
struct ReduceArguments {
  CollectiveGroup group;
  uint64 sources[max_ranks];
  uint64 destinations[max_ranks];
  uint64 count;
  uint32 element;  // an ElementType
  uint32 reduce;   // a ReduceOperation
};

// A reduction in which each member pushes its elements of another member's share into that member's inbox. The kernel
// reads only this rank's source in `reduce`; the others arrive in the inbox. Each pair of warps of a block has a
// channel, at most `channels` per grid, and talks only to the same channel of its peers. `piece_bytes` is a multiple of
// 16, `slots` a power of two. With `barrier`, a group barrier stands behind the stores to peers.
struct ReducePushArguments {
  ReduceArguments reduce;
  uint64 sources[max_ranks];  // this rank's elements of each member's share
  uint64 counts[max_ranks];   // elements of each member's share; equal on all members
  uint64 inboxes[max_ranks];  // each member's inbox, including this rank's
  uint64 channel_bytes;       // bytes from one channel to the next
  uint32 channels;
  uint32 slots;
  uint32 piece_bytes;
  uint32 barrier;
};

// A message from every member to every member, in pieces through the inboxes of ReducePushArguments. All other addresses
// are in this rank's memory. No message has more than `longest` bytes, the same on all members. With `in_place`, what
// arrives may lie where this rank's data for others lies; its message to itself then stays where it is.
struct PieceArguments {
  CollectiveGroup group;
  uint64 sources[max_ranks];
  uint64 destinations[max_ranks];
  uint64 send_bytes[max_ranks];
  uint64 receive_bytes[max_ranks];
  uint64 inboxes[max_ranks];
  uint64 longest;
  uint64 channel_bytes;
  uint32 channels;
  uint32 slots;
  uint32 piece_bytes;
  uint32 in_place;
};

enum class MulticastLoad : uint32 { own = 1, reduced };
enum class MulticastStore : uint32 { own = 1, all };

// A multicast collective. Between two barriers that raise their words at all members at once, it loads `count` elements
// from this rank's source, or from all sources with reduction, and stores them to this rank's destination or to all.
// `slots`, `source` and `destination` are multicast addresses, and 0 if multicast is emulated.
struct MulticastArguments {
  CollectiveGroup group;
  uint64 slots;
  uint64 source;
  uint64 destination;
  uint64 sources[max_ranks];
  uint64 destinations[max_ranks];
  uint64 count;
  uint32 element;  // an ElementType
  uint32 reduce;   // a ReduceOperation
  uint32 load;     // a MulticastLoad
  uint32 store;    // a MulticastStore
};

// A reduction in packets: member p receives `counts[p]` elements from `sources[p]` of every member and reduces them.
// With `two_shot`, each member sends its result to all, and the result of member p goes to destinations[p]. Otherwise
// this rank's result goes to destinations[rank].
struct ReducePacketArguments {
  CollectiveGroup group;
  uint64 sources[max_ranks];
  uint64 destinations[max_ranks];
  uint64 counts[max_ranks];
  uint32 element;
  uint32 reduce;
  uint32 two_shot;
  uint32 reserved;
};

// Addresses of a reduction in Lamport packets in a group of two, which the tables have as well. Here one line of the
// constant cache holds them all, and no load of one waits for the load of an index.
struct LamportPair {
  uint64 source;      // the elements that this rank reduces
  uint64 sent;        // those that the peer reduces
  uint64 inbox;       // this rank's
  uint64 peer_inbox;
};

// Stands for every member where arguments name one.
constexpr uint32 every_member = ~0u;

// A reduction in Lamport packets. An inbox has lamport_buffers buffers of one part per peer, numbered without the owner. All
// of it is zero before the first call.
//
// One-shot: the receiver p gets `count` elements from `sources[p]` of every member and reduces them to `destination`. All
// other messages are a vector of zeros.
//
// Two-shot: member p gets share p, from `sources[p]`, of every member, reduces it, and sends the result to all. A message is
// a share, and behind it the sender's result, each filled up with zeros to `share_bytes`.
struct ReduceLamportArguments {
  CollectiveGroup group;
  uint64 inboxes[max_ranks];  // each member's inbox, including this rank's
  uint64 sources[max_ranks];
  uint64 destination;
  uint64 count;       // of all shares; equal on all members, at least 1, and at most what a part holds
  uint64 counters;    // this rank's three uint32: see LamportInboxes
  uint32 part_bytes;  // a multiple of 16
  uint32 element;     // an ElementType
  uint32 reduce;      // a ReduceOperation
  uint32 dependents;  // as in `group`, where a small kernel would miss the constant cache after its last wait
  LamportPair pair;   // zeros in other groups
  uint64 share_bytes; // two-shot: a multiple of 16, at most half of part_bytes; otherwise 0
  uint32 receiver;    // a member, or every_member
  uint32 reserved;    // 0
};
constexpr uint32 lamport_buffers = 2;

enum class Norm : uint32 { none = 0, root_mean_square = 1, layer = 2 };
enum class Quantization : uint32 { none = 0, tensor = 1, row = 2, group = 3 };
// Number of adjacent elements that share a scale with Quantization::group.
constexpr uint32 norm_group = 128;

// A sum of rows in Lamport packets, to which this rank adds its residual, and which it normalises: see ReduceNormArguments in the
// core. A row's vectors follow those of the row before, and the last of a row is filled up with zeros. A group of one has no
// inboxes. Two-shot, member p owns `share_rows` rows from number p * `owner_rows` on, as far as there are so many.
struct ReduceNormArguments {
  ReduceLamportArguments reduce;
  uint64 residual;      // 0: none; as the next four
  uint64 residual_out;
  uint64 weight;
  uint64 bias;
  uint64 scales;        // f32: one to read, one per row or one per group to write
  uint32 hidden;        // elements of a row
  uint32 rows;          // of all members; one-shot at least as many as the grid has blocks
  float epsilon;
  float weight_offset;  // is added to each weight
  uint32 norm;          // a Norm
  uint32 quantization;  // a Quantization
  uint32 share_rows;    // two-shot: rows that a member sends each other, at least as many as the grid has blocks; otherwise 0
  uint32 owner_rows;    // two-shot: from a member's first row in `destination` to the next one's; otherwise 0
};

// Addresses of a move in Lamport packets in a group of two, as in LamportPair.
struct MoveLamportPair {
  uint64 sent;             // the message to the peer
  uint64 arriving;         // where the peer's message goes
  uint64 own_source;       // the message to this rank itself
  uint64 own_destination;
  uint64 inbox;            // this rank's
  uint64 peer_inbox;
};

// A message of `bytes` bytes from the sender to the receiver, in Lamport packets through the inboxes of
// ReduceLamportArguments. All other messages to peers are empty lines. All other addresses are in this rank's memory. A
// message to itself stays where it is if source and destination are the same.
struct MoveLamportArguments {
  CollectiveGroup group;
  uint64 inboxes[max_ranks];
  uint64 sources[max_ranks];
  uint64 destinations[max_ranks];
  uint64 bytes;       // equal on all members, at least 1, and at most what a part holds beside the marks
  uint64 counters;    // as in ReduceLamportArguments
  uint32 part_bytes;  // a multiple of 16
  uint32 dependents;  // as in `group`
  MoveLamportPair pair;  // zeros in other groups
  uint32 sender;         // a member, or every_member
  uint32 receiver;       // alike
};

constexpr uint64 no_token = ~0ull;
constexpr uint32 token_offset_bits = 48;
constexpr uint64 own_row = 0xfffe;

// Sends and receives, at most one of each per member. A token names memory: a row of `table` times 2^48, plus an offset
// in bytes; or own_row times 2^48, plus the address of memory that only the sender knows. The latter goes to peers only, in
// chunks through the sender's staging: a chunk for each block of each peer, `staging` bytes behind the sender's slots. The
// grid has world * blocks_per_peer + 1 blocks.
struct ExchangeArguments {
  CollectiveGroup group;
  uint64 send_tokens[max_ranks];    // no_token: nothing to send
  uint64 send_bytes[max_ranks];
  uint64 destinations[max_ranks];   // no_token: nothing to receive
  uint64 receive_bytes[max_ranks];
  uint64 table;        // addresses, by [row][rank in the communicator]
  uint32 table_ranks;  // length of a row
  uint32 blocks_per_peer;
  uint64 staging;
  uint32 chunk_bytes;  // a multiple of 16; more than 0 if a member may send its own memory
  uint32 reserved;
};

// The following types describe a GEMM: C[m, n] = A[m, k] B[k, n], plus bias[n] to each row.
enum class MatrixOrder : uint32 { rows = 1, columns = 2 };
enum class Sharding : uint32 { rows = 1, columns = 2 };
enum class GatherMode : uint32 { wait = 1, pull = 2, push = 3, push_at_once = 4 };
enum class ReducedMode : uint32 { push = 1, packets = 2 };

// Strides are in elements between rows, for a B in column order between columns.
struct GemmShape {
  uint64 m, n, k;
  uint64 a_stride, b_stride, c_stride;
  uint32 element;  // an ElementType of A and B: f16, bf16 or f8_e4m3. C and the bias have the same, or bf16 instead of f8_e4m3
  uint32 b_order;  // a MatrixOrder
  uint32 bias;     // 1 with a bias, otherwise 0
  uint32 reserved;
};

// An all-gather + GEMM that multiplies each chunk of A after it has arrived. Shard p of A has `shard` rows or columns
// from p * shard on; the last shards have fewer or none. A shard lies without gaps in its member's memory, and in
// `gathered` at its place in the whole A. A chunk is `chunk` rows of a shard; the last chunk has fewer. Chunk c of
// shard p has arrived when the word at arrivals + (p * chunks + c) * signal_stride has reached the value at `epoch`.
// In the mode push_at_once, `epoch` has a word per block; the expected value is that word plus 1, and the block then
// increments it. Kernels for f8_e4m3 are passed pairs of elements as elements: k, the strides of A and B, and `shard` if it is
// of columns, are half of what they were, and everything that moves or counts has 16 bits as ever.
struct GatheredGemmArguments {
  CollectiveGroup group;         // slots: each member's words that say which members have entered (push_at_once)
  uint64 sources[max_ranks];     // the shards: this rank's, and all members' in the mode pull
  uint64 gathered[max_ranks];    // the gathered A: this rank's, and all members' in the push modes
  uint64 arrivals[max_ranks];    // the arrival words: this rank's, and all members' in the push modes
  uint64 epoch;
  uint64 b;
  uint64 c;
  uint64 bias;  // 0 for none
  GemmShape shape;
  uint64 shard;
  uint64 chunk;
  uint32 chunks;    // chunks of a full shard
  uint32 sharding;  // a Sharding
  uint32 mode;      // a GatherMode
  uint32 movers;    // number of the grid's first blocks that move A
  uint32 keep;      // 1 if movers also copy this rank's shard into its gathered A
  uint32 tile;      // for the host alone
  // The last round of tiles, if it does not fill the grid, may be divided: see divided_round.h.
  uint64 partials;       // zeroed counters, and room for the blocks' sums; 0 for none
  uint64 partial_bytes;  // for the host alone
  uint32 quota;          // steps of the depth that a block multiplies in the last round; 0 for whole tiles
  uint32 reserved;
  uint64 scale;          // a float by which products of f8_e4m3 are multiplied before the bias is added; 0 for none
};

// A GEMM whose K is divided among the ranks, and the sum of its products over all ranks. Rank p owns `shard` rows of the
// sum from p * shard on; the last ranks own fewer or none. A partial sum is rounded to `partial` where it leaves its rank;
// the owner adds all of them and the bias in f32, always in the same order, and rounds once.
//
// The call is its own barrier: the kernel stores nothing in a member's memory before all members have entered. Each block
// counts its calls in the own words; all other words reach that count. The layouts of inboxes and words, which are
// zeroed once, are the kernel's own. A block whose wait gave up raises no word for a sum that lacks a part.
struct ReducedGemmArguments {
  CollectiveGroup group;        // for waits and their records: slots and packets are not used
  uint64 inboxes[max_ranks];    // each member's inbox
  uint64 words[max_ranks];      // each member's words
  uint64 results[max_ranks];    // with `all`, each member's whole sum, rows shape.c_stride apart; otherwise 0
  uint64 a;
  uint64 b;
  uint64 c;                     // the own rows of the sum; with `all`, the own entry of `results`
  uint64 bias;                  // 0 for none; added once
  GemmShape shape;              // this rank's GEMM: all rows, and this rank's part of K
  uint64 shard;                 // rows of a full rank's part
  uint32 mode;                  // a ReducedMode
  uint32 all;                   // 1 if all ranks get the whole sum, 0 if each gets its rows
  uint32 partial;               // an ElementType: f32, or that of the shape
  uint32 quota;                 // as in GatheredGemmArguments: set by backends that divide tiles
};

// An atomic operation on a word of symmetric memory.
struct WordOperation {
  uint64 word;
  uint64 result;  // where to store the previous value; 0 for nowhere
  uint64 operand;
  uint64 compare;
  uint32 update;  // a WordUpdate
  uint32 bits;    // 32 or 64
};

// A wait for words in this rank's memory.
struct WordWait {
  uint64 words;
  uint64 stride;
  uint64 value;
  uint64 index;  // where to store the index (uint32) of the first satisfied word; 0 for nowhere
  Watch watch;
  uint32 count;
  uint32 condition;  // a Condition
  uint32 any;        // 1: one word is enough; 0: all
  uint32 bits;       // 32 or 64
};

// The version of Handle's layout and meaning. Raise it with every change of either.
#define SYMMEM_HANDLE_VERSION 2

// The argument with which a user's kernel reaches its peers: one symmetric buffer on every rank, and the signals of one
// channel. See handle.h. Size and version come first in every version, so that a program which launches kernels by its
// own means can compare them with those of its headers.
struct Handle {
  uint32 size;     // sizeof(Handle) of the library
  uint32 version;  // SYMMEM_HANDLE_VERSION of the library
  Watch watch;
  uint64 bases[max_ranks];    // the buffer on each rank, including this one
  uint64 signals[max_ranks];  // each rank's signal words; rank g writes the word at g * signal_stride
  uint64 given;               // this rank's counters of signals sent, a uint32 per peer
  uint64 waited;              // this rank's counters of signals waited for, a uint32 per peer
  uint64 arrivals;            // a uint32 per peer, 0 at first, by which a grid that signals finds its last block
  uint64 departures;          // the same for a grid that waits
  uint64 bytes;               // bytes of the buffer on each rank
  uint32 rank;
  uint32 world;
  uint32 channel;
  uint32 reserved;
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
  uint64 elapsed_ns;  // since the thread's first look at the clock
};

// For collectives, the kind is `collective` plus the operation's number.
enum class WaitKind : uint32 { signal = 1, barrier = 2, words = 3, size = 4, given_up = 5, collective = 16 };
enum class WaitReason : uint32 { none = 0, deadline = 1, abort = 2 };

#if defined(SYMMEM_NO_OFFSETOF)  // sizes are still checked
#define SYMMEM_ASSERT_OFFSET(type, field, offset) static_assert(true, "")
#else
#define SYMMEM_ASSERT_OFFSET(type, field, offset) \
  static_assert(__builtin_offsetof(type, field) == offset, #type "." #field " moved")
#endif

static_assert(sizeof(SignalTarget) == 32, "SignalTarget changed size");
SYMMEM_ASSERT_OFFSET(SignalTarget, epoch, 8);
SYMMEM_ASSERT_OFFSET(SignalTarget, arrivals, 16);
SYMMEM_ASSERT_OFFSET(SignalTarget, value, 24);
static_assert(sizeof(Watch) == 40, "Watch changed size");
SYMMEM_ASSERT_OFFSET(Watch, record, 8);
SYMMEM_ASSERT_OFFSET(Watch, aborted, 16);
SYMMEM_ASSERT_OFFSET(Watch, deadline_ns, 24);
SYMMEM_ASSERT_OFFSET(Watch, rank, 32);
static_assert(sizeof(SignalWait) == 72, "SignalWait changed size");
SYMMEM_ASSERT_OFFSET(SignalWait, epoch, 8);
SYMMEM_ASSERT_OFFSET(SignalWait, watch, 16);
SYMMEM_ASSERT_OFFSET(SignalWait, value, 56);
SYMMEM_ASSERT_OFFSET(SignalWait, peer, 60);
SYMMEM_ASSERT_OFFSET(SignalWait, slot, 64);
static_assert(sizeof(StepArguments) == 104, "StepArguments changed size");
SYMMEM_ASSERT_OFFSET(StepArguments, wait, 32);
static_assert(sizeof(Barrier) == 640, "Barrier changed size");
SYMMEM_ASSERT_OFFSET(Barrier, epoch, 40);
SYMMEM_ASSERT_OFFSET(Barrier, own, 48);
SYMMEM_ASSERT_OFFSET(Barrier, peers, 56);
SYMMEM_ASSERT_OFFSET(Barrier, world, 632);
SYMMEM_ASSERT_OFFSET(Barrier, slot, 636);
static_assert(sizeof(TransferArguments) == 64, "TransferArguments changed size");
SYMMEM_ASSERT_OFFSET(TransferArguments, source, 8);
SYMMEM_ASSERT_OFFSET(TransferArguments, bytes, 16);
SYMMEM_ASSERT_OFFSET(TransferArguments, signal, 24);
SYMMEM_ASSERT_OFFSET(TransferArguments, stages, 56);
SYMMEM_ASSERT_OFFSET(TransferArguments, stage_bytes, 60);
static_assert(sizeof(LatencyArguments) == 88, "LatencyArguments changed size");
SYMMEM_ASSERT_OFFSET(LatencyArguments, remote, 8);
SYMMEM_ASSERT_OFFSET(LatencyArguments, bytes, 16);
SYMMEM_ASSERT_OFFSET(LatencyArguments, result, 24);
SYMMEM_ASSERT_OFFSET(LatencyArguments, watch, 32);
SYMMEM_ASSERT_OFFSET(LatencyArguments, rounds, 72);
SYMMEM_ASSERT_OFFSET(LatencyArguments, base, 76);
SYMMEM_ASSERT_OFFSET(LatencyArguments, first, 80);
SYMMEM_ASSERT_OFFSET(LatencyArguments, peer, 84);
static_assert(sizeof(CollectiveGroup) == 712, "CollectiveGroup changed size");
SYMMEM_ASSERT_OFFSET(CollectiveGroup, slots, 40);
SYMMEM_ASSERT_OFFSET(CollectiveGroup, packet_bytes, 616);
SYMMEM_ASSERT_OFFSET(CollectiveGroup, dependents, 620);
SYMMEM_ASSERT_OFFSET(CollectiveGroup, rank, 624);
SYMMEM_ASSERT_OFFSET(CollectiveGroup, world, 628);
SYMMEM_ASSERT_OFFSET(CollectiveGroup, slot, 632);
SYMMEM_ASSERT_OFFSET(CollectiveGroup, operation, 636);
SYMMEM_ASSERT_OFFSET(CollectiveGroup, members, 640);
static_assert(sizeof(MoveArguments) == 712 + 3 * 576 + 8, "MoveArguments changed size");
SYMMEM_ASSERT_OFFSET(MoveArguments, destinations, 712);
SYMMEM_ASSERT_OFFSET(MoveArguments, sources, 1288);
SYMMEM_ASSERT_OFFSET(MoveArguments, bytes, 1864);
SYMMEM_ASSERT_OFFSET(MoveArguments, copies, 2440);
SYMMEM_ASSERT_OFFSET(MoveArguments, concurrent, 2444);
static_assert(sizeof(PacketArguments) == 712 + 4 * 576, "PacketArguments changed size");
SYMMEM_ASSERT_OFFSET(PacketArguments, sources, 712);
SYMMEM_ASSERT_OFFSET(PacketArguments, destinations, 1288);
SYMMEM_ASSERT_OFFSET(PacketArguments, send_bytes, 1864);
SYMMEM_ASSERT_OFFSET(PacketArguments, receive_bytes, 2440);
static_assert(sizeof(ReduceArguments) == 712 + 2 * 576 + 16, "ReduceArguments changed size");
SYMMEM_ASSERT_OFFSET(ReduceArguments, destinations, 1288);
SYMMEM_ASSERT_OFFSET(ReduceArguments, count, 1864);
SYMMEM_ASSERT_OFFSET(ReduceArguments, element, 1872);
SYMMEM_ASSERT_OFFSET(ReduceArguments, reduce, 1876);
static_assert(sizeof(ReducePacketArguments) == 712 + 3 * 576 + 16, "ReducePacketArguments changed size");
SYMMEM_ASSERT_OFFSET(ReducePacketArguments, destinations, 1288);
SYMMEM_ASSERT_OFFSET(ReducePacketArguments, counts, 1864);
SYMMEM_ASSERT_OFFSET(ReducePacketArguments, element, 2440);
SYMMEM_ASSERT_OFFSET(ReducePacketArguments, two_shot, 2448);
static_assert(sizeof(LamportPair) == 32, "LamportPair changed size");
static_assert(sizeof(ReduceLamportArguments) == 712 + 2 * 576 + 40 + 48, "ReduceLamportArguments changed size");
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, inboxes, 712);
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, sources, 1288);
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, destination, 1864);
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, count, 1872);
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, counters, 1880);
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, part_bytes, 1888);
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, element, 1892);
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, reduce, 1896);
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, dependents, 1900);
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, pair, 1904);
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, share_bytes, 1936);
SYMMEM_ASSERT_OFFSET(ReduceLamportArguments, receiver, 1944);
static_assert(sizeof(ReduceNormArguments) == 1952 + 5 * 8 + 32, "ReduceNormArguments changed size");
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, residual, 1952);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, residual_out, 1960);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, weight, 1968);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, bias, 1976);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, scales, 1984);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, hidden, 1992);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, rows, 1996);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, epsilon, 2000);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, weight_offset, 2004);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, norm, 2008);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, quantization, 2012);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, share_rows, 2016);
SYMMEM_ASSERT_OFFSET(ReduceNormArguments, owner_rows, 2020);
static_assert(sizeof(MoveLamportArguments) == 712 + 3 * 576 + 24 + 56, "MoveLamportArguments changed size");
SYMMEM_ASSERT_OFFSET(MoveLamportArguments, inboxes, 712);
SYMMEM_ASSERT_OFFSET(MoveLamportArguments, sources, 1288);
SYMMEM_ASSERT_OFFSET(MoveLamportArguments, destinations, 1864);
SYMMEM_ASSERT_OFFSET(MoveLamportArguments, bytes, 2440);
SYMMEM_ASSERT_OFFSET(MoveLamportArguments, counters, 2448);
SYMMEM_ASSERT_OFFSET(MoveLamportArguments, part_bytes, 2456);
SYMMEM_ASSERT_OFFSET(MoveLamportArguments, dependents, 2460);
SYMMEM_ASSERT_OFFSET(MoveLamportArguments, pair, 2464);
SYMMEM_ASSERT_OFFSET(MoveLamportArguments, sender, 2512);
SYMMEM_ASSERT_OFFSET(MoveLamportArguments, receiver, 2516);
static_assert(sizeof(ReducePushArguments) == 1880 + 3 * 576 + 24, "ReducePushArguments changed size");
SYMMEM_ASSERT_OFFSET(ReducePushArguments, sources, 1880);
SYMMEM_ASSERT_OFFSET(ReducePushArguments, counts, 2456);
SYMMEM_ASSERT_OFFSET(ReducePushArguments, inboxes, 3032);
SYMMEM_ASSERT_OFFSET(ReducePushArguments, channel_bytes, 3608);
SYMMEM_ASSERT_OFFSET(ReducePushArguments, channels, 3616);
SYMMEM_ASSERT_OFFSET(ReducePushArguments, slots, 3620);
SYMMEM_ASSERT_OFFSET(ReducePushArguments, piece_bytes, 3624);
SYMMEM_ASSERT_OFFSET(ReducePushArguments, barrier, 3628);
static_assert(sizeof(PieceArguments) == 712 + 5 * 576 + 32, "PieceArguments changed size");
SYMMEM_ASSERT_OFFSET(PieceArguments, sources, 712);
SYMMEM_ASSERT_OFFSET(PieceArguments, destinations, 1288);
SYMMEM_ASSERT_OFFSET(PieceArguments, send_bytes, 1864);
SYMMEM_ASSERT_OFFSET(PieceArguments, receive_bytes, 2440);
SYMMEM_ASSERT_OFFSET(PieceArguments, inboxes, 3016);
SYMMEM_ASSERT_OFFSET(PieceArguments, longest, 3592);
SYMMEM_ASSERT_OFFSET(PieceArguments, channel_bytes, 3600);
SYMMEM_ASSERT_OFFSET(PieceArguments, channels, 3608);
SYMMEM_ASSERT_OFFSET(PieceArguments, slots, 3612);
SYMMEM_ASSERT_OFFSET(PieceArguments, piece_bytes, 3616);
SYMMEM_ASSERT_OFFSET(PieceArguments, in_place, 3620);
static_assert(sizeof(MulticastArguments) == 712 + 3 * 8 + 2 * 576 + 24, "MulticastArguments changed size");
SYMMEM_ASSERT_OFFSET(MulticastArguments, slots, 712);
SYMMEM_ASSERT_OFFSET(MulticastArguments, source, 720);
SYMMEM_ASSERT_OFFSET(MulticastArguments, destination, 728);
SYMMEM_ASSERT_OFFSET(MulticastArguments, sources, 736);
SYMMEM_ASSERT_OFFSET(MulticastArguments, destinations, 1312);
SYMMEM_ASSERT_OFFSET(MulticastArguments, count, 1888);
SYMMEM_ASSERT_OFFSET(MulticastArguments, element, 1896);
SYMMEM_ASSERT_OFFSET(MulticastArguments, reduce, 1900);
SYMMEM_ASSERT_OFFSET(MulticastArguments, load, 1904);
SYMMEM_ASSERT_OFFSET(MulticastArguments, store, 1908);
static_assert(sizeof(ExchangeArguments) == 712 + 4 * 576 + 32, "ExchangeArguments changed size");
SYMMEM_ASSERT_OFFSET(ExchangeArguments, send_bytes, 1288);
SYMMEM_ASSERT_OFFSET(ExchangeArguments, destinations, 1864);
SYMMEM_ASSERT_OFFSET(ExchangeArguments, receive_bytes, 2440);
SYMMEM_ASSERT_OFFSET(ExchangeArguments, table, 3016);
SYMMEM_ASSERT_OFFSET(ExchangeArguments, blocks_per_peer, 3028);
static_assert(sizeof(GemmShape) == 64, "GemmShape changed size");
SYMMEM_ASSERT_OFFSET(GemmShape, element, 48);
SYMMEM_ASSERT_OFFSET(GemmShape, b_order, 52);
SYMMEM_ASSERT_OFFSET(GemmShape, bias, 56);
static_assert(sizeof(GatheredGemmArguments) == 712 + 3 * 576 + 168, "GatheredGemmArguments changed size");
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, gathered, 1288);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, arrivals, 1864);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, epoch, 2440);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, bias, 2464);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, shape, 2472);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, shard, 2536);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, chunk, 2544);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, chunks, 2552);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, sharding, 2556);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, mode, 2560);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, movers, 2564);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, keep, 2568);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, partials, 2576);
SYMMEM_ASSERT_OFFSET(GatheredGemmArguments, quota, 2592);
static_assert(sizeof(ReducedGemmArguments) == 712 + 3 * 576 + 120, "ReducedGemmArguments changed size");
SYMMEM_ASSERT_OFFSET(ReducedGemmArguments, inboxes, 712);
SYMMEM_ASSERT_OFFSET(ReducedGemmArguments, words, 1288);
SYMMEM_ASSERT_OFFSET(ReducedGemmArguments, results, 1864);
SYMMEM_ASSERT_OFFSET(ReducedGemmArguments, a, 2440);
SYMMEM_ASSERT_OFFSET(ReducedGemmArguments, bias, 2464);
SYMMEM_ASSERT_OFFSET(ReducedGemmArguments, shape, 2472);
SYMMEM_ASSERT_OFFSET(ReducedGemmArguments, shard, 2536);
SYMMEM_ASSERT_OFFSET(ReducedGemmArguments, mode, 2544);
SYMMEM_ASSERT_OFFSET(ReducedGemmArguments, all, 2548);
SYMMEM_ASSERT_OFFSET(ReducedGemmArguments, partial, 2552);
static_assert(sizeof(WordOperation) == 40, "WordOperation changed size");
SYMMEM_ASSERT_OFFSET(WordOperation, update, 32);
static_assert(sizeof(WordWait) == 88, "WordWait changed size");
SYMMEM_ASSERT_OFFSET(WordWait, watch, 32);
SYMMEM_ASSERT_OFFSET(WordWait, count, 72);
SYMMEM_ASSERT_OFFSET(WordWait, bits, 84);
static_assert(sizeof(Handle) == 1256, "Handle changed size");
SYMMEM_ASSERT_OFFSET(Handle, size, 0);
SYMMEM_ASSERT_OFFSET(Handle, version, 4);
SYMMEM_ASSERT_OFFSET(Handle, watch, 8);
SYMMEM_ASSERT_OFFSET(Handle, bases, 48);
SYMMEM_ASSERT_OFFSET(Handle, signals, 624);
SYMMEM_ASSERT_OFFSET(Handle, given, 1200);
SYMMEM_ASSERT_OFFSET(Handle, waited, 1208);
SYMMEM_ASSERT_OFFSET(Handle, arrivals, 1216);
SYMMEM_ASSERT_OFFSET(Handle, departures, 1224);
SYMMEM_ASSERT_OFFSET(Handle, bytes, 1232);
SYMMEM_ASSERT_OFFSET(Handle, rank, 1240);
SYMMEM_ASSERT_OFFSET(Handle, world, 1244);
SYMMEM_ASSERT_OFFSET(Handle, channel, 1248);
static_assert(sizeof(WaitRecord) == 40, "WaitRecord changed size");
SYMMEM_ASSERT_OFFSET(WaitRecord, elapsed_ns, 32);
SYMMEM_ASSERT_OFFSET(WaitRecord, expected, 20);
SYMMEM_ASSERT_OFFSET(WaitRecord, reason, 28);

#undef SYMMEM_ASSERT_OFFSET

}  // namespace symmem
