/* Weights prepared once: fp16, in the very order in which the lanes take them as B operands: whole runs of memory on
   the way in, one 8-byte read for each fragment on the way out.

   A matrix (K, N) is kept as [N / 8 column tiles][K / 16 steps][32 lanes][4 halves]; lane (g, t) of a step has column 8
   tile + g and the rows that stream.cuh gives it for the matrix's GROUP. The vectors follow in fp32. */
#pragma once

#include "common/pack.cuh"
#include "common/sync_sm90a.cuh"
#include "small/layout.cuh"
#include "small/pace.cuh"
#include "small/ptx.cuh"

namespace small {

struct Prepared {
  __half qkv[D * QKV], attn[D * D], fc[D * FFN], proj[FFN * D];
  float b_qkv[QKV], b_attn[D], norm2[2 * D], b_fc[FFN], b_proj[D], norm1[2 * D];
  __half merged[D * D];
  float of_merged[2 * D];  // of each tile the 8 biases, then the 8 scales
};

struct PackedWeights {
  using Element = __half;
  static constexpr bool FP32 = false, WATCHED = false;
  template <class S>
  static constexpr bool IN_PAIRS = false;
  static constexpr int ARRIVALS = 1;
  struct Matrices {
    const Prepared* prepared;
  };

  static __device__ __forceinline__ const __half* matrix(const Matrices& m, Qkv) { return m.prepared->qkv; }
  static __device__ __forceinline__ const __half* matrix(const Matrices& m, Merged) { return m.prepared->merged; }
  static __device__ __forceinline__ const __half* matrix(const Matrices& m, Attn) { return m.prepared->attn; }
  static __device__ __forceinline__ const __half* matrix(const Matrices& m, Fc) { return m.prepared->fc; }
  static __device__ __forceinline__ const __half* matrix(const Matrices& m, Proj) { return m.prepared->proj; }

  static __device__ __forceinline__ void announce(const Matrices&) {}

  template <class S, class P>
  static __device__ __forceinline__ void bring(__half* to, float* bias_to, const Matrices& m, const float* bias,
                                               int slice, uint64_t* bar, P& pace) {
    constexpr int ROWS = S::PART_ROWS, VECTORS = std::is_same_v<typename S::Matrix, Merged> ? 2 : 1;
    const __half* const from = matrix(m, typename S::Matrix{}) + (S::column(slice) * S::Matrix::K + S::row(slice) * 8);
#pragma unroll P::UNROLL
    for (int i = 0; i < S::PARTS; ++i) {
      pace.wait(bar + i);
      if (!elect_one()) continue;
      barrier_expect(bar + i, (ROWS * 2 + (i == 0) * 4 * VECTORS) * S::WIDTH);
#pragma unroll
      for (int tile = 0; tile < S::TILES; ++tile)
        copy_run(to + (tile * S::ROWS + i * ROWS) * 8, from + (tile * S::Matrix::K + i * ROWS) * 8, ROWS * 16, bar + i);
      if (i == 0) copy_run(bias_to, bias + S::column(slice) * VECTORS, S::WIDTH * 4 * VECTORS, bar);
    }
  }
  static __device__ __forceinline__ void bring_norm(float* to, const float* from, uint64_t* bar) {
    if (!elect_one()) return;
    barrier_expect(bar, 2 * D * 4);
    copy_run(to, from, 2 * D * 4, bar);
  }

  template <class S>
  static __device__ __forceinline__ uint2 fragment(const __half* slice, int step, int tile) {
    return *reinterpret_cast<const uint2*>(slice + (tile * (S::ROWS / 16) + step) * 128 + threadIdx.x % 32 * 4);
  }
  static __device__ __forceinline__ float4 vector(const float* p) { return load_early(p); }
};

/* One matrix of Prepared from the caller's. */
template <class M>
__device__ __forceinline__ void pack_matrix(__half* to, const float* weights) {
  constexpr int STEPS_OF_GROUP = M::GROUP / 4;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < M::K * M::N / 4; i += gridDim.x * blockDim.x) {
    const int lane = i % 32, g = lane / 4, t = lane % 4;
    const int step = i / 32 % (M::K / 16), tile = i / 32 / (M::K / 16);
    const int row = step / STEPS_OF_GROUP * 4 * M::GROUP + M::GROUP * t + step % STEPS_OF_GROUP * 4;
    const float* w = weights + M::OFFSET + static_cast<size_t>(row) * M::N + 8 * tile + g;
    reinterpret_cast<uint2*>(to)[i] = pack_half4(make_float4(w[0], w[M::N], w[2 * M::N], w[3 * M::N]));
  }
}

}  // namespace small
