/* The first kernel of the chain, in three forms: h(filled, 768) fp16 = LayerNorm(x; gamma1, beta1), and statistics = EMPTY (rows x tiles words, through which
   the blocks of the attention projection speak).
   cast_layernorm, from the caller's weights: also packed fp16 = part of the weights, vectors = the small parameters.
   layernorm_vectors, the same where none of the weights is cast, in larger blocks.
   layernorm, for a prepared block: where the attention projection's blocks do without statistics, facts of each row instead.

   grid: last - first cast blocks (one chunk each), ceil(filled / 8) LayerNorm blocks, 10 blocks for the rest; of layernorm the second alone. 256 threads.
   layernorm_vectors: ceil(filled / 16) LayerNorm blocks and 5 for the rest, 512 threads. Where they start two by two, one more if need be, which does nothing.
   Limiter: L2 at 1024 rows (7.1 MB of W_qkv, 3.1 MB of x, all requested at once; cold, device memory), the launch itself for few rows.
   Everything later in the chain may read inputs and write its own outputs as soon as it starts, because this kernel lets its successors start only after
   its own predecessor has ended. */
#include <cuda_fp16.h>
#include "cast/cast_sm90a.cuh"
#include "common/address.cuh"
#include "common/sync_sm90a.cuh"
#include "common/workspace.cuh"
#include "gemm/longest_rows_sm90a.cuh"
#include "gemm/row_facts_sm90a.cuh"
#include "gemm/statistics_sm90a.cuh"
#include "layernorm/layernorm_sm90a.cuh"

struct CastLayernormArgs {
  const float* x;   // (rows, 768), 16-byte aligned
  __half* h;        // (filled, 768)
  float* vectors;   // b_qkv | b_attn | gamma2 | beta2 | b_fc | b_proj
  unsigned long long* statistics;  // (rows, tiles)
  int rows, tiles;
  CastArgs cast;  // of a prepared block: its weights are gamma1 | beta1, the first of the caller's, too
  float* x_copy;  // (rows, 768): x once more, for a call that overwrites it; may be null
  float* output;  // only told to whoever comes behind the chain
  RowFacts* facts;  // (rows); may be null
  float* longest;   // what QKV will tell attention, zeroed here; may be null
  int filled;  // rows of h: behind the last one of x, they are that one again
};

// Up to so many rows W_qkv is still in L2 when the next call comes, unless it is read with evict_first as where other kernels cast: 0.7 to 1.2 us from 512 rows
// on. With more rows (2048) there is no room for it.
constexpr int STAYS_ROWS = 1280;

constexpr int VECTOR_BLOCKS = 10;  // few: the product behind reads its weights early where there is no block of this kernel in the way
static_assert(VECTOR_BLOCKS * 1024 >= VECTORS_LEN && VECTOR_BLOCKS % 2 == 0 && VECTOR_BETA1 == VECTOR_GAMMA1 + D);

// Where a thread of the block has seen something unusual, all of them: an atomic for the block. A call, or what usually is skipped would take registers.
__device__ __noinline__ void raise_chunk(Observation seen, unsigned* alarms, int matrix) {
  __shared__ unsigned of_block[ALARMS];
  if (threadIdx.x < ALARMS) of_block[threadIdx.x] = 0;
  __syncthreads();
  seen.report(of_block, matrix, 512.f);
  __syncthreads();
  if (threadIdx.x >= ALARMS || of_block[threadIdx.x] == 0) return;
  if (threadIdx.x == ALARM_TINY)
    atomicOr(alarms + ALARM_TINY, of_block[ALARM_TINY]);
  else
    atomicMax(alarms + threadIdx.x, of_block[threadIdx.x]);
}

// What a block has seen of a chunk, 512 weights a warp. That all 16 of a thread are small happens next to never, so it is asked for here already.
__device__ __forceinline__ void report_chunk(const Observation& seen, unsigned* alarms, int matrix) {
  const float squares = warp_sum(seen.squares);
  const bool usual = TINY_WEIGHT <= seen.largest && seen.largest <= USUAL_WEIGHT && squares <= 512 * usual_squares(512.f);
  if (__syncthreads_or(!usual)) raise_chunk(seen, alarms, matrix);
}

