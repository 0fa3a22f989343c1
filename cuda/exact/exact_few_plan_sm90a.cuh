/* How the exact block of few rows is cut, and where it keeps things (exact_few_sm90a.cuh). */
#pragma once

#include "common/sync_sm90a.cuh"
#include "exact/exact_memory_sm90a.cuh"

namespace exact90 {

constexpr int FEW_ROWS = 64;
constexpr int SCALAR_ROWS = 8;     // up to which a warp multiplies by fp32 multiply-adds
constexpr int CHUNK_ROWS = 32;     // of A in shared memory at a time
constexpr int A_PITCH = D + 16;    // floats of a row there: what eight lanes read at once lies in 32 banks
constexpr int PARTS = FFN / D;     // of W_proj's K
constexpr int FEW_WARPS = THREADS / 32, FEW_BRINGING = 4;  // warps that compute, and that bring weights in exact_few_sm90a.cu
constexpr int FEW_THREADS = THREADS + 32 * FEW_BRINGING;
constexpr int FEW_ASKED = 1, FEW_COMPUTING = 2;  // named barriers

// A unit of work: so many columns, in tiles of the MMA, and D of K, of which each warp has so many steps of 16.
constexpr int UNIT = 24, UNIT_TILES = UNIT / 8, UNIT_STEPS = D / FEW_WARPS / 16;
constexpr int SUMS_PITCH = CHUNK_ROWS * UNIT;  // floats of a warp's sums

struct FewShared {
  float* base;
  static constexpr int SUMS = CHUNK_ROWS * A_PITCH, NORM = SUMS + FEW_WARPS * SUMS_PITCH, WEIGHTS = NORM + 2 * D, BARRIERS = WEIGHTS + D * UNIT,
                       BYTES = (BARRIERS + 4) * 4;
  static_assert(BYTES <= SHARED_BYTES - SHARED_ALIGNMENT, "fits");
  __device__ __forceinline__ float* a() const { return base; }
  __device__ __forceinline__ float* sums() const { return base + SUMS; }  // by warp
  __device__ __forceinline__ float* norm() const { return base + NORM; }  // gamma, then beta
  __device__ __forceinline__ uint32_t weights() const { return shared_address(base + WEIGHTS); }
  __device__ __forceinline__ uint32_t full() const { return shared_address(base + BARRIERS); }  // a unit's weights are there
  __device__ __forceinline__ uint32_t taken() const { return full() + 8; }                    // all threads have taken them
};
// The warps that compute
__device__ __forceinline__ void few_sync() { named_barrier_sync(FEW_COMPUTING, THREADS); }

// What differs from stage to stage
struct FewStage {
  const ExactArgs& args;
  int matrix;  // of MATRIX_QKV ..

  __device__ __forceinline__ const float* weights() const { return args.phases & EXACT_CAST ? args.weights : Memory(args).plain(); }
  __device__ __forceinline__ int select(int qkv, int attn, int fc, int proj) const {
    return matrix == MATRIX_QKV ? qkv : matrix == MATRIX_ATTN ? attn : matrix == MATRIX_FC ? fc : proj;
  }
  __device__ __forceinline__ int width() const { return select(QKV, D, FFN, D); }
  __device__ __forceinline__ bool norms() const { return matrix == MATRIX_QKV || matrix == MATRIX_FC; }
  __device__ __forceinline__ int columns() const { return width() / UNIT; }  // of units
  __device__ __forceinline__ int units() const { return matrix == MATRIX_PROJ ? PARTS * columns() : columns(); }
  __device__ __forceinline__ int part(int unit) const { return matrix == MATRIX_PROJ ? unit / columns() : 0; }
  __device__ __forceinline__ int column(int unit) const { return (matrix == MATRIX_PROJ ? unit % columns() : unit) * UNIT; }
  __device__ __forceinline__ const float* at(int unit) const {
    return weights() + select(W_QKV, W_ATTN, W_FC, W_PROJ) + part(unit) * (D * D) + column(unit);
  }
  __device__ __forceinline__ const float* bias() const { return weights() + select(B_QKV, B_ATTN, B_FC, B_PROJ); }
  // Where things lie in memory
  __device__ __forceinline__ float* qkv() const { return reinterpret_cast<float*>(Memory(args).wide()); }
  __device__ __forceinline__ float* att() const { return reinterpret_cast<float*>(Memory(args).h()); }
  __device__ __forceinline__ float* x1() const { return Memory(args).x1(); }
  __device__ __forceinline__ float* f() const { return Memory(args).partial(); }
  __device__ __forceinline__ float* parts() const { return f() + FEW_ROWS * FFN; }

  // The left operand, or what LayerNorm makes it of
  struct Left {
    const float* rows;
    int pitch;
  };
  __device__ __forceinline__ Left left(int part) const {
    if (matrix == MATRIX_QKV) return {args.x, D};
    if (matrix == MATRIX_FC) return {x1(), D};
    if (matrix == MATRIX_PROJ) return {f() + part * D, FFN};
    if (args.seq_len == 1) return {qkv() + 2 * D, QKV};
    return {att(), D};
  }
  // Rows of width()
  __device__ __forceinline__ float* result(int part) const {
    return matrix == MATRIX_QKV ? qkv() : matrix == MATRIX_ATTN ? x1() : matrix == MATRIX_FC ? f() : parts() + part * (FEW_ROWS * D);
  }
};

}  // namespace exact90
