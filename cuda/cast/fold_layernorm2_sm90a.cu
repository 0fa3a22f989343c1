/* Of a prepared block, where it has been cast: W_fc'(k, n) fp16 = gamma2(k) W_fc(k, n) less its mean over k, b_fc' = b_fc + beta2 W_fc, gamma2' =
   1, beta2' = 0: with them the block is the same. And what rows of x1 have in common (gemm/row_facts_sm90a.cuh).
   grid: 96 blocks of 32 columns, a cluster of eight for what is common, and 24 that look at 32 rows of W_attn each; 1024 threads, as 32 x 32. Limiter: what
   the cluster reads. */
#include <cuda_fp16.h>
#include "common/address.cuh"
#include "common/alarm.cuh"
#include "common/cluster_sm90a.cuh"
#include "common/reduce.cuh"
#include "common/workspace.cuh"
#include "dims.h"
#include "gemm/row_facts_sm90a.cuh"

constexpr int SIDE = 32, FACT_BLOCKS = 8;
__device__ int row() { return threadIdx.x / SIDE; }
__device__ int column() { return threadIdx.x % SIDE; }
static_assert(FFN % (SIDE * FACT_BLOCKS) == 0 && D % (SIDE * FACT_BLOCKS) == 0);

// Of what threads put into a column of scratch, to all lanes of that number; in an order that is always the same
__device__ float sum_below(float v, float (&scratch)[SIDE][SIDE + 1], int to_row, int to_column) {
  __syncthreads();
  scratch[to_row][to_column] = v;
  __syncthreads();
  float sum = 0.f;
  for (int i = 0; i < SIDE; i++) sum += scratch[i][column()];
  return sum;
}

// Of the threads' in this column
__device__ float column_sum(float v, float (&scratch)[SIDE][SIDE + 1]) { return sum_below(v, scratch, row(), column()); }

// Of a row's threads, to the lane of that number in every warp
__device__ float row_sum(float v, float (&scratch)[SIDE][SIDE + 1]) { return sum_below(v, scratch, column(), row()); }

// Of all threads', to all
__device__ float block_sum(float v, float (&scratch)[SIDE][SIDE + 1]) {
  return warp_sum(column_sum(v, scratch));
}

// A row for each warp. Rows whose columns have something in common move all of a row of x1, of which row_facts knows nothing.
__device__ void watch_shift(const float* rows, unsigned* alarms, float (&scratch)[SIDE][SIDE + 1]) {
  float w[D / SIDE], mean = 0.f, variance = 0.f;
#pragma unroll
  for (int i = 0; i < D / SIDE; i++) {
    w[i] = rows[row() * D + column() + SIDE * i];
    mean += w[i];
  }
  mean = warp_sum(mean) * (1.f / D);
#pragma unroll
  for (int i = 0; i < D / SIDE; i++) variance = fmaf(w[i] - mean, w[i] - mean, variance);
  variance = warp_sum(variance) * (1.f / D);
  const float shift = D * mean * mean;
  const bool first = column() == 0;
  if (first && shift != 0.f) raise(alarms, ALARM_SHIFT, shift / variance, USUAL_ROW_SHIFT);
  const float variances = block_sum(first ? variance : 0.f, scratch), shifts = block_sum(first ? shift : 0.f, scratch);
  if (threadIdx.x == 0 && shifts != 0.f) raise(alarms, ALARM_SHIFT, shifts / variances, USUAL_SHIFT);
}

