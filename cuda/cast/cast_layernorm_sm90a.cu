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

// The six small parameters in the order of `vectors`
__device__ __forceinline__ float small_parameter(const float* weights, int i) {
  if (i < QKV) return weights[B_QKV + i];
  if (i < QKV + 3 * D) return weights[B_ATTN + i - QKV];  // b_attn, gamma2, beta2 lie together
  if (i < QKV + 3 * D + FFN) return weights[B_FC + i - QKV - 3 * D];
  return weights[B_PROJ + i - QKV - 3 * D - FFN];
}
constexpr int VECTORS = QKV + 4 * D + FFN;
static_assert(VECTORS + 2 * D <= 12 * 1024, "twelve blocks look at them");

// By the index in `vectors`, behind which stand gamma1 and beta1. Residual biases cannot overflow anything.
__device__ __forceinline__ void watch_vector(unsigned* alarms, int i, float v) {
  v = fabsf(v);
  if (i < QKV) return raise(alarms, ALARM_B_QKV, v, USUAL_BIAS);
  i -= QKV + D;
  if (i < 0) return;
  if (i < D) return raise(alarms, ALARM_GAMMA2, v, USUAL_GAMMA);
  if (i < 2 * D) return raise(alarms, ALARM_BETA2, v, USUAL_BETA);
  i -= 2 * D;
  if (i < FFN) return raise(alarms, ALARM_B_FC, v, USUAL_BIAS);
  i -= FFN + D;
  if (i < 0) return;
  raise(alarms, i < D ? ALARM_GAMMA1 : ALARM_BETA1, v, i < D ? USUAL_GAMMA : USUAL_BETA);
}

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
#pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i = block * 1024 + 256 * u + threadIdx.x;
    if (i >= VECTORS + 2 * D) break;
    const float v = i < VECTORS ? small_parameter(args.cast.weights, i) : args.cast.weights[GAMMA1 + i - VECTORS];
    if (i < VECTORS) args.vectors[i] = v;
    if (args.cast.alarms != nullptr) watch_vector(args.cast.alarms, i, v);
  }
}
