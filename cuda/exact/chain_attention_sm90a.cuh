/* h = softmax(Q K^T / 8) V of every head for the exact chain, q, k and v and the result as its operands.

   A block has 64 rows of one head, its two warpgroups by turns a tile of 64 rows of keys; what they have of the sums meets in shared memory. Rows come as
   they lie, whichever sequences they belong to, and see the keys of their own. A row's scales are of 32 columns: of q and k they multiply sums of 32, of v,
   where rows are what is summed over, they multiply the probabilities, once for each half of its columns. Each tile's P V starts from zero, small products
   first, and is added in fp32: the tensor cores cut sums off. grid: (HEADS, rows / 64); 288 threads; SHARED_BYTES bytes of
   shared memory. Limiter: latency. */
#pragma once

#include "common/exp2.cuh"
#include "common/mbarrier_sm90a.cuh"
#include "common/shared_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "common/tma_sm90a.cuh"
#include "common/wgmma_sm90a.cuh"
#include "exact/chain_operand_sm90a.cuh"

namespace exact90 {

struct ChainAttention {
  static constexpr int ROWS = 64, KEYS = 64, GROUPS = 2, SLOTS = 2;  // SLOTS: of each warpgroup's ring
  static constexpr int THREADS = 128 * GROUPS + 32;
  static constexpr int TILE_BYTES = 2 * IMAGE, SCALES_BYTES = 2 * TILE_ROWS * 4;  // of 64 rows of a head
  // From the 1024-byte aligned start: Q, then K and V by turns; their scales likewise; what the second warpgroup hands over; barriers
  static constexpr int TILES = 1 + 2 * GROUPS * SLOTS, SCALES = TILES * TILE_BYTES, SUMS = SCALES + TILES * SCALES_BYTES;
  static constexpr int SUM_BYTES = 36 * 4 * 128, BARRIERS = SUMS + SUM_BYTES, SHARED_BYTES = BARRIERS + 8 * (1 + 3 * GROUPS * SLOTS) + SHARED_ALIGNMENT;
  static_assert(SHARED_BYTES <= MOST_SHARED, "shared memory of one block");

  uint32_t base;
  __device__ __forceinline__ uint32_t tile(int index) const { return base + index * TILE_BYTES; }
  __device__ __forceinline__ uint32_t scales(int index) const { return base + SCALES + index * SCALES_BYTES; }
  static __device__ __forceinline__ int k_of(int group, int slot) { return 1 + 2 * (group * SLOTS + slot); }
  __device__ __forceinline__ uint32_t q_full() const { return base + BARRIERS; }
  // Full barriers of K and V, empty one of both
  __device__ __forceinline__ uint32_t barrier(int group, int slot, int which) const { return base + BARRIERS + 8 + 24 * (group * SLOTS + slot) + 8 * which; }
};

// The tiles of keys that a block's rows see
struct ChainKeys {
  int seq_len, rows, causal, first_tile, tiles;

  __device__ __forceinline__ ChainKeys(const ExactArgs& args, int row) : seq_len(args.seq_len), rows(args.rows), causal(args.causal) {
    first_tile = begin(row) / TILE_ROWS, tiles = (end(row + ChainAttention::ROWS - 1) - 1) / TILE_ROWS + 1 - first_tile;
  }
  __device__ __forceinline__ int within(int row) const { return min(row, rows - 1); }
  __device__ __forceinline__ int begin(int row) const { return seq_len >= rows ? 0 : within(row) / seq_len * seq_len; }
  __device__ __forceinline__ int end(int row) const { return causal ? within(row) + 1 : begin(row) + seq_len; }
};

// By one thread
__device__ __forceinline__ void chain_feed_attention(const ChainAttention& block, const Operand& qkv, const ChainKeys& keys, int row_tile, int head) {
  using A = ChainAttention;
  const auto bring = [&](int index, int from_tile, int column, uint32_t full) {
    mbarrier_expect(full, A::TILE_BYTES + A::SCALES_BYTES);
    bulk_load(block.tile(index), qkv.image(from_tile, column), A::TILE_BYTES, full);
    bulk_load(block.scales(index), qkv.inverse_at(from_tile * TILE_ROWS, 2 * column), A::SCALES_BYTES, full);
  };
  pdl_wait();
  bring(0, row_tile, head, block.q_full());
#pragma unroll 1
  for (int i = 0; i < keys.tiles; i++) {
    const int group = i % A::GROUPS, turn = i / A::GROUPS, slot = turn % A::SLOTS, index = A::k_of(group, slot);
    mbarrier_wait_or_fault(block.barrier(group, slot, 2), turn / A::SLOTS % 2 ^ 1);
    bring(index, keys.first_tile + i, HEADS + head, block.barrier(group, slot, 0));
    bring(index + 1, keys.first_tile + i, 2 * HEADS + head, block.barrier(group, slot, 1));
  }
}

// The sums of a warpgroup over its tiles: row lane / 4 of the warp's 16, and eight further
struct ChainSums {
  float o[32], highest[2], total[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 32; i++) o[i] = 0.f;
#pragma unroll
    for (int u = 0; u < 2; u++) highest[u] = -INFINITY, total[u] = 0.f;
  }