// By the cluster, a part of V's columns in each block: what attention adds to a row of x1 for a usual row of LN1, and what b_attn does
__device__ void find_residual_facts(const float* weights, float* vectors, float (&scratch)[SIDE][SIDE + 1]) {
  __shared__ float of_blocks[FACT_BLOCKS];
  __shared__ uint64_t arrived;
  const int rank = cluster_rank(), thread = threadIdx.x;
  const uint32_t bar = shared_address(&arrived);
  if (thread == 0) {
    mbarrier_init(bar, 1);
    fence_mbarrier_init();
  }
  cluster_arrive();
  float added = 0.f;  // lane by lane: what column n of V, and with it row n of W_attn add
#pragma unroll 1
  for (int first = rank * SIDE; first < D; first += FACT_BLOCKS * SIDE) {
    const int n = first + column();
    float v = 0.f, o = 0.f;
#pragma unroll
    for (int i = 0; i < D / SIDE; i++) {
      const int k = row() + SIDE * i;
      const float gamma = weights[GAMMA1 + k], beta = weights[BETA1 + k], a = weights[W_QKV + k * QKV + 2 * D + n];
      const float b = weights[W_ATTN + (first + row()) * D + column() + SIDE * i];
      v = fmaf(fmaf(gamma, gamma, beta * beta) * a, a, v);
      o = fmaf(b, b, o);
    }
    const float bias = weights[B_QKV + 2 * D + n];
    added = fmaf(fmaf(bias, bias, column_sum(v, scratch)), row_sum(o, scratch), added);
  }
  added = block_sum(row() == 0 ? added : 0.f, scratch);
  cluster_wait();
  if (thread == 0 && rank == 0) mbarrier_expect(bar, sizeof of_blocks);
  if (thread == 0) cluster_store(cluster_address(shared_address(of_blocks + rank), 0), added, cluster_address(bar, 0));
  if (rank != 0) return;
  const float bias = thread < D ? weights[B_ATTN + thread] : 0.f, mean = block_sum(bias, scratch) * (1.f / D);
  const float variance = block_sum(thread < D ? (bias - mean) * (bias - mean) : 0.f, scratch) * (1.f / D);
  if (thread < D) vectors[VECTOR_GAMMA2 + thread] = 1.f, vectors[VECTOR_BETA2 + thread] = 0.f;
  cluster_wait_or_fault(bar, 0);
  float sum = 0.f;
  for (const float part : of_blocks) sum += part;
  if (thread == 0) *reinterpret_cast<ResidualFacts*>(vectors + VECTOR_RESIDUAL_FACTS) = {mean, fmaf(sum, 1.f / D, variance)};
}

// 32 columns of W_fc
__device__ void fold(const float* weights, __half* packed, float* vectors, float (&scratch)[SIDE][SIDE + 1]) {
  const int n = blockIdx.x * SIDE + column();
  float w[D / SIDE], scaled = 0.f, shifted = 0.f;
#pragma unroll
  for (int i = 0; i < D / SIDE; i++) {
    const int k = row() + SIDE * i;
    const float from = weights[W_FC + k * FFN + n];
    w[i] = weights[GAMMA2 + k] * from;
    scaled += w[i];
    shifted = fmaf(weights[BETA2 + k], from, shifted);
  }
  const float mean = column_sum(scaled, scratch) * (1.f / D);
  shifted = column_sum(shifted, scratch);
  if (row() == 0) vectors[VECTOR_B_FC + n] = weights[B_FC + n] + shifted;
#pragma unroll
  for (int i = 0; i < D / SIDE; i++) packed[PACKED_FC + (row() + SIDE * i) * FFN + n] = __float2half_rn(w[i] - mean);
}

extern "C" __global__ void __cluster_dims__(FACT_BLOCKS) __launch_bounds__(SIDE * SIDE)
    fold_layernorm2(const float* weights, __half* packed, float* vectors, unsigned* alarms) {
  __shared__ float scratch[SIDE][SIDE + 1];
  const int block = static_cast<int>(blockIdx.x) - FFN / SIDE;
  if (block < 0)
    fold(weights, packed, vectors, scratch);
  else if (block < FACT_BLOCKS)
    find_residual_facts(weights, vectors, scratch);
  else
    watch_shift(weights + W_ATTN + (block - FACT_BLOCKS) * SIDE * D, alarms, scratch);
}
