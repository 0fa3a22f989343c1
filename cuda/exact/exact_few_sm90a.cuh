/* The exact block for up to 16 rows: fp32 multiply-adds straight from the fp32 weights, which are read once.

   No scales, no tensor cores: 7 million multiply-adds a row are little. A unit of work is 8 columns and all of K; a pair of
   lanes reads the 32 bytes of one k, so a pass of the block takes 192 of them, and all loads of a stage leave before the
   grid barrier in front of it. Every block normalizes all rows, and does all attention, for itself: that costs less than
   one more barrier. Four stages: LN1 and QKV; attention, W_attn and residual; LN2, FC and GELU; proj and residual.
   All 384 threads. Limiter: the latency of barriers and loads one after the other, then L2. */
#pragma once

#include "common/reduce.cuh"
#include "exact/exact_memory_sm90a.cuh"

namespace exact90 {

constexpr int FEW_ROWS = 16;
constexpr int UNIT = 8;                    // columns
constexpr int PASS = THREADS / 2;          // k of a pass
constexpr int FEW_WARPS = THREADS / 32;
constexpr int QKV_PITCH = QKV + 4;         // floats of a row in shared memory, without bank conflicts between keys
constexpr int FEW_SUMS = FEW_ROWS * (QKV_PITCH + D);  // floats in front of the sums
constexpr int MAX_BATCH = 3;
static_assert(FFN <= QKV_PITCH + D, "of the stages, attention needs most");
static_assert((FEW_SUMS + MAX_BATCH * FEW_WARPS * FEW_ROWS * UNIT) * 4 <= SHARED_BYTES - 1024, "fits");

/* BATCH units of a block at a time, block, block + blocks, .. : their weights, asked for as early as possible. */
template <int RT, int BATCH, int K>
struct FewColumns {
  static constexpr int PASSES = K / PASS;
  float4 w[BATCH][PASSES];
  float bias;  // of the column that this thread finishes

  static __device__ __forceinline__ int unit(int first, int j) { return first + j * crew.size; }

  __device__ __forceinline__ void fetch(const float* weights, const float* biases, int width, bool aligned, int first) {
    const int thread = thread_index(), k = thread / 2, column = thread % 2 * 4;
#pragma unroll
    for (int j = 0; j < BATCH; j++) {
      const bool exists = unit(first, j) < width / UNIT;
      const float* from = weights + static_cast<size_t>(k) * width + unit(first, j) * UNIT + column;
#pragma unroll
      for (int i = 0; i < PASSES; i++, from += PASS * width) {
        if (!exists)
          w[j][i] = make_float4(0.f, 0.f, 0.f, 0.f);
        else if (aligned)
          w[j][i] = load_4(from);
        else
          w[j][i] = make_float4(load(from), load(from + 1), load(from + 2), load(from + 3));
      }
    }
    const int mine = unit(first, thread / 128);
    bias = thread / 128 < BATCH && mine < width / UNIT ? load(biases + mine * UNIT + thread % UNIT) : 0.f;
  }

