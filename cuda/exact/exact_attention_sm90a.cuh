/* att = softmax(Q K^T / 8) V of every head, flash style, with hi + lo operands: scores and P V are three products each.

   A unit is 128 rows of one head, whichever sequences they belong to; keys come in tiles of 128 rows likewise, taken in
   two steps of 64 (128 at once leave too few registers for the exponentials to overlap). A row sees the keys of its own
   sequence (and, if causal, up to itself). So sequences need no alignment, and many short ones cost what their rows cost.
   A warpgroup has 64 rows; the two take turns at issuing products. Each step's P V
   starts from zero and is added to the output in fp32: the tensor cores cut sums off.
   Units block, block + blocks, ..: heads fastest; if causal the longest rows first. Shared memory: Q and a ring of five
   tiles of K and V by turns, 32 KB each. Limiter: 768 clocks of wgmma for 64 rows x 64 keys, and the exponentials. */
#pragma once

#include <cfloat>

#include "common/exp2.cuh"
#include "common/reduce.cuh"
#include "common/tma_sm90a.cuh"
#include "exact/exact_gemm_sm90a.cuh"

namespace exact90 {

constexpr int KEYS = 64;  // of a step, half a tile
constexpr int TILE_BYTES = 4 * IMAGE;  // 128 rows of a head, hi and lo
constexpr int S_Q = S_RING, S_KV = S_Q + TILE_BYTES;
static_assert(S_KV + KV_SLOTS * TILE_BYTES <= S_RING + RING_BYTES, "fits");
constexpr int P_EXPONENT = 13;  // probabilities are at most 2^13 times as large as they should be: fp16 holds them well

// Where the sequence of a row begins. Without a division where there is one sequence: such code is run once.
__device__ __forceinline__ int sequence_begin(const ExactArgs& args, int row) {
  return args.seq_len >= args.rows ? 0 : row / args.seq_len * args.seq_len;
}

struct AttentionUnit {
  int head, row, first_tile, tiles;

  // Of so many rows, or half as many
  __device__ __forceinline__ AttentionUnit(const ExactArgs& args, const Memory& memory, int unit, int height = ROW_TILE) {
    head = unit % HEADS;
    int tile = unit / HEADS;
    if (args.causal) tile = memory.rows / height - 1 - tile;
    row = tile * height;
    const int last = min(row + height, args.rows) - 1;
    const int end = args.causal ? last + 1 : sequence_begin(args, last) + args.seq_len;
    first_tile = sequence_begin(args, row) / ROW_TILE;
    tiles = (end - 1) / ROW_TILE + 1 - first_tile;
  }
};

using KvRing = Ring<KV_SLOTS>;

// What a block has of a unit: its keys from `tile` on, so many tiles of them, or all if 0
struct AttentionShare {
  int unit, tile, some;

  __device__ __forceinline__ int tiles(const AttentionUnit& u) const { return some ? some : u.tiles; }
};

// Whole units unit, unit + blocks, .. below `units`
struct WholeUnits {
  int unit, units;

