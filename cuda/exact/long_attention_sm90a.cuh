/* att = softmax(Q K^T / 8) V of every head for many rows, as exact_attention_sm90a.cuh has units, tiles and images, by another loop: Q in registers, the
   exponentials of a step of 64 keys under P V of the step before, and the largest score looked for only where a step's sum asks for it.

   Where there are blocks for it, a unit has 64 rows, and the warpgroups take its tiles of keys by turns.
   Where all units have the same tiles of keys, and whole units would leave the last round half empty, the tiles of that round are dealt out in equal runs: a
   block may end a unit that another one has begun. Each leaves what it has of such a unit in memory, and a warp whose like have all done so adds up, in the
   order of the keys. So nobody waits for anybody. Limiter: wgmma, 768 clocks for 64 rows x 64 keys. */
#pragma once

#include "exact/exact_attention_sm90a.cuh"
#include "exact/long_work_sm90a.cuh"

namespace exact90 {

/* A row's probabilities are 2^(c s + offset) of its scores s: 2^LONG_EXPONENT for the largest one that it knew of when the offset was found. How that was
   rounded does not matter, as the row's sum takes it out again. Where 16 of a step add up to more than LONG_MOST, a larger one is looked for: so each is below
   2^15, inside fp16, and what is lost below is 2^-33 of the largest. Beyond LONG_WILD rounding could lead out of that; there each step looks, and subtracts. */
constexpr float LONG_EXPONENT = 8.f, LONG_MOST = 32768.f, LONG_WILD = 1048576.f;

/* Where blocks leave parts of units: for each block two, one that a unit begins with and one that it goes on with, of a warp's sums as lanes have them. In
   front of them, how many parts of the unit that a block has begun are there, for each warp; 0 before. They lie where other forms of the
   exact block have parts of products. */
struct LongParts {
  static constexpr int VECTORS = 9, BYTES = VECTORS * 512;  // of a warp: O, offsets and sums, 16 bytes a lane
  static constexpr int BLOCKS = 170, COUNTERS_BYTES = 8192;
  static_assert(4 * WARPS * BLOCKS <= COUNTERS_BYTES && COUNTERS_BYTES + 2 * BLOCKS * WARPS * BYTES <= PARTIAL_ROWS * ROW_BYTES, "room");
  unsigned char* base;

  __device__ __forceinline__ explicit LongParts(const Memory& memory) : base(reinterpret_cast<unsigned char*>(memory.partial())) {}
  __device__ __forceinline__ unsigned* counters(int block) const { return reinterpret_cast<unsigned*>(base) + block * WARPS; }
  __device__ __forceinline__ float4* at(int block, bool begins, int warp) const {
    return reinterpret_cast<float4*>(base + COUNTERS_BYTES + ((2 * block + begins) * WARPS + warp) * BYTES);
  }
};

// What a block does, in its order; the same for both roles: its run of tiles of the units that are dealt out, then whole units.
struct LongDeal {
  LongRuns runs;
  unsigned at, end;
  WholeUnits whole;

