// Module `collective`: collectives that move bytes without reducing them. For the usual calls in packets there are small
// kernels: `few` for one unit a thread; `pair1`, `pair2` and `pair4` for as many units a thread in a group of two.
#include "symmem/exchange.h"
#include "symmem/move.h"
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

SYMMEM_KERNEL(512) symmem_exchange(SYMMEM_ARGUMENTS(ExchangeArguments) arguments) { collective_exchange(arguments); }
