/* att = softmax(Q K^T / 8) V for one head and 128 of its queries, keys streamed once, no score ever in global memory.

   Shapes: qkv (batch, seq_len, 3 D) fp16, read in place: Q at columns 64 h, K at D + 64 h, V at 2 D + 64 h of head h;
   att (batch, seq_len, D) fp16. Grid (ceil(seq_len / 128), HEADS, batch), GROUPS * 128 threads.

   A group of four warps holds all 128 queries, 32 a warp, and takes every GROUPS-th tile of 64 keys through its own
   double buffer with its own barrier; the groups' results are merged at the end. Scores and output stay in registers:
   the accumulators of S = Q K^T, once exponentiated, are the A fragments of P V. Keys past the end are zero and masked;
   the causal variant stops at the diagonal.

   Shared memory: AttentionShared::BYTES. Limiter: tensor cores, then shared-memory reads and exponentials. */
#pragma once

#include "attention/softmax.cuh"
#include "common/barrier.cuh"
#include "common/ldmatrix.cuh"
#include "common/store.cuh"
#include "dims.h"

constexpr int QUERIES = 128;
constexpr int KEYS = 64;
constexpr int GROUP_THREADS = 128;
constexpr int WARP_QUERIES = 32;

using QueryTile = Tile<QUERIES, HEAD_DIM>;
using KeyTile = Tile<KEYS, HEAD_DIM>;  // of K or of V

// The queries, and later the result on its way out; then for each group two tiles of K and two of V.
template <int GROUPS>
struct AttentionShared {
  static constexpr int GROUP = 4 * KeyTile::SIZE;  // halves
  static constexpr int BYTES = (QueryTile::SIZE + GROUPS * GROUP) * 2;
};

// scores += Q K^T for this warp's queries and the tile's 64 keys.
template <class Arch>
__device__ void score_tile(WarpScores& scores, const unsigned (&q)[2][4][4], const __half* keys, int lane) {
#pragma unroll
  for (int depth = 0; depth < 4; ++depth)
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      unsigned k[4];
      load_b_nk<KeyTile>(k, keys + 16 * pair * KeyTile::PITCH + 16 * depth, lane);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        Arch::mma(scores[i][2 * pair], q[i][depth], k[0], k[1]);
        Arch::mma(scores[i][2 * pair + 1], q[i][depth], k[2], k[3]);
      }
    }
}

// out += P V.
template <class Arch>
__device__ void weigh_tile(WarpScores& out, const WarpWeights& weights, const __half* values, int lane) {
#pragma unroll
  for (int depth = 0; depth < 4; ++depth)
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      unsigned v[4];
      load_b_kn<KeyTile>(v, values + 16 * depth * KeyTile::PITCH + 16 * pair, lane);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        Arch::mma(out[i][2 * pair], weights[i][depth], v[0], v[1]);
        Arch::mma(out[i][2 * pair + 1], weights[i][depth], v[2], v[3]);
      }
    }
}

// Sets the scores of keys that this warp's queries may not see to -inf. `keys_left` counts the keys from the tile's
// first one to the sequence's end; `diagonal` is the first key of the tile minus the first query of the warp.
template <bool CAUSAL>
__device__ void mask_tile(WarpScores& scores, int keys_left, int diagonal, int lane) {
  if (keys_left >= KEYS && !(CAUSAL && diagonal + KEYS - 1 > 0)) return;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = 8 * j + lane % 4 * 2 + e % 2;
        const int query = 16 * i + e / 2 * 8 + lane / 4;
        if (key >= keys_left || (CAUSAL && diagonal + key > query)) scores[i][j][e] = -INFINITY;
      }
}

