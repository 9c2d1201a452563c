// The kernels that the stand-in knows: the product's, and some that are wrong on purpose.

#include "cuda.h"

#include "../../../host/cuda/kernels/finish.cu"
#include "convert.cu"
#include "wrong.cu"

#include "launch.h"

extern "C" const Kernel fake_cuda_kernels[] = {
    KERNEL(finish_u8),       KERNEL(finish_f16), KERNEL(finish_bf16),     KERNEL(finish_f32),
    KERNEL(narrow_f16),      KERNEL(narrow_bf16), KERNEL(widen_f16),
    KERNEL(wrong_alignment), KERNEL(wrong_end),  KERNEL(wrong_race),      KERNEL(wrong_barrier),
    KERNEL(wrong_index),     KERNEL(right_race), KERNEL(wrong_stale),
};
extern "C" const size_t fake_cuda_kernel_count = sizeof fake_cuda_kernels / sizeof *fake_cuda_kernels;