// A row for each warp of a block, and with FACTS what is told of it. Then the successors start here, behind the loads of x.
template <bool FACTS, int THREADS = 256>
__device__ __forceinline__ void layernorm_rows(const CastLayernormArgs& args, int block, bool aligned) {
  __shared__ float4 affine[2 * D / 4];
  const int at = block * (THREADS / 32) + static_cast<int>(threadIdx.x / 32);
  const size_t row = min(at, args.rows - 1), to = min(at, args.filled - 1);  // the last one by all warps that are left over
  LayernormRow one;
  one.load(args.x + row * D);
  if (FACTS) pdl_launch();
  const bool tells = FACTS && args.facts != nullptr;
  // Asked for here: behind the sums, where the compiler would put it, the end of the kernel waits for it.
  const float2 of_residual = tells ? load_here_2(args.vectors + VECTOR_RESIDUAL_FACTS) : make_float2(0.f, 0.f);
  fetch_affine<THREADS>(shared_address(affine), args.cast.weights + GAMMA1, aligned);
  if (threadIdx.x % 32 < args.tiles) args.statistics[row * args.tiles + threadIdx.x % 32] = EMPTY;
  if (block == 0 && args.longest != nullptr && threadIdx.x < LONGEST_ROWS) args.longest[longest_at(threadIdx.x)] = 0;
  if (args.x_copy != nullptr) one.store(args.x_copy + row * D);
  const float2 moments = one.normalise();
  if (tells && threadIdx.x % 32 == 0) args.facts[row] = row_facts(moments.x, moments.y, {of_residual.x, of_residual.y});
  copy_async_wait();
  __syncthreads();
  one.store_scaled(shared_address(affine), args.h + to * D);
}

// Block `block` of those that copy the small parameters, four a thread.
template <int THREADS>
__device__ __forceinline__ void copy_vectors(const CastLayernormArgs& args, int block) {
  if (block == 0 && threadIdx.x == 0 && args.cast.alarms != nullptr) {
    args.cast.alarms[ALARMS_WATCHED] = 0;
    args.cast.alarms[ALARMS_QKV_READ] = 0;
    const void** const buffers = reinterpret_cast<const void**>(args.cast.alarms + ALARMS_BUFFERS);
    buffers[0] = args.x_copy != nullptr ? args.x_copy : args.x;
    buffers[1] = args.output;
    buffers[2] = args.cast.weights;
  }
  float v[4];
#pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i = block * (4 * THREADS) + THREADS * u + threadIdx.x;
    v[u] = i < VECTORS_LEN ? args.cast.weights[vector_source(i)] : 0.f;
  }
  // gamma1 and beta1, the last of them, are read where they are.
#pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i = block * (4 * THREADS) + THREADS * u + threadIdx.x;
    if (i < VECTOR_GAMMA1) args.vectors[i] = v[u];
    if (i < VECTORS_LEN && args.cast.alarms != nullptr) watch_vector(args.cast.alarms, vector_source(i), v[u]);  // all of a warp or none
  }
}

extern "C" __global__ void __launch_bounds__(256, 5) cast_layernorm(const CastLayernormArgs args) {
  pdl_wait();
  pdl_launch();
  const int chunks = args.cast.last - args.cast.first, norm_blocks = (args.filled + 7) / 8;
  const bool aligned = aligned_16(args.cast.weights);
  int block = blockIdx.x;
  if (block < chunks) {
    const int chunk = args.cast.first + block;
    const float* from = args.cast.weights + cast_source(chunk) + 4 * threadIdx.x;
    __half* to = cast_target(args.cast, chunk) + 4 * threadIdx.x;
    float4 v[4];
    if (aligned && args.rows <= STAYS_ROWS) {
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] = __ldg(reinterpret_cast<const float4*>(from + 1024 * i));
    } else {
      const uint64_t policy = evict_first_policy();
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] = aligned ? load_once_4(from + 1024 * i, policy) : load_unaligned_4(from + 1024 * i);
    }
    CastWatch watch;
#pragma unroll
    for (int i = 0; i < 4; i++) watch.cast(v[i], to + 1024 * i);
    watch.gather(16);
    if (args.cast.alarms != nullptr) report_chunk(watch.seen, args.cast.alarms, cast_matrix(chunk));
  }
  // No branch returns, so that ptxas lays them out in this order: what most blocks run comes first, without a jump to code that is cold.
  block -= chunks;
  if (block >= 0 && block < norm_blocks) layernorm_rows<false>(args, block, aligned);
  block -= norm_blocks;
  if (block < 0) return;
  copy_vectors<256>(args, block);
}

// Twice as many rows a block: the multiprocessors without any are those where the product behind begins early.
extern "C" __global__ void __launch_bounds__(512, 2) layernorm_vectors(const CastLayernormArgs args) {
  pdl_wait();
  pdl_launch();
  const int norm_blocks = (args.filled + 15) / 16, block = blockIdx.x;
  if (block < norm_blocks)
    layernorm_rows<false, 512>(args, block, aligned_16(args.cast.weights));
  else
    copy_vectors<512>(args, block - norm_blocks);
}

// The same for weights that are prepared, with nothing else in the way: behind the wait x is asked for by the eleventh instruction, not behind a jump over the
// cast's, and all of them are cold. -0.2 us from 64 to 2048 rows (H200).
extern "C" __global__ void __launch_bounds__(256, 5) layernorm(const CastLayernormArgs args) {
  pdl_wait();
  layernorm_rows<true>(args, blockIdx.x, true);
}