  __device__ __forceinline__ LongDeal(const LongRuns& runs, int units) : runs(runs), whole{runs.dealt + crew.rank, units} {
    const unsigned tiles = runs.dealt * runs.each;
    at = min(crew.rank * runs.run, tiles), end = min(at + runs.run, tiles);
  }
  __device__ __forceinline__ bool next(AttentionShare& share) {
    if (at >= end) return whole.next(share);
    const int unit = at / runs.each, tile = at - unit * runs.each;
    share = {unit, tile, min(runs.each - tile, static_cast<int>(end - at))};
    at += share.some;
    return true;
  }
};

// Of Q, on which all threads that compute arrive: they read it themselves.
constexpr int Q_EMPTY = BAR_END;

struct LongConsumer {
  uint32_t q[2][4][4];     // hi and lo, 16 columns each
  uint32_t p[2][2][4][4];  // of each half of a tile
  float s[32], o[32], total[32];
  float highest[2], offset[2], sum[2], rescale[2][2];  // rescale: of what was summed up before a half's O
  bool wild;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 32; i++) total[i] = o[i] = s[i] = 0.f;
#pragma unroll
    for (int r = 0; r < 2; r++) highest[r] = -INFINITY, offset[r] = INFINITY, sum[r] = 0.f, rescale[0][r] = rescale[1][r] = 1.f;
    wild = false;
  }
  // `from`: the warp's 16 rows
  __device__ __forceinline__ void load_queries(uint32_t from, int lane) {
#pragma unroll
    for (int part = 0; part < 2; part++)
#pragma unroll
      for (int i = 0; i < 4; i++) ldmatrix_x4(from + part * 2 * IMAGE + swizzle<128>(lane % 16, 2 * i + lane / 16), q[part][i]);
  }
  // S = Q K^T, the small products first
  __device__ __forceinline__ void issue_scores(uint32_t k) {
    constexpr uint64_t K_MAJOR = wgmma_descriptor<128>(16, 1024);
    const uint64_t kd = wgmma_at(K_MAJOR, k);
#pragma unroll
    for (int i = 0; i < 12; i++)
      Wgmma<KEYS>::rs<0>(s, q[i < 4][i % 4], wgmma_further(kd, (i / 4 == 1 ? 2 * IMAGE : 0) + 32 * (i % 4)), i != 0);
    wgmma_commit();
  }
  // O = P V of half a tile
  template <int HALF>
  __device__ __forceinline__ void issue_output(uint32_t v) {
    constexpr uint64_t N_MAJOR = wgmma_descriptor<128>(IMAGE, 1024);  // one slab
    const uint64_t vd = wgmma_at(N_MAJOR, v + HALF * IMAGE);
#pragma unroll
    for (int i = 0; i < 12; i++)
      Wgmma<64>::rs<1>(o, p[HALF][i < 4][i % 4], wgmma_further(vd, (i / 4 == 1 ? 2 * IMAGE : 0) + 2048 * (i % 4)), i != 0);
    wgmma_commit();
  }
  // Finds the largest scores, and offsets by them; `used`: those of this step.
  template <int HALF>
  __device__ __forceinline__ void look(float c, float (&used)[2]) {
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float m[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
      for (int i = 0; i < 16; i++) m[i % 4] = fmaxf(m[i % 4], s[i / 2 * 4 + 2 * r + i % 2]);
      highest[r] = quad_max(fmaxf(fmaxf(highest[r], fmaxf(m[0], m[1])), fmaxf(m[2], m[3])));
      const bool none = highest[r] == -INFINITY;  // no key seen so far
      base[r] = none ? 0.f : highest[r];
      used[r] = fmaf(-base[r], c, LONG_EXPONENT);
      rescale[HALF][r] = exp2_approx(used[r] - offset[r]);
      if (!none) offset[r] = used[r];
    }
    wild = __any_sync(~0u, fmaxf(fabsf(used[0]), fabsf(used[1])) > LONG_WILD);
    if (!wild) return;
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] -= base[i >> 1 & 1];
    used[0] = used[1] = LONG_EXPONENT;
  }
  // Scores become p hi and lo. `c`: from scores to exponents of 2
  template <int HALF>
  __device__ __forceinline__ void probabilities(float c) {
    float used[2] = {offset[0], offset[1]}, step[2];
    rescale[HALF][0] = rescale[HALF][1] = 1.f;
    // One piece of code for both times: a loop over tiles of more than 32 KB does not stay at hand.
    bool looks = wild, looked = false;
#pragma unroll 1
    do {
      if (looks) {
        look<HALF>(c, used);
        looked = true;
      }
      step[0] = step[1] = 0.f;
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        const int r = i >> 1 & 1;
        const float a = exp2_approx(fmaf(s[i], c, used[r])), b = exp2_approx(fmaf(s[i + 1], c, used[r]));
        step[r] += a + b;
        const Split x = split(a, b);
        p[HALF][0][i / 8][i / 2 % 4] = x.hi;
        p[HALF][1][i / 8][i / 2 % 4] = x.lo;
      }
      // Before the first key the offset is infinite, and this sum infinite or not a number. A NaN stays one.
      looks = !looked && __any_sync(~0u, !(step[0] <= LONG_MOST && step[1] <= LONG_MOST));
    } while (looks);
