// Module `signals`: signals, waits, words and the barrier.
//
// On targets with dependent launch, these kernels may start while the stream's previous kernel runs. Each first waits
// for that kernel. Kernels that wait for no peer then let the next one start, the others after their wait.
#include "symmem/barrier.h"
#include "symmem/signal.h"
#include "symmem/word.h"

using namespace symmem;

namespace {

SYMMEM_DEVICE bool is_first_thread() { return arch::block_index() == 0 && arch::thread_index() == 0; }

}  // namespace

SYMMEM_KERNEL(1024) symmem_signal(SYMMEM_ARGUMENTS(SignalTarget) target) {
  arch::wait_for_prerequisites();
  arch::start_dependents();
  give_signal(target);
}

SYMMEM_KERNEL(1024) symmem_wait(SYMMEM_ARGUMENTS(SignalWait) wait) {
  arch::wait_for_prerequisites();
  if (is_first_thread()) wait_signal(wait);
  arch::end_waits();
}

// For one block.
SYMMEM_KERNEL(1024) symmem_step(SYMMEM_ARGUMENTS(StepArguments) step) {
  arch::wait_for_prerequisites();
  give_signal(step.target);
  if (is_first_thread()) wait_signal(step.wait);
  arch::end_waits();
}

SYMMEM_KERNEL(1024) symmem_word_update(SYMMEM_ARGUMENTS(WordOperation) operation) {
  arch::wait_for_prerequisites();
  arch::start_dependents();
  if (is_first_thread()) word_update(operation);
}

SYMMEM_KERNEL(1024) symmem_word_wait(SYMMEM_ARGUMENTS(WordWait) wait) {
  arch::wait_for_prerequisites();
  if (arch::block_index() == 0) word_wait(wait);
  arch::end_waits();
}

SYMMEM_KERNEL(1024) symmem_barrier(SYMMEM_ARGUMENTS(Barrier) arguments) {
  arch::wait_for_prerequisites();
  barrier(arguments);
  arch::end_waits();
}
