/* The weights as the portable kernels read them: the four matrices cast to fp16 in `packed`, the vectors copied to
   `vectors`.

   28.3 MB read, 14.2 MB written, once a call: nothing about the weights is remembered between calls. Each block casts
   one share, every thread with all its loads in flight before the first store. No share straddles two matrices. What is
   unusual about the weights raises an alarm on the way.
   Limiter: memory bandwidth, of L2 when the weights were read recently. */
#pragma once

#include "common/alarm.cuh"
#include "common/pack.cuh"
#include "common/workspace.cuh"
#include "layernorm/layernorm.cuh"

constexpr int CAST_THREADS = 256;
constexpr int CAST_SHARE = 8192;                             // floats a block
constexpr int CAST_MATRIX_BLOCKS = PACKED_LEN / CAST_SHARE;  // 864
constexpr int CAST_VECTOR_BLOCKS = VECTORS_LEN / D;          // 13, of D floats each
constexpr int CAST_BLOCKS = CAST_MATRIX_BLOCKS + CAST_VECTOR_BLOCKS;
static_assert(PACKED_ATTN % CAST_SHARE == 0 && PACKED_FC % CAST_SHARE == 0 && PACKED_PROJ % CAST_SHARE == 0);

// Where a share of `packed` lies in the weights.
__device__ inline int cast_source(int share) {
  const int at = share * CAST_SHARE;
  if (at < PACKED_ATTN) return at - PACKED_QKV + W_QKV;
  if (at < PACKED_FC) return at - PACKED_ATTN + W_ATTN;
  if (at < PACKED_PROJ) return at - PACKED_FC + W_FC;
  return at - PACKED_PROJ + W_PROJ;
}

__device__ inline int cast_matrix(int share) {
  const int at = share * CAST_SHARE;
  return (at >= PACKED_ATTN) + (at >= PACKED_FC) + (at >= PACKED_PROJ);
}

// Block `block` of CAST_BLOCKS. `alarms` may be null.
template <bool ALIGNED>
__device__ void cast_block(int block, const float* weights, __half* packed, float* vectors, unsigned* alarms) {
  if (block >= CAST_MATRIX_BLOCKS) {
    const int first = (block - CAST_MATRIX_BLOCKS) * D;
    for (int i = threadIdx.x; i < D; i += CAST_THREADS) {
      const int place = vector_source(first) + i;
      const float v = weights[place];
      vectors[first + i] = v;
      if (alarms != nullptr) watch_vector(alarms, place, v);
    }
    return;
  }
  constexpr int ROUNDS = CAST_SHARE / 4 / CAST_THREADS;
  const int first = block * CAST_SHARE;
  const float* source = weights + cast_source(block);
  float4 v[ROUNDS];
#pragma unroll
  for (int i = 0; i < ROUNDS; ++i) v[i] = load4<ALIGNED>(source, 4 * (threadIdx.x + i * CAST_THREADS));
#pragma unroll
  for (int i = 0; i < ROUNDS; ++i)
    *reinterpret_cast<uint2*>(packed + first + 4 * (threadIdx.x + i * CAST_THREADS)) = pack_half4(v[i]);
  if (alarms == nullptr) return;
  Observation seen;
#pragma unroll
  for (int i = 0; i < ROUNDS; ++i) seen.add(v[i]);
  seen.report(alarms, cast_matrix(block), CAST_SHARE / (CAST_THREADS / 32));
}

// LN1 and the cast share a grid: the row blocks first, then the cast blocks.
template <bool ALIGNED>
__device__ void cast_or_layernorm(const float* weights, __half* packed, float* vectors, const float* x, __half* h,
                                  int rows, unsigned* alarms, float* x_copy) {
  const int row_blocks = gridDim.x - CAST_BLOCKS;
  if (static_cast<int>(blockIdx.x) < row_blocks)
    layernorm_block<ALIGNED>(blockIdx.x, x, weights + GAMMA1, weights + BETA1, h, rows, x_copy);
  else
    cast_block<ALIGNED>(blockIdx.x - row_blocks, weights, packed, vectors, alarms);
}
