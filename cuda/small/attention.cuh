/* Attention of one head for 16 queries and up to 16 MT keys by one warp, all of it in registers: q, k and v come in the
   order in which the MMA wants them, and the result leaves as the A operand of the output projection. Up to 16 rows k
   and v come straight from the workspace; above, where MT warps share a head, by way of shared memory.

   S = Q K^T / 8 (k: features, 8 t + 4 h + i of each 32), softmax in fp32 with base 2, O = P V. A column n of O stands
   for feature 8 n + tile, so that V is read as whole vectors and lane t ends with features 16 t ... + 15 of its two
   rows: the projection's steps of group 16. */
#pragma once

#include "common/exp2.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "common/sync_sm90a.cuh"
#include "small/exchange.cuh"
#include "small/layout.cuh"
#include "small/ptx.cuh"

namespace small {

__device__ __forceinline__ uint32_t word(uint4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

/* The keys that a query sees: [first, last]. Sequences of seq_len rows lie one behind the other. */
struct Keys {
  int first, last;
  __device__ __forceinline__ Keys(int query, int rows, int seq_len, bool causal) {
    if (query >= rows) query = 0;  // a row that nobody reads: any key will do
    first = query - query % seq_len;
    last = causal ? query : first + seq_len - 1;
    asm volatile("" : "+r"(first), "+r"(last));  // here, not behind the wait that follows
  }
  __device__ __forceinline__ bool sees(int key) const { return first <= key && key <= last; }
};

/* What a warp takes in: Q of its two rows, K of a row for each eight keys (two halves of the features each), and of
 * each 16 keys V of 2 t, 2 t + 1, 2 t + 8, 2 t + 9. */
template <int MT>
struct Operands {
  uint4 q[4], k[4 * MT], v[4 * MT];
  static __device__ __forceinline__ int key_of_k(int i) { return i / 2 * 8 + threadIdx.x % 32 / 4; }
  static __device__ __forceinline__ int key_of_v(int i) {
    return i / 4 * 16 + threadIdx.x % 4 * 2 + i % 2 + i % 4 / 2 * 8;
  }
};

/* Words of the last row spread over Q, K and V of the heads from `first` on: where receive() may wait for all of them.
 */
template <int HEADS_HERE>
__device__ __forceinline__ const __half* attention_sample(const Exchange& exchange, int first, int rows) {
  constexpr int WIDTH = HEADS_HERE * HEAD_DIM, EACH = 8;  // words of each part
  const int lane = threadIdx.x % 32;
  const int part = lane / EACH, feature = first * HEAD_DIM + lane % EACH * (WIDTH / EACH & ~1);
  return part < 2 ? exchange.qk.at(rows - 1, part * D + feature) : exchange.v.at(rows - 1, feature);
}

/* HALVES: 1 where there are at most 8 rows. */
template <int HALVES>
__device__ __forceinline__ void load_operands(Operands<1>& in, const Exchange& exchange, int head, int rows) {
  constexpr int EACH = 2 * HALVES;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  uint4 all[3 * EACH];
  receive(all, HALVES > 1 ? attention_sample<1>(exchange, head, rows) : nullptr, [&](int i) -> const void* {
    const int part = i / EACH, k = i % EACH;  // Q, K, V
    const int row = part == 0 ? k / 2 * 8 + g : part == 1 ? in.key_of_k(k) : in.key_of_v(k);
    if (row >= rows) return nullptr;
    return part < 2 ? exchange.qk.at(row, part * D + head * HEAD_DIM + 32 * (k % 2) + 8 * t)
                    : exchange.v.at(row, head * HEAD_DIM + 8 * g);
  });
#pragma unroll
  for (int i = 0; i < EACH; ++i) in.q[i] = all[i], in.k[i] = all[EACH + i], in.v[i] = all[2 * EACH + i];
#pragma unroll
  for (int i = EACH; i < 4; ++i) in.q[i] = in.k[i] = in.v[i] = make_uint4(0, 0, 0, 0);
}

/* By all warps together, for HEADS_HERE heads from `first` on; Q for `head` of them. */
template <int MT, int HEADS_HERE, int K_PITCH, int V_PITCH>
__device__ __forceinline__ void load_operands(Operands<MT>& in, const Exchange& exchange, int first, int head,
                                              int query, int rows, __half* staged_k, __half* staged_v) {
  constexpr int AT_ONCE = THREADS / 8, ROUNDS = HEADS_HERE * 16 * MT / AT_ONCE;  // rows of a head
  static_assert(HEADS_HERE * 16 * MT % AT_ONCE == 0);
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int place = threadIdx.x / 8, chunk = threadIdx.x % 8 * 8;
  uint4 all[2 * ROUNDS + 4];
  named_barrier_sync(COMPUTING, THREADS);  // qkv's sums may have lain where K and V go
  receive(all, attention_sample<HEADS_HERE>(exchange, first, rows), [&](int i) -> const void* {
    if (i >= 2 * ROUNDS) {
      const int k = i - 2 * ROUNDS, row = query + k / 2 * 8 + g;
      if (row >= rows || head >= HEADS_HERE) return nullptr;
      return exchange.qk.at(row, (first + head) * HEAD_DIM + 32 * (k % 2) + 8 * t);
    }
    const int p = place + AT_ONCE * (i % ROUNDS), row = p % (16 * MT),
              feature = (first + p / (16 * MT)) * HEAD_DIM + chunk;
    if (row >= rows) return nullptr;
    return i < ROUNDS ? exchange.qk.at(row, D + feature) : exchange.v.at(row, feature);
  });
#pragma unroll
  for (int i = 0; i < ROUNDS; ++i) {
    *reinterpret_cast<uint4*>(staged_k + (place + AT_ONCE * i) * K_PITCH + chunk) = all[i];
    *reinterpret_cast<uint4*>(staged_v + (place + AT_ONCE * i) * V_PITCH + chunk) = all[ROUNDS + i];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) in.q[i] = all[2 * ROUNDS + i];
  named_barrier_sync(COMPUTING, THREADS);
  if (head >= HEADS_HERE) return;
#pragma unroll
  for (int i = 0; i < 4 * MT; ++i) {
    in.k[i] =
        *reinterpret_cast<const uint4*>(staged_k + (head * 16 * MT + in.key_of_k(i)) * K_PITCH + 32 * (i % 2) + 8 * t);
    in.v[i] = *reinterpret_cast<const uint4*>(staged_v + (head * 16 * MT + in.key_of_v(i)) * V_PITCH + 8 * g);
  }
}

/* a[s]: step s of the projection's A. keys: of queries g and g + 8, which is not there where HALVES is 1. */
template <int MT, int HALVES>
__device__ __forceinline__ void attention(const Operands<MT>& in, const Keys (&keys)[2], uint32_t (&a)[4][4]) {
  constexpr int KEY_TILES = HALVES * MT;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float s[KEY_TILES][4];
#pragma unroll
  for (int kt = 0; kt < KEY_TILES; ++kt) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[kt][i] = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 q0 = in.q[half], q1 = in.q[2 + half], k = in.k[2 * kt + half];
      const uint32_t low[4] = {q0.x, q1.x, q0.y, q1.y}, high[4] = {q0.z, q1.z, q0.w, q1.w};
      mma(s[kt], low, make_uint2(k.x, k.y));
      mma(s[kt], high, make_uint2(k.z, k.w));
    }
  }

