// Module `collective`: collectives that move bytes without reducing them.
#include "symmem/exchange.h"
#include "symmem/move.h"
#include "symmem/packets.h"
#include "symmem/swap.h"

using namespace symmem;

SYMMEM_KERNEL(512) symmem_move(SYMMEM_ARGUMENTS(MoveArguments) arguments) { collective_move(arguments); }

SYMMEM_KERNEL(512) symmem_swap(SYMMEM_ARGUMENTS(MoveArguments) arguments) { collective_swap(arguments); }

SYMMEM_KERNEL(512) symmem_move_packets(SYMMEM_ARGUMENTS(PacketArguments) arguments) { collective_packets(arguments); }

SYMMEM_KERNEL(512) symmem_exchange(SYMMEM_ARGUMENTS(ExchangeArguments) arguments) { collective_exchange(arguments); }
