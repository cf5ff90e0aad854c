// Module `signals`: signals, waits, words and the barrier.
//
// On targets with dependent launch, these kernels may start while the stream's previous kernel runs. Each first waits
// for that kernel and then lets the next one start.
#include "symmem/barrier.h"
#include "symmem/signal.h"
#include "symmem/word.h"

using namespace symmem;

namespace {

SYMMEM_DEVICE void enter() {
  arch::wait_for_prerequisites();
  arch::start_dependents();
}

SYMMEM_DEVICE bool is_first_thread() { return arch::block_index() == 0 && arch::thread_index() == 0; }

}  // namespace

SYMMEM_KERNEL(1024) symmem_signal(SYMMEM_ARGUMENTS(SignalTarget) target) {
  enter();
  give_signal(target);
}

SYMMEM_KERNEL(1024) symmem_wait(SYMMEM_ARGUMENTS(SignalWait) wait) {
  enter();
  if (is_first_thread()) wait_signal(wait);
}

// For one block.
SYMMEM_KERNEL(1024) symmem_step(SYMMEM_ARGUMENTS(StepArguments) step) {
  enter();
  give_signal(step.target);
  if (is_first_thread()) wait_signal(step.wait);
}

SYMMEM_KERNEL(1024) symmem_word_update(SYMMEM_ARGUMENTS(WordOperation) operation) {
  enter();
  if (is_first_thread()) word_update(operation);
}

SYMMEM_KERNEL(1024) symmem_word_wait(SYMMEM_ARGUMENTS(WordWait) wait) {
  enter();
  if (arch::block_index() == 0) word_wait(wait);
}

SYMMEM_KERNEL(1024) symmem_barrier(SYMMEM_ARGUMENTS(Barrier) arguments) {
  enter();
  barrier(arguments);
}