  // Scores of the tile, from what q and k hold of them
  __device__ __forceinline__ void scores(float (&s)[32], const ChainAttention& block, int k, const float (&of_q)[2][2]) const {
    constexpr uint64_t K_MAJOR = wgmma_descriptor<128>(16, 1024);
    const uint64_t qd = wgmma_at(K_MAJOR, block.tile(0)), kd = wgmma_at(K_MAJOR, block.tile(k));
    float d[2][32];
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 6; i++)
#pragma unroll
      for (int part = 0; part < 2; part++)
        Wgmma<64>::ss<0>(d[part], wgmma_further(qd, (i < 2 ? IMAGE : 0) + part * 64 + i % 2 * 32),
                         wgmma_further(kd, (i / 2 == 1 ? IMAGE : 0) + part * 64 + i % 2 * 32), i != 0);
    wgmma_commit();
    wgmma_wait<0>();
    const uint32_t from = block.scales(k) + thread_index() % 4 * 8;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const float2 low = load_shared_2(from + 32 * i), high = load_shared_2(from + 32 * i + TILE_ROWS * 4);
#pragma unroll
      for (int u = 0; u < 2; u++) {
        const int at = 4 * i + 2 * u;
        s[at] = fmaf(d[0][at] * of_q[0][u], low.x, d[1][at] * of_q[1][u] * high.x);
        s[at + 1] = fmaf(d[0][at + 1] * of_q[0][u], low.y, d[1][at + 1] * of_q[1][u] * high.y);
      }
    }
  }

  // Scores, which are exponents of 2, become probabilities. Returns by what the sums so far must be multiplied.
  __device__ __forceinline__ void probabilities(float (&s)[32], float (&rescale)[2]) {
#pragma unroll
    for (int u = 0; u < 2; u++) {
      float most[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
      for (int i = 0; i < 16; i++) most[i % 4] = fmaxf(most[i % 4], s[i / 2 * 4 + 2 * u + i % 2]);
      float m = quad_max(fmaxf(fmaxf(highest[u], fmaxf(most[0], most[1])), fmaxf(most[2], most[3])));
      rescale[u] = highest[u] == -INFINITY ? 0.f : exp2_approx(highest[u] - m);
      highest[u] = m;
      total[u] *= rescale[u];
      if (m == -INFINITY) m = 0.f;  // no key seen so far
#pragma unroll
      for (int i = 0; i < 16; i++) {
        float& p = s[i / 2 * 4 + 2 * u + i % 2];
        p = exp2_approx(p - m);
        total[u] += p;
      }
    }
  }

  // P V. The scales of its rows multiply the probabilities, those of each half of the columns once.
  __device__ __forceinline__ void add_values(const float (&p)[32], const float (&rescale)[2], const ChainAttention& block, int v) {
    constexpr uint64_t N_MAJOR = wgmma_descriptor<128>(IMAGE, 1024);
    constexpr float ROOM = 8192.f;  // probabilities are so much larger than they should be: fp16 holds them well
    uint32_t hi[2][4][4], lo[2][4][4];
    float d[2][16], up[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint32_t from = block.scales(v) + half * (TILE_ROWS * 4) + thread_index() % 4 * 8;
      float2 scale[8];
      float most = 0.f;
#pragma unroll
      for (int i = 0; i < 8; i++) {
        scale[i] = load_shared_2(from + 32 * i);
        most = fmaxf(most, fmaxf(scale[i].x, scale[i].y));
      }
      most = quad_max(most);
      const float down = ROOM * inverse(most);
      up[half] = most * (1.f / ROOM);
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const float2 by = make_float2(scale[i].x * down, scale[i].y * down);
#pragma unroll
        for (int u = 0; u < 2; u++) {
          const Split both = split(p[4 * i + 2 * u] * by.x, p[4 * i + 2 * u + 1] * by.y);
          hi[half][i / 2][i % 2 * 2 + u] = both.hi, lo[half][i / 2][i % 2 * 2 + u] = both.lo;
        }
      }
    }
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 12; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const uint64_t vd = wgmma_at(N_MAJOR, block.tile(v) + half * 64);
        Wgmma<32>::rs<1>(d[half], i < 4 ? lo[half][i % 4] : hi[half][i % 4], wgmma_further(vd, (i / 4 == 1 ? IMAGE : 0) + i % 4 * 2048), i != 0);
      }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < 32; i++) o[i] = fmaf(o[i], rescale[i / 2 % 2], d[i / 16][i % 16] * up[i / 16]);
  }
};

