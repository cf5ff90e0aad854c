// Module `bulk`: transfers by bulk asynchronous copies, from sm_90 on.
#include "symmem/bulk.h"
#include "symmem/signal.h"

using namespace symmem;

// The next kernel may become resident while this one copies, which waits for no peer. Only a dependent launch starts
// early, and every such kernel waits on every path for this grid to end (the lint checks this). As this grid ends no
// earlier than its predecessor, stream order holds along any chain of such launches, and two grids never count on one
// arrivals word at the same time.
SYMMEM_KERNEL(1024) symmem_copy_bulk(SYMMEM_ARGUMENTS(TransferArguments) transfer) {
  copy_bulk(transfer.destination, transfer.source, transfer.bytes, transfer.stages, transfer.stage_bytes);
  give_signal(transfer.signal);
}
