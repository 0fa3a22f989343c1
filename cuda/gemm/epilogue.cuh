/* What becomes of a finished fp32 sum: one small struct for each use. `Out` is the element type in memory, `RESIDUAL`
   says whether an fp32 matrix of the output's shape is added. */
#pragma once

#include <cuda_fp16.h>

#include "common/exp2.cuh"

struct Bias {
  using Out = __half;
  static constexpr bool RESIDUAL = false;
  static __device__ float apply(float sum, float bias, float) { return sum + bias; }
};

struct BiasResidual {
  using Out = float;
  static constexpr bool RESIDUAL = true;
  static __device__ float apply(float sum, float bias, float residual) { return sum + bias + residual; }
};

// gelu(v) = v (1 + tanh(u)) / 2 = v / (1 + exp(-2 u)), u = sqrt(2 / pi) (v + 0.044715 v^3). Good to fp32 rounding,
// where the FC of sm_90a makes do with tanh.approx, good to 2^-11 (gemm/epilogue_half_sm90a.cuh).
struct BiasGelu {
  using Out = __half;
  static constexpr bool RESIDUAL = false;
  static __device__ float apply(float sum, float bias, float) {
    constexpr float LINEAR = -2.f * LOG2_E * 0.7978845608028654f;  // of -2 u log2(e)
    const float v = sum + bias;
    return __fdividef(v, 1.f + exp2_approx(v * (LINEAR + LINEAR * 0.044715f * (v * v))));
  }
};
