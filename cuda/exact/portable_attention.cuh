/* att = softmax(Q K^T / 8) V to fp32 accuracy, inside the resident kernel: 128 queries of one head at a time, keys
   streamed once.

   Eight warps of 16 queries share tiles of KEYS keys in a double buffer, both parts of K and V in each. Q K^T and P V
   are three products each, the small ones in sums of their own; P is split as it is. The running maximum is exact, and
   each tile's part of P V is summed from zero before it is added to the output in fp32. Keys past the end are zero and
   masked. Limiter: tensor cores, then shared-memory reads. */
#pragma once

#include "common/exp2.cuh"
#include "common/ldmatrix.cuh"
#include "common/reduce.cuh"
#include "exact/portable_memory.cuh"
#include "gemm/gemm_tile.cuh"

constexpr int EXACT_THREADS = 256;
constexpr int EXACT_QUERIES = 128;
constexpr int EXACT_WARP_QUERIES = 16;
using ExactQueryTile = Tile<EXACT_QUERIES, HEAD_DIM>;

template <int KEYS>
struct ExactAttentionShared {
  using KeyTile = Tile<KEYS, HEAD_DIM>;
  static constexpr int BUFFER = 4 * KeyTile::SIZE;                                // halves: hi and lo of K, then of V
  static constexpr int BYTES = max_of(2 * BUFFER, 2 * ExactQueryTile::SIZE) * 2;  // the queries pass through first
};

// One warp's state: sums over the keys so far of 16 queries, two of them in each thread.
struct ExactSoftmax {
  float reference[2] = {-INFINITY, -INFINITY};  // the largest score so far
  float sum[2] = {};                            // this thread's part
  float out[HEAD_DIM / 8][4] = {};
};

template <class Arch, int COLUMN_TILES>
__device__ void multiply_pair(float (&d)[COLUMN_TILES][4], const unsigned (&a)[4], const unsigned (&b)[4], int pair) {
  Arch::mma(d[2 * pair], a, b[0], b[1]);
  Arch::mma(d[2 * pair + 1], a, b[2], b[3]);
}

// scores = Q K^T, still scaled.
template <class Arch, int KEYS>
__device__ void score_split(float (&scores)[KEYS / 8][4], const unsigned (&q)[2][4][4], const __half* keys, int lane) {
  using KeyTile = Tile<KEYS, HEAD_DIM>;
  float small[KEYS / 8][4] = {};
#pragma unroll
  for (int depth = 0; depth < 4; ++depth)
#pragma unroll
    for (int pair = 0; pair < KEYS / 16; ++pair) {
      unsigned hi[4], lo[4];
      const __half* block = keys + 16 * pair * KeyTile::PITCH + 16 * depth;
      load_b_nk<KeyTile>(hi, block, lane);
      load_b_nk<KeyTile>(lo, block + KeyTile::SIZE, lane);
      multiply_pair<Arch>(small, q[1][depth], hi, pair);
      multiply_pair<Arch>(scores, q[0][depth], hi, pair);
      multiply_pair<Arch>(small, q[0][depth], lo, pair);
    }
#pragma unroll
  for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) scores[j][e] += small[j][e];
}

// Scores of keys that the warp's queries do not see become -inf; `keys_left` and `diagonal` as in attention/attention.cuh.
template <int KEYS>
__device__ __forceinline__ void mask_split(float (&scores)[KEYS / 8][4], int keys_left, bool causal, int diagonal, int lane) {
  if (keys_left < KEYS || (causal && diagonal + KEYS > 1)) {
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = 8 * j + lane % 4 * 2 + e % 2;
        const int query = e / 2 * 8 + lane / 4;
        if (key >= keys_left || (causal && diagonal + key > query)) scores[j][e] = -INFINITY;
      }
  }
}

