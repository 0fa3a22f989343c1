/* The honest block on a GPU, plain fp32 without tensor cores, for the device candidates to hide behind.
 *
 * layernorm: one block a token. linear: out = act(a w + bias) + residual, 64 x 64 tiles of out, 4 x 4 a thread, K in
 * steps of 16 through shared memory. attention: one thread a query, 64 queries of one head a block, keys in tiles of
 * 32, online softmax. Any seq_len; limiter: fp32 FMA. OPERAND(v) is what a factor of a product becomes; a candidate
 * that cheats on precision defines it before the include. */
#pragma once

#include <cuda_runtime.h>

#include "../../mutants/layout.h"

#ifndef OPERAND
#define OPERAND(v) (v)
#endif

namespace block {

constexpr int TOKEN_FLOATS = D + QKV + D + FFN;  // h | qkv | x1 | f, per token

inline __device__ float block_sum(float v, float* partial) {
  for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(~0u, v, lane);
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < 8; ++warp) sum += partial[warp];
  return sum;
}

// Grid: tokens; 256 threads, three numbers each.
static __global__ void layernorm(const float* x, const float* gamma, const float* beta, float* h) {
  __shared__ float partial[8];
  const size_t row = static_cast<size_t>(blockIdx.x) * D;
  float v[3], sum = 0, squares = 0;
  for (int i = 0; i < 3; ++i) sum += v[i] = x[row + threadIdx.x + 256 * i];
  const float mean = block_sum(sum, partial) / D;
  for (int i = 0; i < 3; ++i) squares += (v[i] - mean) * (v[i] - mean);
  const float scale = rsqrtf(block_sum(squares, partial) / D + 1e-5f);
  for (int i = 0; i < 3; ++i) {
    const int c = threadIdx.x + 256 * i;
    h[row + c] = (v[i] - mean) * scale * gamma[c] + beta[c];
  }
}

inline __device__ float gelu(float v) { return 0.5f * v * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v))); }

// Grid: (n / 64, ceil(m / 64)); 256 threads. n is a multiple of 64, k of 16. A residual of nullptr is none.
template <bool GELU>
static __global__ void linear(const float* a, const float* w, const float* bias, const float* residual, float* out,
                              int m, int n, int k) {
  __shared__ float a_tile[16][65], w_tile[16][64];
  const int row = blockIdx.y * 64, column = blockIdx.x * 64, ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  float sum[4][4] = {};
  for (int p = 0; p < k; p += 16) {
    for (int i = 0; i < 4; ++i) {
      const int r = threadIdx.x / 16 + 16 * i, c = threadIdx.x % 16;
      a_tile[c][r] = row + r < m ? OPERAND(a[static_cast<size_t>(row + r) * k + p + c]) : 0;
      const int wr = threadIdx.x / 64 + 4 * i, wc = threadIdx.x % 64;
      w_tile[wr][wc] = OPERAND(w[static_cast<size_t>(p + wr) * n + column + wc]);
    }
    __syncthreads();
    for (int q = 0; q < 16; ++q)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) sum[i][j] += a_tile[q][ty + 16 * i] * w_tile[q][tx + 16 * j];
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const int r = row + ty + 16 * i, c = column + tx + 16 * j;
      if (r >= m) continue;
      const size_t at = static_cast<size_t>(r) * n + c;
      const float v = sum[i][j] + bias[c];
      out[at] = (GELU ? gelu(v) : v) + (residual ? residual[at] : 0);
    }
}

// Grid: (ceil(seq_len / 64), HEADS); 64 threads.
static __global__ void attention(const float* qkv, float* att, int seq_len) {
  constexpr int KEYS = 32;
  __shared__ float k_tile[KEYS][HEAD_DIM], v_tile[KEYS][HEAD_DIM];
  const int query = blockIdx.x * 64 + threadIdx.x, head = blockIdx.y * HEAD_DIM;
  float q[HEAD_DIM], sum[HEAD_DIM] = {}, max = -INFINITY, total = 0;
  for (int c = 0; c < HEAD_DIM; ++c) q[c] = query < seq_len ? qkv[static_cast<size_t>(query) * QKV + head + c] / 8 : 0;
  for (int first = 0; first < seq_len; first += KEYS) {
    const int keys = min(KEYS, seq_len - first);
    for (int i = 0; i < keys; ++i) {
      const float* token = qkv + static_cast<size_t>(first + i) * QKV + head + threadIdx.x;
      k_tile[i][threadIdx.x] = token[D];
      v_tile[i][threadIdx.x] = token[2 * D];
    }
    __syncthreads();
    for (int i = 0; i < keys; ++i) {
      float score = 0;
      for (int c = 0; c < HEAD_DIM; ++c) score += q[c] * k_tile[i][c];
      if (score > max) {
        const float keep = expf(max - score);
        max = score;
        total *= keep;
        for (int c = 0; c < HEAD_DIM; ++c) sum[c] *= keep;
      }
      const float p = expf(score - max);
      total += p;
      for (int c = 0; c < HEAD_DIM; ++c) sum[c] += p * v_tile[i][c];
    }
    __syncthreads();
  }
  for (int c = 0; query < seq_len && c < HEAD_DIM; ++c) att[static_cast<size_t>(query) * D + head + c] = sum[c] / total;
}

// Device memory that only grows; one per device that is used.
struct workspace {
  float* at = nullptr;
  int tokens = 0;

  float* reserve(int seq_len) {
    if (seq_len > tokens) {
      cudaFree(at);
      if (cudaMalloc(&at, static_cast<size_t>(seq_len) * TOKEN_FLOATS * sizeof(float)) != cudaSuccess) return nullptr;
      tokens = seq_len;
    }
    return at;
  }
};

// Enqueues the block on `stream`; output may be x.
inline void launch(workspace& memory, const float* x, float* output, const float* w, int seq_len, cudaStream_t stream) {
  float* h = memory.reserve(seq_len);
  if (!h) return;
  const size_t rows = seq_len;
  float *qkv = h + rows * D, *x1 = qkv + rows * QKV, *f = x1 + rows * D;
  const unsigned tiles = (seq_len + 63) / 64;
  layernorm<<<seq_len, 256, 0, stream>>>(x, w + GAMMA1, w + BETA1, h);
  linear<false><<<dim3(QKV / 64, tiles), 256, 0, stream>>>(h, w + W_QKV, w + B_QKV, nullptr, qkv, seq_len, QKV, D);
  attention<<<dim3(tiles, HEADS), 64, 0, stream>>>(qkv, h, seq_len);
  linear<false><<<dim3(D / 64, tiles), 256, 0, stream>>>(h, w + W_ATTN, w + B_ATTN, x, x1, seq_len, D, D);
  layernorm<<<seq_len, 256, 0, stream>>>(x1, w + GAMMA2, w + BETA2, h);
  linear<true><<<dim3(FFN / 64, tiles), 256, 0, stream>>>(h, w + W_FC, w + B_FC, nullptr, f, seq_len, FFN, D);
  linear<false><<<dim3(D / 64, tiles), 256, 0, stream>>>(f, w + W_PROJ, w + B_PROJ, x1, output, seq_len, D, FFN);
}

}  // namespace block