#pragma unroll
    for (int r = 0; r < 2; r++) sum[r] = fmaf(sum[r], rescale[HALF][r], step[r]);
  }
  template <int HALF>
  __device__ __forceinline__ void add_output() {
#pragma unroll
    for (int i = 0; i < 32; i++) total[i] = fmaf(total[i], rescale[HALF][i >> 1 & 1], o[i]);
  }

  // The parts of a unit, this warp's rows, of which these are `own`, are added up in their order.
  __device__ __forceinline__ void add_parts(const LongParts& memory, int first, int own, int parts, int warp, int lane) {
    const float4 stats = make_float4(offset[0], offset[1], sum[0], sum[1]);
    float least[2] = {offset[0], offset[1]}, mine[32];
#pragma unroll 1
    for (int i = 0; i < parts; i++) {
      if (i == own) continue;
      const float4 v = __ldcg(memory.at(first + i, i == 0, warp) + lane + 32 * 8);
      least[0] = fminf(least[0], v.x), least[1] = fminf(least[1], v.y);
    }
#pragma unroll
    for (int i = 0; i < 32; i++) mine[i] = total[i], total[i] = 0.f;
    sum[0] = sum[1] = 0.f;
#pragma unroll 1
    for (int i = 0; i < parts; i++) {
      const float4* const from = memory.at(first + i, i == 0, warp) + lane;
      float4 x[8], v = stats;
#pragma unroll
      for (int j = 0; j < 8; j++) x[j] = make_float4(mine[4 * j], mine[4 * j + 1], mine[4 * j + 2], mine[4 * j + 3]);
      if (i != own) {
        v = __ldcg(from + 32 * 8);
#pragma unroll
        for (int j = 0; j < 8; j++) x[j] = __ldcg(from + 32 * j);
      }
      const float by[2] = {exp2_approx(least[0] - v.x), exp2_approx(least[1] - v.y)};
      sum[0] = fmaf(v.z, by[0], sum[0]), sum[1] = fmaf(v.w, by[1], sum[1]);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        float* const t = total + 4 * j;
        t[0] = fmaf(x[j].x, by[0], t[0]), t[1] = fmaf(x[j].y, by[0], t[1]), t[2] = fmaf(x[j].z, by[1], t[2]), t[3] = fmaf(x[j].w, by[1], t[3]);
      }
    }
  }

  // The first warpgroup adds what the second one has of the same rows, by way of shared memory; whether this is the first.
  __device__ __forceinline__ bool add_half(uint32_t shared, int group, int warp, int lane) {
    const uint32_t at = shared + warp * LongParts::BYTES + 16 * lane;
    if (group == 1) {
#pragma unroll
      for (int i = 0; i < 8; i++) store_shared_4(at + 512 * i, make_float4(total[4 * i], total[4 * i + 1], total[4 * i + 2], total[4 * i + 3]));
      store_shared_4(at + 512 * 8, make_float4(offset[0], offset[1], sum[0], sum[1]));
    }
    named_barrier_sync(CONSUMER_BARRIER, CONSUMERS);
    if (group == 1) return false;
    const float4 v = load_shared_4(at + 512 * 8);
    const float least[2] = {fminf(offset[0], v.x), fminf(offset[1], v.y)};
    const float mine[2] = {exp2_approx(least[0] - offset[0]), exp2_approx(least[1] - offset[1])};
    const float other[2] = {exp2_approx(least[0] - v.x), exp2_approx(least[1] - v.y)};
    sum[0] = fmaf(v.z, other[0], sum[0] * mine[0]), sum[1] = fmaf(v.w, other[1], sum[1] * mine[1]);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const float4 x = load_shared_4(at + 512 * i);
      float* const t = total + 4 * i;
      t[0] = fmaf(x.x, other[0], t[0] * mine[0]), t[1] = fmaf(x.y, other[0], t[1] * mine[0]);
      t[2] = fmaf(x.z, other[1], t[2] * mine[1]), t[3] = fmaf(x.w, other[1], t[3] * mine[1]);
    }
    return true;
  }

  /* Whether all other parts of the unit are there, which then are added to this warp's; else it leaves its own. `first`: the block that has begun the unit;
     `own`: which of the `parts` this is. */
  __device__ __forceinline__ bool meet_parts(const LongParts& memory, int first, int own, int parts, int warp, int lane) {
    unsigned* const counter = memory.counters(first) + warp;
    const auto all_but = [&](unsigned there) {
      const unsigned count = __shfl_sync(~0u, there, 0);
      __syncwarp();  // what the first lane has acquired, all may read
      return count + 1 == static_cast<unsigned>(parts);
    };
    if (!all_but(lane == 0 ? load_acquire(counter) : 0)) {
      float4* const to = memory.at(first + own, own == 0, warp) + lane;
#pragma unroll
      for (int i = 0; i < 8; i++) __stcg(to + 32 * i, make_float4(total[4 * i], total[4 * i + 1], total[4 * i + 2], total[4 * i + 3]));
      __stcg(to + 32 * 8, make_float4(offset[0], offset[1], sum[0], sum[1]));
      __syncwarp();
      if (!all_but(lane == 0 ? add_ordered(counter, 1) : 0)) return false;
    }
    add_parts(memory, first, own, parts, warp, lane);
    return true;
  }
};