// The scores become weights up to 2^14, as seen from the new reference; the state so far follows it. `exponent` turns
// a difference of scores into one of powers of two.
template <int KEYS>
__device__ void weigh_split(ExactSoftmax& state, float (&scores)[KEYS / 8][4], const Undo& exponent) {
  constexpr float TOP = 16384.f;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = state.reference[r];
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j) top = fmaxf(top, fmaxf(scores[j][2 * r], scores[j][2 * r + 1]));
    top = quad_max(top);
    const float factor = exp2_approx(exponent(state.reference[r] - top));
    state.reference[r] = top;
    state.sum[r] *= factor;
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 8; ++j) state.out[j][2 * r] *= factor, state.out[j][2 * r + 1] *= factor;
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int e = 2 * r; e < 2 * r + 2; ++e) {
        scores[j][e] = TOP * exp2_approx(exponent(scores[j][e] - top));
        state.sum[r] += scores[j][e];
      }
  }
}

// out += P V, scaled.
template <class Arch, int KEYS>
__device__ void add_values(ExactSoftmax& state, const float (&weights)[KEYS / 8][4], const __half* values, int lane) {
  using KeyTile = Tile<KEYS, HEAD_DIM>;
  float sums[HEAD_DIM / 8][4] = {}, small[HEAD_DIM / 8][4] = {};
#pragma unroll
  for (int depth = 0; depth < KEYS / 16; ++depth) {
    unsigned p[2][4];  // an accumulator's pairs are those of an A fragment
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = &weights[2 * depth + i / 2][i % 2 * 2];
      const Split both = split(pair[0], pair[1]);
      p[0][i] = both.hi, p[1][i] = both.lo;
    }
#pragma unroll
    for (int pair = 0; pair < HEAD_DIM / 16; ++pair) {
      unsigned hi[4], lo[4];
      const __half* block = values + 16 * depth * KeyTile::PITCH + 16 * pair;
      load_b_kn<KeyTile>(hi, block, lane);
      load_b_kn<KeyTile>(lo, block + KeyTile::SIZE, lane);
      multiply_pair<Arch>(small, p[1], hi, pair);
      multiply_pair<Arch>(sums, p[0], hi, pair);
      multiply_pair<Arch>(small, p[0], lo, pair);
    }
  }
#pragma unroll
  for (int j = 0; j < HEAD_DIM / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) state.out[j][e] += sums[j][e] + small[j][e];
}

