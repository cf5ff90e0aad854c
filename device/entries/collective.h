// Module `collective`: collectives that move bytes without reducing them. For the usual calls in packets, of both kinds, there
// are small kernels: `few` for one unit or vector a thread; `pair1`, `pair2` and `pair4` for as many a thread in a group of
// two. In Lamport packets, `rooted` is for calls in which not every member sends to every member.
#include "symmem/exchange.h"
#include "symmem/move.h"
#include "symmem/move_lamport.h"
#include "symmem/move_pieces.h"
#include "symmem/packets.h"
#include "symmem/packets_few.h"
#include "symmem/swap.h"

using namespace symmem;

SYMMEM_KERNEL(512) symmem_move(SYMMEM_ARGUMENTS(MoveArguments) arguments) { collective_move(arguments); }

SYMMEM_KERNEL(512) symmem_swap(SYMMEM_ARGUMENTS(MoveArguments) arguments) { collective_swap(arguments); }

SYMMEM_KERNEL(512) symmem_move_pieces(SYMMEM_ARGUMENTS(PieceArguments) arguments) { collective_pieces(arguments); }

SYMMEM_KERNEL(512) symmem_move_packets(SYMMEM_ARGUMENTS(PacketArguments) arguments) { collective_packets(arguments); }

#define SYMMEM_FEW(name, pair, rows)                                                              \
  SYMMEM_KERNEL(512) symmem_move_packets_##name(SYMMEM_ARGUMENTS(PacketArguments) arguments) {    \
    move_few_units<pair, rows>(arguments);                                                        \
  }

SYMMEM_FEW(few, false, 1)
SYMMEM_FEW(pair1, true, 1)
SYMMEM_FEW(pair2, true, 2)
SYMMEM_FEW(pair4, true, 4)

#undef SYMMEM_FEW

SYMMEM_KERNEL(512) symmem_move_lamport(SYMMEM_ARGUMENTS(MoveLamportArguments) arguments) { move_any<false>(arguments); }

SYMMEM_KERNEL(512) symmem_move_lamport_rooted(SYMMEM_ARGUMENTS(MoveLamportArguments) arguments) { move_any<true>(arguments); }

#define SYMMEM_FEW(name, ...)                                                                        \
  SYMMEM_KERNEL(512) symmem_move_lamport_##name(SYMMEM_ARGUMENTS(MoveLamportArguments) arguments) {  \
    move_few_vectors<__VA_ARGS__>(arguments);                                                           \
  }

SYMMEM_FEW(few, lamport_peers, 1, 0)
SYMMEM_FEW(pair1, 1, 1, 2)
SYMMEM_FEW(pair2, 1, 2, 2)
SYMMEM_FEW(pair4, 1, 4, 2)
SYMMEM_FEW(four, 3, 1, 4)
SYMMEM_FEW(eight, 7, 1, 8)

#undef SYMMEM_FEW

SYMMEM_KERNEL(512) symmem_exchange(SYMMEM_ARGUMENTS(ExchangeArguments) arguments) { collective_exchange(arguments); }