  __device__ __forceinline__ bool next(AttentionShare& share) {
    share = {unit, 0, 0};
    unit += crew.size;
    return share.unit < units;
  }
};

// What a block does, by one thread: units of HEIGHT rows. `q_empty`: where who computes arrives for Q. enter() returns when Q, K and V are there.
template <int HEIGHT = ROW_TILE, class Deal, class Enter>
__device__ __forceinline__ void feed_attention(uint32_t shared, const ExactArgs& args, Deal deal, int q_empty, Enter enter) {
  const Memory memory(args);
  Ring<1> q;
  KvRing at;
  const auto bring = [&](uint32_t to, uint32_t full, uint32_t empty, uint32_t parity, const unsigned char* from) {
    mbarrier_wait_or_fault(empty, parity ^ 1);
    mbarrier_expect(full, TILE_BYTES);
    bulk_load(to, from, TILE_BYTES, full);
  };
  const size_t step = activation_at(QKV / 64, ROW_TILE, 0, 0), to_v = activation_at(QKV / 64, 0, HEADS, 0);
  AttentionShare share;
  bool more = deal.next(share);
  enter();
#pragma unroll 1
  for (; more; more = deal.next(share)) {
    const AttentionUnit u(args, memory, share.unit, HEIGHT);
    const int pieces = 2 * share.tiles(u), top = HEIGHT == ROW_TILE ? u.row : u.row / ROW_TILE * ROW_TILE;
    bring(shared + S_Q, shared + BAR_Q, shared + q_empty, q.parity, memory.wide() + activation_at(QKV / 64, top, u.head, 0));
    q.advance();
    const unsigned char* from = memory.wide() + (u.first_tile + share.tile) * step + activation_at(QKV / 64, 0, HEADS + u.head, 0);
#pragma unroll 1
    for (int i = 0; i < pieces; i++) {  // K and V by turns
      const uint32_t full = shared + BAR_KV + 8 * at.stage;
      bring(shared + S_KV + at.stage * TILE_BYTES, full, full + 8 * KV_SLOTS, at.parity, from);
      at.advance();
      from += i % 2 ? step - to_v : to_v;
    }
  }
}

// Keys that a row does not see get no weight: those outside of [begin, end), counted from this thread's first one. `s`: its scores of two rows
__device__ __forceinline__ void mask_keys(float (&s)[KEYS / 2], const int (&begin)[2], const int (&end)[2]) {
#pragma unroll
  for (int i = 0; i < KEYS / 2; i++) {
    const int key = 8 * (i >> 2) + (i & 1), r = i >> 1 & 1;
    if (key < begin[r] || key >= end[r]) s[i] = -INFINITY;
  }
}

struct AttentionConsumer {
  float s[KEYS / 2];
  uint32_t p[KEYS / 16][4], p_lo[KEYS / 16][4];
  float o[32], total[32];
  float highest[2], sum[2];

  // S = Q K^T, the small products first
  __device__ __forceinline__ void issue_scores(uint32_t q, uint32_t k) {
    constexpr uint64_t K_MAJOR = wgmma_descriptor<128>(16, 1024);
    const uint64_t qd = wgmma_at(K_MAJOR, q), kd = wgmma_at(K_MAJOR, k);
    constexpr int LO = 2 * IMAGE;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) Wgmma<KEYS>::ss<0>(s, wgmma_further(qd, LO + 32 * i), wgmma_further(kd, 32 * i), i != 0);
#pragma unroll
    for (int i = 0; i < 4; i++) Wgmma<KEYS>::ss<0>(s, wgmma_further(qd, 32 * i), wgmma_further(kd, LO + 32 * i), 1);
#pragma unroll
    for (int i = 0; i < 4; i++) Wgmma<KEYS>::ss<0>(s, wgmma_further(qd, 32 * i), wgmma_further(kd, 32 * i), 1);
    wgmma_commit();
  }
  // O = P V of this tile
  __device__ __forceinline__ void issue_output(uint32_t v) {
    constexpr uint64_t N_MAJOR = wgmma_descriptor<128>(IMAGE, 1024);  // one slab
    const uint64_t vd = wgmma_at(N_MAJOR, v);
    constexpr int LO = 2 * IMAGE / 16;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) Wgmma<64>::rs<1>(o, p_lo[i], vd + 128 * i, i != 0);
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) Wgmma<64>::rs<1>(o, p[i], vd + LO + 128 * i, 1);
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) Wgmma<64>::rs<1>(o, p[i], vd + 128 * i, 1);
    wgmma_commit();
  }

  // Both, product by product: of products that follow each other in one sum, each waits for the one before.
  __device__ __forceinline__ void issue_both(uint32_t q, uint32_t k, uint32_t v) {
    constexpr uint64_t K_MAJOR = wgmma_descriptor<128>(16, 1024), N_MAJOR = wgmma_descriptor<128>(IMAGE, 1024);
    const uint64_t qd = wgmma_at(K_MAJOR, q), kd = wgmma_at(K_MAJOR, k), vd = wgmma_at(N_MAJOR, v);
    constexpr int LO = 2 * IMAGE;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 12; i++) {
      const int j = i % 4;
      Wgmma<KEYS>::ss<0>(s, wgmma_further(qd, (i < 4 ? LO : 0) + 32 * j), wgmma_further(kd, (i / 4 == 1 ? LO : 0) + 32 * j), i != 0);
      Wgmma<64>::rs<1>(o, i < 4 ? p_lo[j] : p[j], wgmma_further(vd, (i / 4 == 1 ? LO : 0) + 2048 * j), i != 0);
    }
    wgmma_commit();
  }

  // Scores become p hi and lo. `c`: from scores to exponents of 2. Returns by what the output so far must be multiplied.
  __device__ __forceinline__ void probabilities(float c, float (&rescale)[2]) {
    float m[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      // As a tree: a chain of 16 would be waited for.
      float t[KEYS / 4];
#pragma unroll
      for (int i = 0; i < KEYS / 4; i++) t[i] = s[i / 2 * 4 + r * 2 + i % 2];
#pragma unroll
      for (int n = KEYS / 8; n; n /= 2)
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++)
          if (i < n) t[i] = fmaxf(t[i], t[i + n]);
      m[r] = quad_max(fmaxf(highest[r], t[0]));
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      rescale[r] = highest[r] == -INFINITY ? 0.f : exp2_approx((highest[r] - m[r]) * c);
      highest[r] = m[r];
      sum[r] *= rescale[r];
      if (m[r] == -INFINITY) m[r] = 0.f;  // no key seen so far
    }
