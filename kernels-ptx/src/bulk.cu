// Module `bulk`: transfers by bulk asynchronous copies, from sm_90 on.
#include "symmem/bulk.h"
#include "symmem/signal.h"

using namespace symmem;

// The next kernel may become resident at once, since it can be no other than one that waits for this grid
// to end: only a dependent launch starts early, and one that waits on every path (the lint sees to it). As
// this grid in turn ends no earlier than the one before it, the stream's order holds along any chain of
// such launches, and two grids never count on one arrivals word at the same time.
SYMMEM_KERNEL(1024) symmem_copy_bulk(SYMMEM_ARGUMENTS(TransferArguments) transfer) {
  arch::start_dependents();
  copy_bulk(transfer.destination, transfer.source, transfer.bytes, transfer.stages, transfer.stage_bytes);
  give_signal(transfer.signal);
}