// The 128 queries from `first_query` of one head; `qkv` and `att` point to the head's columns in the sequence's first
// row.
template <class Arch, int KEYS>
__device__ void attend(uint4* shared, Parts qkv, Parts att, int first_query, int seq_len, bool causal,
                       const Undo& exponent, float out_scale) {
  using S = ExactAttentionShared<KEYS>;
  using KeyTile = typename S::KeyTile;
  __half* const buffers = reinterpret_cast<__half*>(shared);
  const int lane = threadIdx.x % 32;
  const int warp_query = threadIdx.x / 32 * EXACT_WARP_QUERIES;
  const int queries_left = seq_len - first_query - warp_query;
  const int seen = causal ? min(seq_len, first_query + EXACT_QUERIES) : seq_len;
  const int tiles = (seen + KEYS - 1) / KEYS;

  unsigned q[2][4][4];
  {
    typename Arch::template Copy<ExactQueryTile, QKV, EXACT_THREADS> copy[2];
    const Parts from = qkv + static_cast<size_t>(first_query) * QKV;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      copy[part].fetch(buffers + part * ExactQueryTile::SIZE, from[part], threadIdx.x, seq_len - first_query);
      copy[part].land(buffers + part * ExactQueryTile::SIZE, threadIdx.x);
    }
    Arch::commit();
    Arch::template wait<0>();
    __syncthreads();
#pragma unroll
    for (int part = 0; part < 2; ++part)
#pragma unroll
      for (int depth = 0; depth < 4; ++depth)
        load_a<ExactQueryTile>(q[part][depth],
                               buffers + part * ExactQueryTile::SIZE + warp_query * ExactQueryTile::PITCH + 16 * depth,
                               lane);
    __syncthreads();
  }

  // Both parts of a tile of K (which = 1) or V (2).
  struct Fetch {
    typename Arch::template Copy<KeyTile, QKV, EXACT_THREADS> copy[2];
    __device__ void start(Parts qkv, int tile, int which, __half* to, int seq_len) {
      const Parts from = qkv + (static_cast<size_t>(tile) * KEYS * QKV + which * D);
#pragma unroll
      for (int part = 0; part < 2; ++part)
        copy[part].fetch(to + part * KeyTile::SIZE, from[part], threadIdx.x, seq_len - tile * KEYS);
    }
    __device__ void land(__half* to) {
#pragma unroll
      for (int part = 0; part < 2; ++part) copy[part].land(to + part * KeyTile::SIZE, threadIdx.x);
    }
  };
  Fetch keys, values;
  keys.start(qkv, 0, 1, buffers, seq_len);
  values.start(qkv, 0, 2, buffers + 2 * KeyTile::SIZE, seq_len);
  keys.land(buffers);
  values.land(buffers + 2 * KeyTile::SIZE);
  Arch::commit();

  ExactSoftmax state;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    __half* const here = buffers + tile % 2 * S::BUFFER;
    __half* const there = buffers + (tile + 1) % 2 * S::BUFFER;
    const bool more = tile + 1 < tiles;
    Arch::template wait<0>();
    __syncthreads();  // this tile has landed, and all have read the one before it

    if (more) keys.start(qkv, tile + 1, 1, there, seq_len);
    float scores[KEYS / 8][4] = {};
    if (queries_left > 0) score_split<Arch, KEYS>(scores, q, here, lane);
    if (more) {
      keys.land(there);
      values.start(qkv, tile + 1, 2, there + 2 * KeyTile::SIZE, seq_len);
    }
    Arch::commit();
    if (queries_left > 0) {
      mask_split<KEYS>(scores, seq_len - tile * KEYS, causal, tile * KEYS - first_query - warp_query, lane);
      weigh_split<KEYS>(state, scores, exponent);
      add_values<Arch, KEYS>(state, scores, here + 2 * KeyTile::SIZE, lane);
    }
    if (more) values.land(there + 2 * KeyTile::SIZE);
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
    const float factor = out_scale / quad_sum(state.sum[r]);
    if (row >= queries_left) continue;
    const Parts to = att + (static_cast<size_t>(first_query + warp_query + row) * D + lane % 4 * 2);
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 8; ++j) {
      const Split both = split(state.out[j][2 * r] * factor, state.out[j][2 * r + 1] * factor);
      *reinterpret_cast<unsigned*>(to[0] + 8 * j) = both.hi;
      *reinterpret_cast<unsigned*>(to[1] + 8 * j) = both.lo;
    }
  }
  __syncthreads();  // the buffers are free
}

// All heads of all sequences.
template <class Arch, int KEYS>
__device__ void attention_split(uint4* shared, const ExactMemory& memory, int rows, int seq_len, bool causal) {
  const int blocks = (seq_len + EXACT_QUERIES - 1) / EXACT_QUERIES;
  const int items = rows / seq_len * HEADS * blocks;
#pragma unroll 1
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    // The longest first, where a query sees only what is before it.
    const int block = causal ? blocks - 1 - item / (items / blocks) : item / (items / blocks);
    const int head = item % (items / blocks) % HEADS;
    const size_t first_token = static_cast<size_t>(item % (items / blocks) / HEADS) * seq_len;
    const Scales& scales = *memory.scales;
    Undo exponent(scales.qkv[head], scales.qkv[HEADS + head]);
    exponent.second *= SCORE_SCALE;
    attend<Arch, KEYS>(shared, memory.qkv + (first_token * QKV + head * HEAD_DIM),
                       memory.h + (first_token * D + head * HEAD_DIM), block * EXACT_QUERIES, seq_len, causal, exponent,
                       scales.att * inverse(scales.qkv[2 * HEADS + head]));
  }
}