#pragma unroll
    for (int i = 0; i < KEYS / 2; i += 2) {
      const int r = i >> 1 & 1;
      const float a = exp2_approx(fmaf(s[i] - m[r], c, static_cast<float>(P_EXPONENT))),
                  b = exp2_approx(fmaf(s[i + 1] - m[r], c, static_cast<float>(P_EXPONENT)));
      sum[r] += a + b;
      const Split x = split(a, b);
      p[i / 8][i / 2 % 4] = x.hi;
      p_lo[i / 8][i / 2 % 4] = x.lo;
    }
  }
};

// log2(e) / 8 for scores of scaled Q and K. Never 0 or infinite: a masked score is -infinity and one of zeros 0, and times that they would not be numbers.
__device__ __forceinline__ float score_scale(float inverse_scale) {
  return fminf(fmaxf(SCORE_SCALE * inverse_scale * inverse_scale, FLT_MIN), FLT_MAX);
}

/* `inverse_scale` of Q and K. The result has V's scale. enter() returns when Q, K and V are there; meanwhile the
   first unit is begun on whatever lies in shared memory, as far as the probabilities: instructions that run for the
   first time come from far away, and these are the same. */
template <class Enter>
__device__ __forceinline__ void attention(uint32_t shared, const ExactArgs& args, float inverse_scale, Enter enter) {
  const Memory memory(args);
  Ring<1> q_ring;
  KvRing k, v;  // K and V take places by turns
  v.advance();
  const auto next = [](KvRing& ring) { ring.advance(), ring.advance(); };
  const auto full = [&](const KvRing& ring) { return shared + BAR_KV + 8 * ring.stage; };
  const auto release = [&](KvRing& ring) {
    if (thread_index() % 128 == 0) mbarrier_arrive(full(ring) + 8 * KV_SLOTS);
    next(ring);
  };
  const int thread = thread_index(), warp = thread / 32, lane = thread % 32, group = uniform_group();
  const float c = score_scale(inverse_scale);
  const int units = memory.rows / ROW_TILE * HEADS;
  int unit = crew.rank;
#pragma unroll 1
  for (int dry = anew(1); dry || unit < units;) {
    const AttentionUnit u(args, memory, unit);
    const int first_row = u.row + 64 * group;
    // The keys that all rows of this warpgroup see, and those of this thread's two rows.
    const int bottom = args.rows - 1;
    const auto begins = [&](int row) { return sequence_begin(args, min(row, bottom)); };
    const auto ends = [&](int row) { return args.causal ? min(row, bottom) + 1 : begins(row) + args.seq_len; };
    const int all_begin = begins(first_row + 63), all_end = ends(first_row);

    AttentionConsumer x;
#pragma unroll
    for (int i = 0; i < 32; i++) x.total[i] = x.o[i] = 0.f;
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) x.s[i] = 0.f;
#pragma unroll
    for (int r = 0; r < 2; r++) x.highest[r] = -INFINITY, x.sum[r] = 0.f;
    const uint32_t q = shared + S_Q + group * IMAGE;
    if (!dry) {
      mbarrier_wait_or_fault(shared + BAR_Q, q_ring.parity);
      q_ring.advance();
      mbarrier_wait_or_fault(full(k), k.parity);
    }
    x.issue_scores(q, shared + S_KV + k.stage * TILE_BYTES);
    wgmma_wait<0>();
    if (!dry && group == 1) named_barrier_arrive(TURN_BARRIER, CONSUMERS);
    const int key_end = (u.first_tile + u.tiles) * ROW_TILE;
#pragma unroll 1
    for (int key = dry ? key_end - KEYS : u.first_tile * ROW_TILE, half = 0;; key += KEYS, half ^= 1) {
      if (key < all_begin || key + KEYS > all_end) {
        const int lane = thread_index() % 32, row = first_row + warp % 4 * 16 + lane / 4, left = key + lane % 4 * 2;
        const int begin[2] = {begins(row) - left, begins(row + 8) - left}, end[2] = {ends(row) - left, ends(row + 8) - left};
        mask_keys(x.s, begin, end);
      }
      float rescale[2];
      x.probabilities(c, rescale);
      if (dry) break;
      const bool more = key + KEYS < key_end;
      if (more) {
        if (half) mbarrier_wait_or_fault(full(k), k.parity);
        if (!half) mbarrier_wait_or_fault(full(v), v.parity);
        named_barrier_sync(TURN_BARRIER + group, CONSUMERS);
        x.issue_both(q, shared + S_KV + k.stage * TILE_BYTES + (half ^ 1) * IMAGE, shared + S_KV + v.stage * TILE_BYTES + half * IMAGE);
      } else {
        named_barrier_sync(TURN_BARRIER + group, CONSUMERS);
        if (!half) mbarrier_wait_or_fault(full(v), v.parity);
        x.issue_output(shared + S_KV + v.stage * TILE_BYTES + half * IMAGE);
      }
      if (more || group == 0) named_barrier_arrive(TURN_BARRIER + 1 - group, CONSUMERS);
      wgmma_wait<0>();
      if (!half) release(k);  // its second half was just multiplied
      if (half) release(v);
#pragma unroll
      for (int j = 0; j < 32; j++) x.total[j] = fmaf(x.total[j], rescale[j >> 1 & 1], x.o[j]);
      if (!more) break;
    }
    if (dry) {
      enter();
      dry = anew(0);
      continue;
    }
    if (thread_index() % 128 == 0) mbarrier_arrive(shared + BAR_Q + 8);
    const float share[2] = {1.f / quad_sum(x.sum[0]), 1.f / quad_sum(x.sum[1])};
    unsigned char* to = memory.h() + activation_at(D / 64, first_row, u.head, 0) + warp % 4 * BOX_BYTES;
    store_split<64>(shared + S_BOX + warp * BOX_BYTES, to, to + 2 * IMAGE, lane, 0, [&](int i, float(&v)[4]) {
#pragma unroll
      for (int j = 0; j < 4; j++) v[j] = x.total[4 * i + j] * share[j >> 1];
    });
    unit += crew.size;
  }
}

}  // namespace exact90
