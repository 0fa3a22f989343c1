/* att = softmax(Q K^T / 8) V of every head, flash style, with hi + lo operands: scores and P V are three products each.

   A unit is 128 rows of one head, whichever sequences they belong to; keys come in tiles of 128 rows likewise, taken in
   two steps of 64. A row sees the keys of its own sequence (and, if causal, up to itself). So sequences need no alignment,
   and many short ones cost what their rows cost. exact_attention_work_sm90a.cuh: which blocks do which tiles.
   A warpgroup has 64 rows, their Q in registers: wgmma reads K alone from shared memory. It takes the exponentials of a
   step while P V of the step before runs; nothing is in flight across a loop's edge. Each step's P V starts from zero and
   is added to the output in fp32: the tensor cores cut sums off.
   Shared memory: Q and a ring of five tiles of K and V by turns, 32 KB each. Limiter: 768 clocks of wgmma for 64 rows x 64
   keys. */
#pragma once

#include "exact/exact_attention_work_sm90a.cuh"
#include "exact/exact_gemm_sm90a.cuh"

namespace exact90 {

constexpr int TILE_BYTES = 4 * IMAGE;  // 128 rows of a head, hi and lo
constexpr int S_Q = S_RING, S_KV = S_Q + TILE_BYTES;
static_assert(S_KV + KV_SLOTS * TILE_BYTES <= S_RING + RING_BYTES, "fits");

using KvRing = Ring<KV_SLOTS>;

// By one thread.
__device__ __forceinline__ void feed_attention(uint32_t shared, const ExactArgs& args) {
  const Memory memory(args);
  Ring<1> q;
  KvRing at;
  const auto bring = [&](uint32_t to, uint32_t full, uint32_t empty, uint32_t parity, const unsigned char* from) {
    wait_for(empty, parity ^ 1);
    mbarrier_expect(full, TILE_BYTES);
    bulk_load(to, from, TILE_BYTES, full);
  };
  const auto bring_next = [&](const unsigned char* from) {
    const uint32_t full = shared + BAR_KV + 8 * at.stage;
    bring(shared + S_KV + at.stage * TILE_BYTES, full, full + 8 * KV_SLOTS, at.parity, from);
    at.advance();
  };
  const size_t step = activation_at(QKV / 64, ROW_TILE, 0, 0);
  for (Share share(shared); share.left > 0;) {
    const AttentionUnit u(args, share.unit);
    const Part part(shared, share, u);
    bring(shared + S_Q, shared + BAR_Q, shared + BAR_Q + 8, q.parity, memory.wide() + activation_at(QKV / 64, u.row, u.head, 0));
    q.advance();
    const unsigned char* from = memory.wide() + (u.first_tile + part.begin) * step + activation_at(QKV / 64, 0, HEADS + u.head, 0);
#pragma unroll 1
    for (int i = part.begin; i < part.end; i++, from += step) {
      bring_next(from);
      bring_next(from + activation_at(QKV / 64, 0, HEADS, 0));
    }
    share.advance(part.end - part.begin);
  }
}

struct AttentionConsumer {
  uint32_t q[4][4], q_lo[4][4];
  float s[KEYS / 2];
  uint32_t p[2][KEYS / 16][4], p_lo[2][KEYS / 16][4];  // of two steps
  float o[32], total[32];
  Softmax softmax;

  __device__ __forceinline__ explicit AttentionConsumer(float inverse_scale) : softmax(inverse_scale) {
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] = o[i] = total[i] = 0.f;
#pragma unroll
    for (int i = 0; i < 4 * (KEYS / 16); i++) p[1][i / 4][i % 4] = p_lo[1][i / 4][i % 4] = 0;
  }

  __device__ __forceinline__ void load_q(uint32_t rows) {
    const int lane = thread_index() % 32, row = thread_index() / 32 % 4 * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      ldmatrix_x4(rows + swizzle_128(row, 2 * i + lane / 16), q[i]);
      ldmatrix_x4(rows + 2 * IMAGE + swizzle_128(row, 2 * i + lane / 16), q_lo[i]);
    }
  }

  // S = Q K^T, the small products first
  __device__ __forceinline__ void issue_scores(uint32_t k) {
    constexpr uint64_t K_MAJOR = wgmma_descriptor<128>(16, 1024);
    const uint64_t kd = wgmma_at(K_MAJOR, k);
    constexpr int LO = 2 * IMAGE / 16;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) Wgmma<KEYS>::rs<0>(s, q_lo[i], kd + 2 * i, i != 0);