// The second warpgroup hands its sums over, each thread to the one that has the same of the first, which finishes them.
__device__ __forceinline__ void chain_finish_attention(ChainSums& sums, const ChainAttention& block, const Operand& to, int group, int warp, int row_tile,
                                                       int head) {
  using A = ChainAttention;
#pragma unroll
  for (int u = 0; u < 2; u++) sums.total[u] = quad_sum(sums.total[u]);
  const uint32_t sums_at = block.base + A::SUMS + threadIdx.x % 128 * 16;
  if (group == 1) {
#pragma unroll
    for (int i = 0; i < 8; i++) store_shared_4(sums_at + 2048 * i, make_float4(sums.o[4 * i], sums.o[4 * i + 1], sums.o[4 * i + 2], sums.o[4 * i + 3]));
    store_shared_4(sums_at + 2048 * 8, make_float4(sums.highest[0], sums.highest[1], sums.total[0], sums.total[1]));
    named_barrier_arrive(1, 256);
    return;
  }
  named_barrier_sync(1, 256);
  const float4 other = load_shared_4(sums_at + 2048 * 8);
  float mine[2], theirs[2];
#pragma unroll
  for (int u = 0; u < 2; u++) {
    const float highest = u ? other.y : other.x, most = fmaxf(sums.highest[u], highest);
    const float share = exp2_approx(sums.highest[u] - most), rest = exp2_approx(highest - most);  // a row sees a key: most is finite
    const float inverse_sum = 1.f / fmaf(sums.total[u], share, (u ? other.w : other.z) * rest);
    mine[u] = share * inverse_sum, theirs[u] = rest * inverse_sum;
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float v[16];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float4 from = load_shared_4(sums_at + 2048 * (4 * half + i));
      const float* const o = sums.o + 16 * half + 4 * i;
      v[4 * i] = fmaf(o[0], mine[0], from.x * theirs[0]), v[4 * i + 1] = fmaf(o[1], mine[0], from.y * theirs[0]);
      v[4 * i + 2] = fmaf(o[2], mine[1], from.z * theirs[1]), v[4 * i + 3] = fmaf(o[3], mine[1], from.w * theirs[1]);
    }
    store_part(to, v, row_tile * TILE_ROWS + warp * 16, head * HEAD_DIM + PART * half, block.tile(0) + warp * 2048);
  }
}

__device__ __forceinline__ void chain_attention(const ExactArgs& args, const Operand& qkv, const Operand& to) {
  using A = ChainAttention;
  const A block{shared_base()};
  const int warp = uniform_warp(), group = warp / 4, head = blockIdx.x, row_tile = blockIdx.y;
  if (threadIdx.x == 0) {
    mbarrier_init(block.q_full(), 1);
    for (int i = 0; i < A::GROUPS * A::SLOTS; i++) {
      mbarrier_init(block.barrier(0, i, 0), 1);
      mbarrier_init(block.barrier(0, i, 1), 1);
      mbarrier_init(block.barrier(0, i, 2), 128);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  pdl_launch();
  const ChainKeys keys(args, row_tile * TILE_ROWS);
  if (group == A::GROUPS) {
    if (elect_one()) chain_feed_attention(block, qkv, keys, row_tile, head);
    return;
  }
  const int lane = threadIdx.x % 32, own = warp % 4 * 16 + lane / 4, row = row_tile * TILE_ROWS + own;
  ChainSums sums;
  sums.clear();
  mbarrier_wait_or_fault(block.q_full(), 0);
  float of_q[2][2];
#pragma unroll
  for (int part = 0; part < 2; part++)
#pragma unroll
    for (int u = 0; u < 2; u++) of_q[part][u] = load_shared(block.scales(0) + part * (TILE_ROWS * 4) + (own + 8 * u) * 4) * SCORE_SCALE;
  Ring<A::SLOTS> at;
#pragma unroll 1
  for (int i = group; i < keys.tiles; i += A::GROUPS, at.advance()) {
    const int k = A::k_of(group, at.stage), key = (keys.first_tile + i) * TILE_ROWS + lane % 4 * 2;
    float s[32], rescale[2];
    mbarrier_wait_or_fault(block.barrier(group, at.stage, 0), at.parity);
    sums.scores(s, block, k, of_q);
#pragma unroll
    for (int u = 0; u < 2; u++) {
      const int begin = keys.begin(row + 8 * u) - key, end = keys.end(row + 8 * u) - key;
      if (begin <= 0 && end > 7 * 8 + 1) continue;
#pragma unroll
      for (int j = 0; j < 16; j++)
        if (j / 2 * 8 + j % 2 < begin || j / 2 * 8 + j % 2 >= end) s[j / 2 * 4 + 2 * u + j % 2] = -INFINITY;
    }
    sums.probabilities(s, rescale);
    mbarrier_wait_or_fault(block.barrier(group, at.stage, 1), at.parity);
    sums.add_values(s, rescale, block, k + 1);
    mbarrier_arrive(block.barrier(group, at.stage, 2));
  }
  chain_finish_attention(sums, block, to, group, warp, row_tile, head);
}

}  // namespace exact90
