/* The kernels for few rows on sm_90a; block.cuh describes them. _1, _8, _16, _32: up to so many rows. _8x1, _16x1,
   _64x1: up to so many sequences of one token. small_f32, small_fp32: weights aligned to 16 bytes, through tensor maps;
   _unaligned: aligned to 4. small_prepared: from small_prepare's and small_merge's. small_fp32: products in fp32. */
#include "small/block.cuh"
#include "small/packed.cuh"
#include "small/stream.cuh"

namespace {

__device__ __forceinline__ small::Vectors vectors_of(const float* w) {
  return {w + GAMMA1, w + B_QKV, w + B_ATTN, w + GAMMA2, w + B_FC, w + B_PROJ};
}
__device__ __forceinline__ small::Vectors vectors_of(const small::Prepared& p, bool single) {
  return {p.norm1, single ? p.of_merged : p.b_qkv, p.b_attn, p.norm2, p.b_fc, p.b_proj};
}

// src/cuda/workspace.rs has these numbers too.
static_assert(sizeof(small::Workspace) == 3000320 && sizeof(small::Prepared) == 15381504);

}  // namespace

#define KERNEL extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(small::BLOCK, 1)

#define FROM_F32(ROWS)                                                                                                 \
  KERNEL small_f32_##ROWS(const float* x, float* output, const float* weights, small::Workspace* workspace, int rows,  \
      int seq_len, int causal, float* x_copy,                                                                          \
      const __grid_constant__ small::Fp32Weights::Matrices maps,                                                       \
      const __grid_constant__ ExactArgs again) {                                                                       \
    small::block<ROWS, false, small::Fp32Weights>(                                                                     \
        {x, output, maps, vectors_of(weights), *workspace, rows, seq_len, causal != 0, x_copy, &again});               \
  }                                                                                                                    \
  KERNEL small_f32_unaligned_##ROWS(                                                                                   \
      const float* x, float* output, const float* weights, small::Workspace* workspace, int rows, int seq_len,         \
      int causal, float* x_copy, const __grid_constant__ ExactArgs again) {                                            \
    const small::UnalignedWeights::Matrices from{weights};                                                             \
    small::block<ROWS, false, small::UnalignedWeights>(                                                                \
        {x, output, from, vectors_of(weights), *workspace, rows, seq_len, causal != 0, x_copy, &again});               \
  }

#define FROM_PREPARED(ROWS, SINGLE, NAME)                                                                              \
  KERNEL small_prepared_##NAME(const float* x, float* output, const small::Prepared* p, small::Workspace* workspace,   \
      int rows, int seq_len, int causal, float* x_copy, const __grid_constant__ ExactArgs again) {                     \
    const small::PackedWeights::Matrices from{p};                                                                      \
    small::block<ROWS, SINGLE, small::PackedWeights>(                                                                  \
        {x, output, from, vectors_of(*p, SINGLE), *workspace, rows, seq_len, causal != 0, x_copy, &again});            \
  }

#define IN_FP32(SINGLE, ROWS)                                                                                          \
  KERNEL small_fp32_##ROWS(const float* x, float* output, const float* weights, small::Workspace* workspace, int rows, \
      int seq_len, int causal, const __grid_constant__ small::ExactWeights::Matrices maps) {                           \
    small::block<small::FP32_ROWS, SINGLE, small::ExactWeights>(                                                       \
        {x, output, maps, vectors_of(weights), *workspace, rows, seq_len, causal != 0, nullptr, nullptr});             \
  }                                                                                                                    \
  KERNEL small_fp32_unaligned_##ROWS(                                                                                  \
      const float* x, float* output, const float* weights, small::Workspace* workspace, int rows, int seq_len,         \
      int causal) {                                                                                                    \
    const small::UnalignedExactWeights::Matrices from{weights};                                                        \
    small::block<small::FP32_ROWS, SINGLE, small::UnalignedExactWeights>(                                              \
        {x, output, from, vectors_of(weights), *workspace, rows, seq_len, causal != 0, nullptr, nullptr});             \
  }

FROM_F32(8)
FROM_F32(16)
FROM_F32(32)
FROM_PREPARED(8, true, 8x1)
FROM_PREPARED(16, true, 16x1)
FROM_PREPARED(32, true, 64x1)
FROM_PREPARED(8, false, 8)
FROM_PREPARED(16, false, 16)
FROM_PREPARED(32, false, 32)
IN_FP32(true, 1)
IN_FP32(false, 8)