#pragma unroll
    for (int i = 0; i < 4; i++) Wgmma<KEYS>::rs<0>(s, q[i], kd + LO + 2 * i, 1);
#pragma unroll
    for (int i = 0; i < 4; i++) Wgmma<KEYS>::rs<0>(s, q[i], kd + 2 * i, 1);
    wgmma_commit();
  }
  // O = P V of a step
  template <int STEP>
  __device__ __forceinline__ void issue_output(uint32_t v) {
    constexpr uint64_t N_MAJOR = wgmma_descriptor<128>(IMAGE, 1024);  // one slab
    const uint64_t vd = wgmma_at(N_MAJOR, v);
    constexpr int LO = 2 * IMAGE / 16;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) Wgmma<64>::rs<1>(o, p_lo[STEP][i], vd + 128 * i, i != 0);
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) Wgmma<64>::rs<1>(o, p[STEP][i], vd + LO + 128 * i, 1);
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) Wgmma<64>::rs<1>(o, p[STEP][i], vd + 128 * i, 1);
    wgmma_commit();
  }

  // Keys that a row does not see get no weight: those outside of [begin, end), counted from this thread's first one.
  __device__ __forceinline__ void mask(const int (&begin)[2], const int (&end)[2]) {
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
      const int key = 8 * (i >> 2) + (i & 1), r = i >> 1 & 1;
      if (key < begin[r] || key >= end[r]) s[i] = -INFINITY;
    }
  }

  // Scores become p hi and lo. P V of the step before may be in flight.
  template <int STEP>
  __device__ __forceinline__ void probabilities() {
#pragma unroll 1
    for (bool look = softmax.wary();; look = softmax.overflowed = true) {  // twice at most
      float rescale[2];
      if (look && softmax.look(s, rescale)) {
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 32; i++) {
          total[i] = (total[i] + o[i]) * rescale[i >> 1 & 1];
          o[i] = 0.f;
        }
      }
      float add[2] = {0.f, 0.f};
      const float offset[2] = {softmax.offset(0), softmax.offset(1)};
#pragma unroll
      for (int i = 0; i < KEYS / 2; i += 2) {
        const int r = i >> 1 & 1;
        const float a = exp2_approx(fmaf(s[i], softmax.c, offset[r])), b = exp2_approx(fmaf(s[i + 1], softmax.c, offset[r]));
        add[r] += a + b;
        const Split x = split(a, b);
        p[STEP][i / 8][i / 2 % 4] = x.hi;
        p_lo[STEP][i / 8][i / 2 % 4] = x.lo;
      }
      if (look || softmax.fits(add)) {
        softmax.sum[0] += add[0];
        softmax.sum[1] += add[1];
        break;
      }
    }
  }

  __device__ __forceinline__ void keep_output() {
#pragma unroll
    for (int i = 0; i < 32; i++) total[i] += o[i];
  }
};

// A place of the ring, and the phase of its barriers: in one number, for the sake of registers.
struct Places {
  int place = 0;  // of 2 KV_SLOTS

  __device__ __forceinline__ int slot() const { return place < KV_SLOTS ? place : place - KV_SLOTS; }
  __device__ __forceinline__ Places next() const { return {place == 2 * KV_SLOTS - 1 ? 0 : place + 1}; }
  __device__ __forceinline__ Places previous() const { return {place == 0 ? 2 * KV_SLOTS - 1 : place - 1}; }
  // The same in all lanes, and the compiler told so: it makes descriptors of it in uniform registers.
  __device__ __forceinline__ uint32_t at(uint32_t shared, int half) const {
    return __shfl_sync(~0u, shared + S_KV + slot() * TILE_BYTES, 0) + half * IMAGE;
  }
  __device__ __forceinline__ void wait(uint32_t shared) const { wait_for(shared + BAR_KV + 8 * slot(), place >= KV_SLOTS); }
  __device__ __forceinline__ void release(uint32_t shared) const {
    if (thread_index() % 128 == 0) mbarrier_arrive(shared + BAR_KV + 8 * (KV_SLOTS + slot()));
  }
};

