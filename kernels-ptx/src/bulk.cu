// Module `bulk`: transfers by bulk asynchronous copies, from sm_90 on.
#include "symmem/bulk.h"
#include "symmem/signal.h"

using namespace symmem;

SYMMEM_KERNEL(1024) symmem_copy_bulk(SYMMEM_ARGUMENTS(TransferArguments) transfer) {
  arch::start_dependents();
  copy_bulk(transfer.destination, transfer.source, transfer.bytes, transfer.stages, transfer.stage_bytes);
  give_signal(transfer.signal);
}