  // a: (RT, K) in shared memory. finish(row, column, sum + bias) for every element of the units.
  template <class Finish>
  __device__ __forceinline__ void multiply(const float* a, float* sums, int rows, int width, int first, Finish finish) const {
    const int thread = thread_index(), lane = thread % 32, warp = thread / 32;
#pragma unroll
    for (int j = 0; j < BATCH; j++) {
      float v[4 * RT];
#pragma unroll
      for (int q = 0; q < 4 * RT; q++) v[q] = 0.f;
#pragma unroll
      for (int i = 0; i < PASSES; i++)
#pragma unroll
        for (int r = 0; r < RT; r++) {
          const float x = a[r * K + i * PASS + thread / 2];
          v[4 * r] = fmaf(x, w[j][i].x, v[4 * r]);
          v[4 * r + 1] = fmaf(x, w[j][i].y, v[4 * r + 1]);
          v[4 * r + 2] = fmaf(x, w[j][i].z, v[4 * r + 2]);
          v[4 * r + 3] = fmaf(x, w[j][i].w, v[4 * r + 3]);
        }
      // Over the 16 lanes of the same columns: each step halves what a lane has left, as long as it can.
      int n = 4 * RT, q = 0;
      bool speaks = true;
#pragma unroll
      for (int lanes = 16; lanes >= 2; lanes /= 2) {
        const bool upper = lane & lanes;
        if (n > 1) {
          n /= 2;
#pragma unroll
          for (int i = 0; i < 2 * RT; i++)
            if (i < n) {
              const float other = __shfl_xor_sync(~0u, upper ? v[i] : v[i + n], lanes);
              v[i] = (upper ? v[i + n] : v[i]) + other;
            }
          q += upper ? n : 0;
        } else {
          v[0] += __shfl_xor_sync(~0u, v[0], lanes);
          speaks &= !upper;
        }
      }
      float* to = sums + (j * FEW_WARPS + warp) * (RT * UNIT) + lane % 2 * 4;
      if (speaks)
#pragma unroll
        for (int i = 0; i < 4 * RT; i++)
          if (i < n) to[(q + i) / 4 * UNIT + (q + i) % 4] = v[i];
    }
    __syncthreads();
    const int j = thread / 128, row = thread % 128 / UNIT, column = unit(first, j) * UNIT + thread % UNIT;
    if (j < BATCH && row < rows && column < width) {
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < FEW_WARPS; i++) sum += sums[(j * FEW_WARPS + i) * (RT * UNIT) + row * UNIT + thread % UNIT];
      finish(row, column, sum + bias);
    }
    __syncthreads();
  }
};

// One warp a row: h (rows, D) in shared memory = LN(from) gamma + beta
__device__ __forceinline__ void few_norm(const float* from, const float* gamma, const float* beta, float* h, int rows) {
  const int lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < rows; row += FEW_WARPS) {
    float v[D / 32], sum = 0.f, squares = 0.f;
#pragma unroll
    for (int i = 0; i < D / 32; i++) v[i] = load(from + row * D + 32 * i + lane);
#pragma unroll
    for (int i = 0; i < D / 32; i++) sum += v[i];
    const float mean = warp_sum(sum) * (1.f / D);
#pragma unroll
    for (int i = 0; i < D / 32; i++) squares = fmaf(v[i] - mean, v[i] - mean, squares);
    const float rstd = 1.f / sqrtf(warp_sum(squares) * (1.f / D) + LN_EPS);
#pragma unroll
    for (int i = 0; i < D / 32; i++)
      h[row * D + 32 * i + lane] = fmaf((v[i] - mean) * rstd, load(gamma + 32 * i + lane), load(beta + 32 * i + lane));
  }
}