/* The result has V's scale. `inverse_scale` of Q, K and V: where in shared memory this thread finds it. */
__device__ __forceinline__ void attention(uint32_t shared, const ExactArgs& args, uint32_t inverse_scale) {
  Places k;
  for (Share share(shared); share.left > 0;) {
    // The keys that all rows of this warpgroup see, and those of a row.
    const auto begins = [&](int row) { return sequence_of(args, min(row, args.rows - 1)); };
    const auto ends = [&](int row) { return args.causal ? min(row, args.rows - 1) + 1 : begins(row) + args.seq_len; };
    const auto first_row = [&] { return share.unit / HEADS * ROW_TILE + thread_index() / 128 * 64; };
    const int all_begin = begins(first_row() + 63), all_end = ends(first_row());
    int begin, end;
    {
      const AttentionUnit u(args, share.unit);
      const Part part(shared, share, u);
      begin = (u.first_tile + part.begin) * ROW_TILE;
      end = (u.first_tile + part.end) * ROW_TILE;
      if (end - KEYS >= ends(first_row() + 63)) end -= KEYS;  // none of the rows sees the rest
    }
    AttentionConsumer x(__uint_as_float(load_shared_word(inverse_scale)));
    const auto mask = [&](int key) {
      if (key >= all_begin && key + KEYS <= all_end) return;
      const int lane = thread_index() % 32, row = first_row() + thread_index() / 32 % 4 * 16 + lane / 4, left = key + lane % 4 * 2;
      const int begin[2] = {begins(row) - left, begins(row + 8) - left}, end[2] = {ends(row) - left, ends(row + 8) - left};
      x.mask(begin, end);
    };
    wait_for(shared + BAR_Q, share.parity(shared));
    x.load_q(shared + S_Q + thread_index() / 128 * IMAGE);
    // Scores of a step beside the output of the step before; beside the first, nothing times V.
    int key = begin;
#pragma unroll 1
    for (;;) {
      const Places v = k.next(), last_v = key == begin ? v : k.previous();
      k.wait(shared);
      x.issue_scores(k.at(shared, 0));
      last_v.wait(shared);
      x.issue_output<1>(last_v.at(shared, 1));
      wgmma_wait<1>();
      mask(key);
      x.probabilities<0>();
      wgmma_wait<0>();
      if (key != begin) {
        last_v.release(shared);
      } else {
        named_barrier_sync(GROUP_BARRIER + thread_index() / 128, 128);  // all warps have their Q
        if (thread_index() % 128 == 0) mbarrier_arrive(shared + BAR_Q + 8);
      }
      x.keep_output();
      key += KEYS;
      if (key == end) break;
      x.issue_scores(k.at(shared, 1));
      v.wait(shared);
      x.issue_output<0>(v.at(shared, 0));
      wgmma_wait<1>();
      k.release(shared);
      k = v.next();
      mask(key);
      x.probabilities<1>();
      wgmma_wait<0>();
      x.keep_output();
      key += KEYS;
      if (key == end) break;
    }
    if (key % ROW_TILE) {
      const Places v = k.next();
      k.release(shared);
      v.wait(shared);
      x.issue_output<0>(v.at(shared, 0));
      wgmma_wait<0>();
      v.release(shared);
      k = v.next();
    } else {
      x.issue_output<1>(k.previous().at(shared, 1));
      wgmma_wait<0>();
      k.previous().release(shared);
    }
    x.keep_output();
    const AttentionUnit u(args, anew(share.unit));
    const Part part(shared, share, u);
    Memory memory(args);
    memory.rows = anew(memory.rows);
    const int group = thread_index() / 128;
    if (part.end < u.tiles) {
      leave_part(memory, group, x.total, x.softmax);
    } else {
      for (int block = crew.rank - 1, before = part.begin; before > 0; block--, before -= Share::full(shared))
        add_part(memory, block, group, x.total, x.softmax);
      const float inverse_sum[2] = {1.f / quad_sum(x.softmax.sum[0]), 1.f / quad_sum(x.softmax.sum[1])};
      const int lane = thread_index() % 32, warp = thread_index() / 32;
      unsigned char* to = memory.h() + activation_at(D / 64, u.row, u.head, 0) + group * IMAGE + warp % 4 * BOX_BYTES;
      store_split(shared + S_BOX + warp * BOX_BYTES, to, to + 2 * IMAGE, lane, [&](int i, float(&v)[4]) {
#pragma unroll
        for (int j = 0; j < 4; j++) v[j] = x.total[4 * i + j] * inverse_sum[j >> 1];
      });
    }
    share.advance(part.end - part.begin);
  }
}

}  // namespace exact90