template <class Arch, bool CAUSAL, int GROUPS>
__device__ void attention(const __half* __restrict__ qkv, __half* __restrict__ att, int seq_len) {
  extern __shared__ uint4 shared[];
  const int lane = threadIdx.x % 32;
  const int group = threadIdx.x / GROUP_THREADS;
  const int thread = threadIdx.x % GROUP_THREADS;
  const int first_query = (CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * QUERIES;  // the longest blocks first
  const int warp_query = thread / 32 * WARP_QUERIES;
  const size_t first_token = static_cast<size_t>(blockIdx.z) * seq_len;
  const __half* head = qkv + first_token * QKV + blockIdx.y * HEAD_DIM;

  __half* queries = reinterpret_cast<__half*>(shared);
  __half* buffers = queries + QueryTile::SIZE + group * AttentionShared<GROUPS>::GROUP;
  const int seen = CAUSAL ? min(seq_len, first_query + QUERIES) : seq_len;
  const int tiles = (seen + KEYS - 1) / KEYS;

  typename Arch::template Copy<QueryTile, QKV, GROUPS * GROUP_THREADS> copy_q;
  typename Arch::template Copy<KeyTile, QKV, GROUP_THREADS> copy_k, copy_v;
  const auto part = [&](int tile, int which) { return head + static_cast<size_t>(tile) * KEYS * QKV + which * D; };
  const auto left = [&](int tile) { return seq_len - tile * KEYS; };

  copy_q.fetch(queries, head + static_cast<size_t>(first_query) * QKV, threadIdx.x, seq_len - first_query);
  copy_q.land(queries, threadIdx.x);
  Arch::commit();
  if (group < tiles) {
    copy_k.fetch(buffers, part(group, 1), thread, left(group));
    copy_v.fetch(buffers + KeyTile::SIZE, part(group, 2), thread, left(group));
    copy_k.land(buffers, thread);
    copy_v.land(buffers + KeyTile::SIZE, thread);
  }
  Arch::commit();
  Arch::template wait<1>();
  __syncthreads();

  unsigned q[2][4][4];
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int depth = 0; depth < 4; ++depth)
      load_a<QueryTile>(q[i][depth], queries + (warp_query + 16 * i) * QueryTile::PITCH + 16 * depth, lane);

  Softmax softmax;
  WarpScores out = {};
  int slot = 0;
#pragma unroll 1
  for (int tile = group; tile < tiles; tile += GROUPS, slot ^= 1) {
    const int next = tile + GROUPS;
    const __half* keys = buffers + slot * 2 * KeyTile::SIZE;
    __half* next_keys = buffers + (slot ^ 1) * 2 * KeyTile::SIZE;
    Arch::template wait<0>();
    barrier<GROUP_THREADS>(1 + group);  // this tile has landed, and the group has read the one before it

    if (next < tiles) copy_k.fetch(next_keys, part(next, 1), thread, left(next));
    WarpScores scores;
    softmax.begin(scores);
    score_tile<Arch>(scores, q, keys, lane);
    if (next < tiles) {
      copy_k.land(next_keys, thread);
      copy_v.fetch(next_keys + KeyTile::SIZE, part(next, 2), thread, left(next));
    }
    Arch::commit();

    mask_tile<CAUSAL>(scores, left(tile), tile * KEYS - first_query - warp_query, lane);
    WarpWeights weights;
    softmax.weigh(scores, weights, out);
    weigh_tile<Arch>(out, weights, keys + KeyTile::SIZE, lane);
    if (next < tiles) copy_v.land(next_keys + KeyTile::SIZE, thread);
  }

  if constexpr (GROUPS == 2) {
    barrier<GROUP_THREADS>(1 + group);  // this group has read its tiles for the last time
    float4* exchange = reinterpret_cast<float4*>(queries + QueryTile::SIZE + AttentionShared<GROUPS>::GROUP) + thread;
    if (group == 1) softmax.leave<GROUP_THREADS>(out, exchange);
    __syncthreads();
    if (group == 1) return;
    softmax.merge<GROUP_THREADS>(out, exchange);
  }
  softmax.normalise(out);
  store_warp_tile(att + (first_token + first_query + warp_query) * D + blockIdx.y * HEAD_DIM, D,
                  seq_len - first_query - warp_query, queries + warp_query * QueryTile::PITCH, lane, out);
}
