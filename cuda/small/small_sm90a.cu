/* The kernels for few rows on sm_90a; block.cuh describes them. _8, _16, _32: up to so many rows. _8x1: up to eight
   sequences of one token. small_f32: weights aligned to 16 bytes, through tensor maps. small_f32_unaligned: aligned to
   4. small_prepared: from small_prepare's. */
#include "small/block.cuh"
#include "small/packed.cuh"
#include "small/stream.cuh"

namespace {

__device__ __forceinline__ small::Vectors vectors_of(const float* w) {
  return {w + GAMMA1, w + B_QKV, w + B_ATTN, w + GAMMA2, w + B_FC, w + B_PROJ};
}
__device__ __forceinline__ small::Vectors vectors_of(const small::Prepared& p) {
  return {p.norm1, p.b_qkv, p.b_attn, p.norm2, p.b_fc, p.b_proj};
}

// src/cuda/workspace.rs has these numbers too.
static_assert(sizeof(small::Workspace) == 2656256 && sizeof(small::Prepared) == 14195712);

}  // namespace

#define SMALL(MT, HALVES, SINGLE, ROWS)                                                                                \
  extern "C" __global__ void __launch_bounds__(small::BLOCK, 1)                                                        \
      small_f32_##ROWS(const float* x, float* output, const float* weights, small::Workspace* workspace, int rows,     \
                       int seq_len, int causal, float* x_copy,                                                         \
                       const __grid_constant__ small::Fp32Weights::Matrices maps, const __grid_constant__ Wake wake) { \
    small::block<MT, HALVES, SINGLE, small::Fp32Weights>({x, output, maps, weights + W_QKV, vectors_of(weights),       \
                                                          *workspace, rows, seq_len, causal != 0, x_copy, &wake});     \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(small::BLOCK, 1) small_f32_unaligned_##ROWS(                            \
      const float* x, float* output, const float* weights, small::Workspace* workspace, int rows, int seq_len,         \
      int causal, float* x_copy, const __grid_constant__ Wake wake) {                                                  \
    const small::UnalignedWeights::Matrices from{weights};                                                             \
    small::block<MT, HALVES, SINGLE, small::UnalignedWeights>({x, output, from, weights + W_QKV, vectors_of(weights),  \
                                                               *workspace, rows, seq_len, causal != 0, x_copy,         \
                                                               &wake});                                                \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(small::BLOCK, 1)                                                        \
      small_prepared_##ROWS(const float* x, float* output, const small::Prepared* p, small::Workspace* workspace,      \
                            int rows, int seq_len, int causal, float* x_copy) {                                        \
    const small::PackedWeights::Matrices from{p};                                                                      \
    small::block<MT, HALVES, SINGLE, small::PackedWeights>(                                                            \
        {x, output, from, nullptr, vectors_of(*p), *workspace, rows, seq_len, causal != 0, x_copy, nullptr});          \
  }

SMALL(1, 1, true, 8x1)
SMALL(1, 1, false, 8)
SMALL(1, 2, false, 16)
SMALL(2, 2, false, 32)
