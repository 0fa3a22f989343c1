/* What the CTAs without a slice of W_qkv do while the others have one, or all CTAs where they are too few. */
#pragma once

#include "small/layout.cuh"
#include "small/stream.cuh"

namespace small {

struct Bystander {
  int index, count;  // this one; how many

  __device__ __forceinline__ explicit Bystander(int busy) {
    const int grid = gridDim.x, spare = grid - busy;
    index = spare > 0 ? static_cast<int>(blockIdx.x) - busy : blockIdx.x, count = spare > 0 ? spare : grid;
  }

  // x before output, which may be the same, is written: this CTA's part of output's input is sent later.
  __device__ __forceinline__ void save(const float* x, float* to, int rows) const {
    if (index < 0) return;
    for (int i = index * THREADS + threadIdx.x; i < rows * D / 4; i += count * THREADS)
      reinterpret_cast<float4*>(to)[i] = load_early(x + 4 * i);
  }

  // The vectors among the caller's weights. Returns whether this thread has raised an alarm.
  __device__ __forceinline__ bool watch(const float* weights, unsigned* alarms) const {
    bool raised = false;
    if (index < 0) return raised;
    for (int i = index * THREADS + threadIdx.x; i < VECTORS_LEN; i += count * THREADS)
      raised |= observe_vector(alarms, i, load_early_word(weights + vector_source(i)));
    return raised;
  }
};

}  // namespace small
