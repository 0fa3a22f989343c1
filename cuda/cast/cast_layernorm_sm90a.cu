/* The first kernel of the chain: h(rows, 768) fp16 = LayerNorm(x; gamma1, beta1), packed fp16 = part of the weights, vectors = the small parameters,
   statistics = EMPTY (rows x tiles words, through which the blocks of the attention projection speak).

   grid: ceil(rows / 8) LayerNorm blocks, last - first cast blocks (one chunk each), 12 blocks for the rest; 256 threads, no shared memory.
   Limiter: device memory at 1024 rows (7.1 MB of W_qkv, 3.1 MB of x, all requested at once), the launch itself for few rows.
   Everything later in the chain may read inputs and write its own outputs as soon as it starts, because this kernel lets its successors start only after
   its own predecessor has ended. */
#include <cuda_fp16.h>
#include "cast/cast_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "gemm/statistics_sm90a.cuh"
#include "layernorm/layernorm_sm90a.cuh"

struct CastLayernormArgs {
  const float* x;   // (rows, 768), 16-byte aligned
  __half* h;        // (rows, 768)
  float* vectors;   // b_qkv | b_attn | gamma2 | beta2 | b_fc | b_proj
  unsigned long long* statistics;  // (rows, tiles)
  int rows, tiles;
  CastArgs cast;
  float* x_copy;  // (rows, 768): x once more, for a call that overwrites it; may be null
};

// 9.7.9.8 ld with an L2 policy
__device__ __forceinline__ float4 load_once_4(const float* p, uint64_t policy) {
  float4 v;
  asm volatile("ld.global.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p), "l"(policy));
  return v;
}

static_assert(VECTORS_LEN <= 12 * 1024, "twelve blocks look at them");

// One row, by a warp
__device__ __forceinline__ void copy_row(const float* from, float* to) {
#pragma unroll
  for (int i = 4 * (threadIdx.x % 32); i < D; i += 128) *reinterpret_cast<float4*>(to + i) = *reinterpret_cast<const float4*>(from + i);
}

extern "C" __global__ void __launch_bounds__(256, 5) cast_layernorm(const CastLayernormArgs args) {
  pdl_wait();
  pdl_launch();
  const int chunks = args.cast.last - args.cast.first, norm_blocks = (args.rows + 7) / 8;
  const bool aligned = aligned_16(args.cast.weights);
  int block = blockIdx.x;
  if (block < chunks) {
    const int chunk = args.cast.first + block;
    const float* from = args.cast.weights + cast_source(chunk) + 4 * threadIdx.x;
    __half* to = args.cast.packed + chunk * CAST_CHUNK + 4 * threadIdx.x;
    const uint64_t policy = evict_first_policy();
    float4 v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = aligned ? load_once_4(from + 1024 * i, policy) : load_unaligned_4(from + 1024 * i);
    Observation seen;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      seen.add(v[i]);
      store_half4(to + 1024 * i, v[i]);
    }
    if (args.cast.alarms != nullptr) seen.report(args.cast.alarms, cast_matrix(chunk), 512.f);
    return;
  }
  block -= chunks;
  if (block < norm_blocks) {
    const int row = block * 8 + threadIdx.x / 32;
    if (row >= args.rows) return;
    if (threadIdx.x % 32 < args.tiles) args.statistics[static_cast<size_t>(row) * args.tiles + threadIdx.x % 32] = EMPTY;
    layernorm_row(args.x + static_cast<size_t>(row) * D, args.cast.weights + GAMMA1, args.cast.weights + BETA1, aligned, args.h + static_cast<size_t>(row) * D);
    if (args.x_copy != nullptr) copy_row(args.x + static_cast<size_t>(row) * D, args.x_copy + static_cast<size_t>(row) * D);
    return;
  }
  block -= norm_blocks;
  if (block == 0 && threadIdx.x == 0 && args.cast.alarms != nullptr) args.cast.alarms[ALARMS_WATCHED] = 0;
  const int first = block * 1024 + threadIdx.x;
  float v[4];  // all asked for before one is looked at
#pragma unroll
  for (int u = 0; u < 4; u++)
    if (first + 256 * u < VECTORS_LEN) v[u] = args.cast.weights[vector_source(first + 256 * u)];
#pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i = first + 256 * u;
    if (i >= VECTORS_LEN) break;
    if (i < VECTOR_GAMMA1) args.vectors[i] = v[u];  // LN1 reads its own from the weights
    if (args.cast.alarms != nullptr) observe_vector(args.cast.alarms, i, v[u]);
  }
}