  float inverse[2] = {0, 0};
#pragma unroll
  for (int r = 0; r < HALVES; ++r) {
    float top = -INFINITY;
#pragma unroll
    for (int kt = 0; kt < KEY_TILES; ++kt)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& e = s[kt][2 * r + i];
        e = keys[r].sees(8 * kt + 2 * t + i) ? e * SCORE_SCALE : -INFINITY;
        top = fmaxf(top, e);
      }
    top = quad_max(top);
    float sum = 0;
#pragma unroll
    for (int kt = 0; kt < KEY_TILES; ++kt)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& e = s[kt][2 * r + i];
        e = exp2f(e - top);
        sum += e;
      }
    inverse[r] = __fdividef(1.0f, quad_sum(sum));
  }

  float o[8][4];
#pragma unroll
  for (int tile = 0; tile < 8; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) o[tile][i] = 0;
#pragma unroll
  for (int j = 0; j < MT; ++j) {
    uint32_t p[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i % 2 < HALVES && 2 * j + i / 2 < KEY_TILES)
        p[i] = pack_half2(s[2 * j + i / 2][i % 2 * 2], s[2 * j + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int tile = 0; tile < 8; ++tile) {
      const uint32_t pick = tile % 2 ? 0x7632 : 0x5410;
      mma(o[tile], p,
          make_uint2(__byte_perm(word(in.v[4 * j], tile / 2), word(in.v[4 * j + 1], tile / 2), pick),
                     __byte_perm(word(in.v[4 * j + 2], tile / 2), word(in.v[4 * j + 3], tile / 2), pick)));
    }
  }
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int tile = step % 2 * 4,
              n = step / 2;  // features 16 t + 4 step + i: column 2 t + n of tiles 4 (step % 2) + i
#pragma unroll
    for (int i = 0; i < 4; i += 2)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        a[step][i + r] = pack_half2(o[tile + i][2 * r + n] * inverse[r], o[tile + i + 1][2 * r + n] * inverse[r]);
  }
}

}  // namespace small