// One warp a row and head; a lane has a key and half of the head's columns, then two columns. qkv: rows of QKV_PITCH.
__device__ __forceinline__ void few_attention(const float* qkv, float* att, int rows, int seq_len, bool causal) {
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x / 32; i < rows * HEADS; i += FEW_WARPS) {
    const int row = i / HEADS, head = i % HEADS, begin = row / seq_len * seq_len;
    const int keys = causal ? row - begin + 1 : min(seq_len, rows - begin), key = lane % 16;
    const float4* q = reinterpret_cast<const float4*>(qkv + row * QKV_PITCH + head * HEAD_DIM + lane / 16 * 32);
    const float4* k = reinterpret_cast<const float4*>(qkv + min(begin + key, rows - 1) * QKV_PITCH + D + head * HEAD_DIM + lane / 16 * 32);
    float s = 0.f;
#pragma unroll
    for (int c = 0; c < 8; c++) s = fmaf(q[c].x, k[c].x, fmaf(q[c].y, k[c].y, fmaf(q[c].z, k[c].z, fmaf(q[c].w, k[c].w, s))));
    s = (s + __shfl_xor_sync(~0u, s, 16)) * 0.125f;
    float most = key < keys ? s : -INFINITY;
#pragma unroll
    for (int lanes = 8; lanes; lanes /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
    const float p = key < keys ? expf(s - most) : 0.f;
    float sum = p;
#pragma unroll
    for (int lanes = 8; lanes; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    float x = 0.f, y = 0.f;
    for (int j = 0; j < keys; j++) {
      const float share = __shfl_sync(~0u, p, j);
      const float2 v = *reinterpret_cast<const float2*>(qkv + (begin + j) * QKV_PITCH + 2 * D + head * HEAD_DIM + 2 * lane);
      x = fmaf(share, v.x, x);
      y = fmaf(share, v.y, y);
    }
    *reinterpret_cast<float2*>(att + row * D + head * HEAD_DIM + 2 * lane) = make_float2(x / sum, y / sum);
  }
}

template <int RT>
__device__ __forceinline__ void few_rows(const ExactArgs& args, float* shared) {
  const Memory memory(args);
  GridBarrier grid(args.memory, crew.rank, crew.size);
  const float* weights = args.phases & EXACT_CAST ? args.weights : memory.plain();
  const bool aligned = reinterpret_cast<size_t>(weights) % 16 == 0;
  const int rows = args.rows, block = crew.rank, blocks = crew.size;
  float *qkv = reinterpret_cast<float*>(memory.wide()), *x1 = memory.x1(), *f = memory.partial();
  float* sums = shared + FEW_SUMS;
  const auto meet = [&] {
    __syncthreads();
    if (threadIdx.x == 0) grid.meet();
    __syncthreads();
  };
  // The sums of further batches, where the grid is smaller than usual, are asked for when their turn comes.
  FewColumns<RT, 3, D> qkv_columns;
  qkv_columns.fetch(weights + W_QKV, weights + B_QKV, QKV, aligned, block);
  few_norm(args.x, weights + GAMMA1, weights + BETA1, shared, rows);
  __syncthreads();
  for (int first = block; first < QKV / UNIT; first += 3 * blocks) {
    if (first != block) qkv_columns.fetch(weights + W_QKV, weights + B_QKV, QKV, aligned, first);
    qkv_columns.multiply(shared, sums, rows, QKV, first, [&](int row, int column, float v) { __stcg(qkv + row * QKV + column, v); });
  }

  FewColumns<RT, 1, D> attn_columns;
  attn_columns.fetch(weights + W_ATTN, weights + B_ATTN, D, aligned, block);
  meet();
  if (block < D / UNIT) {
    float* att = shared + FEW_ROWS * QKV_PITCH;
    for (int i = threadIdx.x; i < rows * (QKV / 4); i += THREADS)
      *reinterpret_cast<float4*>(shared + i / (QKV / 4) * QKV_PITCH + i % (QKV / 4) * 4) = load_4(qkv + 4 * i);
    __syncthreads();
    few_attention(shared, att, rows, args.seq_len, args.causal);
    __syncthreads();
    for (int first = block; first < D / UNIT; first += blocks) {
      if (first != block) attn_columns.fetch(weights + W_ATTN, weights + B_ATTN, D, aligned, first);
      attn_columns.multiply(att, sums, rows, D, first,
                            [&](int row, int column, float v) { __stcg(x1 + row * D + column, load(args.x + row * D + column) + v); });
    }
  }

  FewColumns<RT, 3, D> fc_columns;
  fc_columns.fetch(weights + W_FC, weights + B_FC, FFN, aligned, block);
  meet();
  few_norm(x1, weights + GAMMA2, weights + BETA2, shared, rows);
  __syncthreads();
  for (int first = block; first < FFN / UNIT; first += 3 * blocks) {
    if (first != block) fc_columns.fetch(weights + W_FC, weights + B_FC, FFN, aligned, first);
    fc_columns.multiply(shared, sums, rows, FFN, first,
                        [&](int row, int column, float v) { __stcg(f + row * FFN + column, gelu_exact(v)); });
  }

  FewColumns<RT, 1, FFN> proj_columns;
  proj_columns.fetch(weights + W_PROJ, weights + B_PROJ, D, aligned, block);
  meet();
  if (block < D / UNIT) {
    for (int i = threadIdx.x; i < rows * (FFN / 4); i += THREADS) *reinterpret_cast<float4*>(shared + 4 * i) = load_4(f + 4 * i);
    __syncthreads();
    for (int first = block; first < D / UNIT; first += blocks) {
      if (first != block) proj_columns.fetch(weights + W_PROJ, weights + B_PROJ, D, aligned, first);
      proj_columns.multiply(shared, sums, rows, D, first,
                            [&](int row, int column, float v) { args.output[row * D + column] = load(x1 + row * D + column) + v; });
    }
  }
}

}  // namespace exact90
