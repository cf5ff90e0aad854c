// Module `reduce_norm`: sums of rows in Lamport packets with residual and norm. A kernel for all calls, and small ones for the
// types of 16 bits and one vector a thread, in groups of two (`pair`) and of any number (`few`), also without LayerNorm and bias:
// `plain` with results of the same type, `narrow` of 8 bits. Two-shot, `shares`, likewise; without such forms.
#include "symmem/reduce_norm_shares.h"

using namespace symmem;

#define SYMMEM_ENTRY(name, ...)                                                                     \
  SYMMEM_KERNEL(1024) symmem_reduce_norm_##name(SYMMEM_ARGUMENTS(ReduceNormArguments) arguments) {  \
    __VA_ARGS__(arguments);                                                                         \
  }

#define SYMMEM_FORM(form, name, type)                                                                            \
  SYMMEM_ENTRY(pair_##name##type, norm_few_vectors<ElementOf<ElementType::type>::Type, 1, 2, NormForm::form>)  \
  SYMMEM_ENTRY(few_##name##type, norm_few_vectors<ElementOf<ElementType::type>::Type, 2, 0, NormForm::form>)

#define SYMMEM_SHARES(type)                                                                             \
  SYMMEM_ENTRY(shares_##type, norm_shares<ElementOf<ElementType::type>::Type>)                         \
  SYMMEM_ENTRY(pair_shares_##type, norm_few_shares<ElementOf<ElementType::type>::Type, 2>)             \
  SYMMEM_ENTRY(few_shares_##type, norm_few_shares<ElementOf<ElementType::type>::Type, 0>)

#define SYMMEM_EACH(type)                                            \
  SYMMEM_ENTRY(type, norm_any<ElementOf<ElementType::type>::Type>)  \
  SYMMEM_SHARES(type)                                                \
  SYMMEM_FORM(any, , type)                                           \
  SYMMEM_FORM(plain, plain_, type)                                   \
  SYMMEM_FORM(narrow, narrow_, type)

SYMMEM_EACH(f16)
SYMMEM_EACH(bf16)
SYMMEM_ENTRY(f32, norm_any<ElementOf<ElementType::f32>::Type>)
SYMMEM_ENTRY(shares_f32, norm_shares<ElementOf<ElementType::f32>::Type>)

#undef SYMMEM_EACH
#undef SYMMEM_SHARES
#undef SYMMEM_FORM
#undef SYMMEM_ENTRY