// The result has V's scale. HALVES: a block has a unit of 64 rows, of which each warpgroup has every second tile of keys.
template <bool HALVES, class Deal>
__device__ __forceinline__ void long_attention(uint32_t shared, const ExactArgs& args, Deal deal) {
  constexpr int HEIGHT = HALVES ? ROW_TILE / 2 : ROW_TILE;
  const Memory memory(args);
  Ring<1> q_ring;
  KvRing k, v;  // K and V take places by turns
  v.advance();
  const int thread = thread_index(), warp = thread / 32, lane = thread % 32, group = uniform_group();
  const auto full = [&](const KvRing& ring) { return shared + BAR_KV + 8 * ring.stage; };
  const auto place = [&](const KvRing& ring) { return shared + S_KV + ring.stage * TILE_BYTES; };
  const auto release = [&](const KvRing& ring) {
    if (thread_index() % 128 > 0) return;
    mbarrier_arrive(full(ring) + 8 * KV_SLOTS);
    if (HALVES) mbarrier_arrive(full(ring) + 8 * KV_SLOTS);  // for the other warpgroup, too
  };
  const auto next = [](KvRing& ring) {
#pragma unroll
    for (int i = 0; i < (HALVES ? 4 : 2); i++) ring.advance();
  };
  if (HALVES && group == 1) k.advance(), k.advance(), v.advance(), v.advance();
  AttentionShare share;
  bool more = deal.next(share);
  pdl_wait();
  const float inverse_scale = inverse(load(memory.scales() + SCALE_QK)), c = score_scale(inverse_scale);
#pragma unroll 1
  for (; more; more = deal.next(share)) {
    const AttentionUnit u(args, memory, share.unit, HEIGHT);
    const int all_tiles = share.tiles(u), tiles = HALVES ? (all_tiles + 1 - group) / 2 : all_tiles;
    const int first_row = HALVES ? u.row : u.row + 64 * group, bottom = args.rows - 1;
    // The keys that all rows of this warpgroup see, and those of this thread's two rows.
    const auto begins = [&](int row) { return sequence_begin(args, min(row, bottom)); };
    const auto ends = [&](int row) { return args.causal ? min(row, bottom) + 1 : begins(row) + args.seq_len; };
    const int all_begin = begins(first_row + 63), all_end = ends(first_row);
    LongConsumer x;
    x.clear();
    const int row = first_row + warp % 4 * 16 + lane / 4, own_begin[2] = {begins(row), begins(row + 8)}, own_end[2] = {ends(row), ends(row + 8)};
    const auto mask = [&](int key) {
      if (key >= all_begin && key + KEYS <= all_end) return;
      const int left = key + lane % 4 * 2, begin[2] = {own_begin[0] - left, own_begin[1] - left}, end[2] = {own_end[0] - left, own_end[1] - left};
      mask_keys(x.s, begin, end);
    };
    mbarrier_wait_or_fault(shared + BAR_Q, q_ring.parity);
    q_ring.advance();
    const auto attend = [&](int key) {
      x.load_queries(shared + S_Q + first_row / 64 % 2 * IMAGE + warp % 4 * BOX_BYTES, lane);
      mbarrier_wait_or_fault(full(k), k.parity);
      wgmma_fence();
      x.issue_scores(place(k));
      wgmma_wait<0>();
      mbarrier_arrive(shared + Q_EMPTY);  // behind what has used Q: it would pass load_queries(), and the next Q came too soon (H200)
      // A round begins with the scores of a tile's first half. Its p are found under P V of the tile before, those of the second half under that of the first.
#pragma unroll 1
      for (int left = tiles;; key += (HALVES ? 2 : 1) * ROW_TILE) {
        mask(key);
        x.probabilities<0>(c);
        wgmma_wait<0>();
        x.add_output<1>();
        if (left < tiles) {
          release(v);
          next(v);
        }
        wgmma_fence();
        x.issue_scores(place(k) + IMAGE);
        mbarrier_wait_or_fault(full(v), v.parity);
        wgmma_fence();
        x.issue_output<0>(place(v));
        wgmma_wait<1>();
        release(k);
        next(k);
        mask(key + KEYS);
        x.probabilities<1>(c);
        wgmma_wait<0>();
        x.add_output<0>();
        if (--left == 0) break;
        mbarrier_wait_or_fault(full(k), k.parity);
        wgmma_fence();
        x.issue_scores(place(k));
        wgmma_fence();
        x.issue_output<1>(place(v));
        wgmma_wait<1>();
      }
      wgmma_fence();
      x.issue_output<1>(place(v));
      wgmma_wait<0>();
      x.add_output<1>();
      release(v);
      next(v);
    };
    if (!HALVES || tiles > 0)
      attend((u.first_tile + share.tile + (HALVES ? group : 0)) * ROW_TILE);
    else
      mbarrier_arrive(shared + Q_EMPTY);
#pragma unroll
    for (int r = 0; r < 2; r++) x.sum[r] = quad_sum(x.sum[r]);
    if constexpr (HALVES) {
      mbarrier_wait_or_fault(shared + Q_EMPTY, 0);  // all have Q in registers
      if (!x.add_half(shared + S_Q, group, warp % 4, lane)) return;
    } else {
      if (tiles < u.tiles) {
        const unsigned begin = share.unit * u.tiles;
        const int first = begin / deal.runs.run, last = (begin + u.tiles - 1) / deal.runs.run;
        if (!x.meet_parts(LongParts(memory), first, crew.rank - first, last - first + 1, warp, lane)) continue;
      }
    }
    const float part[2] = {1.f / x.sum[0], 1.f / x.sum[1]};
    unsigned char* to = memory.h() + activation_at(D / 64, first_row, u.head, 0) + warp % 4 * BOX_BYTES;
    store_split<64>(shared + S_BOX + warp * BOX_BYTES, to, to + 2 * IMAGE, lane, 0, [&](int i, float(&value)[4]) {
#pragma unroll
      for (int j = 0; j < 4; j++) value[j] = x.total[4 * i + j] * part[j >> 1];
    });
  }
}

}  // namespace exact90
