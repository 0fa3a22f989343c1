/* C(rows, N) = epilogue(A(rows, K), B(K, N) fp32) to fp32's accuracy: the product of the exact chain, B as the caller stored it.

   A ring of stages of 64 of K. The copy engine brings A, which lies split already. Converter warps fetch patches of PART x PATCH of B, scale and split them,
   and lay both halves into the ring in the swizzled form that wgmma reads. The tensor cores cut sums off instead of rounding them, so each part of K is a sum
   of its own, small products first, and added in fp32 with its scales. Weights are inputs, written by nobody in the chain: a block
   has its first ones before it waits for A. Where K is split, the blocks of a cluster have a tile together.
   Grid: exact_chain_sm90a.cu; ChainShape::THREADS threads, SHARED_BYTES bytes of shared memory.
   Limiter: latency. At 256 rows the chain's 54.2 us become 51.0 without loads of weights, 50.0 without their conversion, 51.6 without A and 46.5 with a third
   of the products (H200, wrong numbers). */
#pragma once

#include "common/copy_sm90a.cuh"
#include "common/shared_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "common/tma_sm90a.cuh"
#include "common/wgmma_sm90a.cuh"
#include "exact/chain_operand_sm90a.cuh"
#include "exact/exchange_sm90a.cuh"

namespace exact90 {

constexpr int PATCH = 32;  // columns of B that have one scale

template <int N_, int K_, int WARPGROUPS_, int BN_, int SPLITS_>
struct ChainShape : Exchange<4 * WARPGROUPS_, BN_, SPLITS_> {
  using Sums = Exchange<4 * WARPGROUPS_, BN_, SPLITS_>;
  static constexpr int N = N_, K = K_, SPLITS = SPLITS_;  // SPLITS: blocks of a cluster that share a tile, each with its part of K
  static constexpr int WARPGROUPS = WARPGROUPS_, WARPS = 4 * WARPGROUPS, MULTIPLIERS = 32 * WARPS, BN = BN_;  // of 64 rows each
  static constexpr int K_TILES = K / 64 / SPLITS, PARTS = 2 * K_TILES;                                        // of a block
  // Behind those that multiply, three more warpgroups: a warp that brings A, and converters
  static constexpr int CONVERTING = 11, THREADS = MULTIPLIERS + 32 * (1 + CONVERTING);
  static constexpr int A_BYTES = WARPGROUPS * 2 * IMAGE, SLAB_BYTES = 64 * PATCH * 2, B_HALF = BN / PATCH * SLAB_BYTES, STAGE_BYTES = A_BYTES + 2 * B_HALF;
  static constexpr int ACROSS = BN / PATCH, PATCHES = ACROSS * PARTS, OF_STAGE = 2 * ACROSS;  // patches in a part's columns, in all, in a stage
  static constexpr int A_SCALES_BYTES = PARTS * TILE_ROWS * 4, SCALES_BYTES = WARPGROUPS * A_SCALES_BYTES + (PATCHES * 4 + 15) / 16 * 16, BIAS_BYTES = 4 * BN;
  static constexpr int BARRIERS_BYTES = 128, REST = SCALES_BYTES + BIAS_BYTES + BARRIERS_BYTES;
  static constexpr int ROOM = (MOST_SHARED - SHARED_ALIGNMENT - REST) / STAGE_BYTES, STAGES = ROOM < K_TILES ? ROOM : K_TILES;
  // From the aligned start: the ring, A's and B's inverse scales, the bias, barriers
  static constexpr int A_SCALES = STAGES * STAGE_BYTES, B_SCALES = A_SCALES + WARPGROUPS * A_SCALES_BYTES, BIAS = A_SCALES + SCALES_BYTES;
  static constexpr int FULL = BIAS + BIAS_BYTES, EMPTY = FULL + 8 * STAGES, SCALED = EMPTY + 8 * STAGES, RECEIVED = SCALED + 8;
  static constexpr int SHARED_BYTES = FULL + BARRIERS_BYTES + SHARED_ALIGNMENT;
  static constexpr int BOXES = SPLITS > 1 ? Sums::BYTES : 0;  // of the warps, where the ring was, behind what is exchanged
  static_assert(K % (64 * SPLITS) == 0 && N % BN == 0 && BN % PATCH == 0 && BN % (8 * SPLITS) == 0, "whole tiles");
  static_assert(STAGES >= 2 && BOXES + WARPS * 2048 <= STAGES * STAGE_BYTES && RECEIVED + 8 - FULL <= BARRIERS_BYTES, "fits");
};

// Patches first, first + CONVERTING, .. of B by a warp: 8 lanes a row, four rows at a time. They are counted across columns first. The next patch is asked for
// behind the fence, which waits for what its thread has asked for.
template <class S>
struct ChainConverter {
  static constexpr int PIECES = PART / 4;
  const float* b;
  bool aligned;
  float4 v[PIECES];

  __device__ __forceinline__ explicit ChainConverter(const float* b)
      : b(b + static_cast<size_t>(threadIdx.x % 32 / 8) * S::N + threadIdx.x % 8 * 4), aligned(reinterpret_cast<size_t>(b) % 16 == 0) {}
  template <bool ALIGNED>
  __device__ __forceinline__ void fetch_as(const float* from) {
#pragma unroll
    for (int i = 0; i < PIECES; i++) v[i] = fetch_4<ALIGNED>(from + static_cast<size_t>(4 * i) * S::N);
  }
  __device__ __forceinline__ void fetch(int patch) {
    const float* const from = b + static_cast<size_t>(patch / S::ACROSS * PART) * S::N + patch % S::ACROSS * PATCH;
    aligned ? fetch_as<true>(from) : fetch_as<false>(from);
  }
  __device__ __forceinline__ void run(uint32_t base, int first) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int patch = first; patch < S::PATCHES; patch += S::CONVERTING) {
      const int k_tile = patch / S::OF_STAGE, stage = k_tile % S::STAGES, half = patch / S::ACROSS % 2;
      const uint32_t place = base + stage * S::STAGE_BYTES + S::A_BYTES + patch % S::ACROSS * S::SLAB_BYTES + half * (S::SLAB_BYTES / 2);
      float most = 0.f;
#pragma unroll
      for (int i = 0; i < PIECES; i++) most = fmaxf(most, magnitude(v[i]));
      const float scale = warp_scale(most);
      mbarrier_wait_or_fault(base + S::EMPTY + 8 * stage, k_tile / S::STAGES % 2 ^ 1);
      if (lane == 0) store_shared(base + S::B_SCALES + 4 * patch, inverse(scale));
#pragma unroll
      for (int i = 0; i < PIECES; i++) {
        const Split left = split(v[i].x * scale, v[i].y * scale), right = split(v[i].z * scale, v[i].w * scale);
        const uint32_t to = place + swizzle<64>(4 * i + lane / 8, lane % 8 / 2) + lane % 2 * 8;
        store_shared_words(to, left.hi, right.hi);
        store_shared_words(to + S::B_HALF, left.lo, right.lo);
      }
      fence_async_shared();
      mbarrier_arrive(base + S::FULL + 8 * stage);
      if (patch + S::CONVERTING < S::PATCHES) fetch(patch + S::CONVERTING);
    }
  }
};

// A, by one thread
template <class S>
__device__ __forceinline__ void chain_bring(uint32_t base, const Operand& a, int row_tile, int first) {
#pragma unroll
  for (int s = 0; s < S::STAGES; s++) mbarrier_expect(base + S::FULL + 8 * s, S::A_BYTES);
  mbarrier_expect(base + S::SCALED, S::WARPGROUPS * S::A_SCALES_BYTES);
  pdl_wait();
  pdl_launch();  // not before: the successors' weights would come in the way of this block's own
  Ring<S::STAGES> at;
#pragma unroll 1
  for (int k_tile = 0; k_tile < S::K_TILES; k_tile++, at.advance()) {
    const uint32_t full = base + S::FULL + 8 * at.stage;
    if (k_tile >= S::STAGES) {
      mbarrier_wait_or_fault(base + S::EMPTY + 8 * at.stage, at.parity ^ 1);
      mbarrier_expect(full, S::A_BYTES);
    }
#pragma unroll
    for (int w = 0; w < S::WARPGROUPS; w++)
      bulk_load(base + at.stage * S::STAGE_BYTES + w * (2 * IMAGE), a.image(row_tile + w, first + k_tile), 2 * IMAGE, full);
    if (k_tile > 0) continue;
#pragma unroll
    for (int w = 0; w < S::WARPGROUPS; w++)
      bulk_load(base + S::A_SCALES + w * S::A_SCALES_BYTES, a.inverse_at((row_tile + w) * TILE_ROWS, 2 * first), S::A_SCALES_BYTES, base + S::SCALED);
  }
}

// The sums of a part of K, half a stage, small products first. `a`: the warpgroup's images
template <class S>
__device__ __forceinline__ void chain_issue(float (&d)[S::BN / 2], uint32_t a, uint32_t b, int half) {
  constexpr uint64_t A_FORM = wgmma_descriptor<128>(16, 1024), B_FORM = wgmma_descriptor<64>(S::SLAB_BYTES, 512);
  const uint64_t left = wgmma_at(A_FORM, a + half * 64), right = wgmma_at(B_FORM, b + half * (PART * 64));
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 6; i++)
    Wgmma<S::BN>::template ss<1>(d, wgmma_further(left, (i < 2 ? IMAGE : 0) + i % 2 * 32),
                                 wgmma_further(right, (i / 2 == 1 ? S::B_HALF : 0) + i % 2 * 1024), i != 0);
  wgmma_commit();
}

// A part is multiplied while the one before is added.
template <class S>
__device__ __forceinline__ void chain_multiply(float (&sum)[S::BN / 2], uint32_t base, int warp) {
  float d[2][S::BN / 2];
  const uint32_t rows = base + S::A_SCALES + warp / 4 * S::A_SCALES_BYTES + (warp % 4 * 16 + threadIdx.x % 32 / 4) * 4;
  // A's scales are asked for a stage ahead, B's in front of the stage's products: shared memory answers late while they read it.
  float of_a[2][2], of_b[2][S::ACROSS];
  const auto ask_for_a = [&](int k_tile) {
#pragma unroll
    for (int i = 0; i < 4; i++) of_a[i / 2][i % 2] = load_shared(rows + (2 * k_tile + i / 2) * (TILE_ROWS * 4) + i % 2 * 32);
  };
  const auto ask_for_b = [&](int k_tile) {
#pragma unroll
    for (int p = 0; p < S::OF_STAGE; p++) of_b[p / S::ACROSS][p % S::ACROSS] = load_shared(base + S::B_SCALES + 4 * (S::OF_STAGE * k_tile + p));
  };
  const auto add = [&](int part) {
#pragma unroll
    for (int p = 0; p < S::ACROSS; p++) {
      const float scale[2] = {of_a[part][0] * of_b[part][p], of_a[part][1] * of_b[part][p]};
#pragma unroll
      for (int i = PATCH / 2 * p; i < PATCH / 2 * (p + 1); i++) sum[i] = fmaf(d[part][i], scale[i / 2 % 2], sum[i]);
    }
  };
#pragma unroll
  for (int i = 0; i < S::BN / 2; i++) sum[i] = d[0][i] = d[1][i] = 0.f;
  mbarrier_wait_or_fault(base + S::SCALED, 0);
  ask_for_a(0);
  Ring<S::STAGES> at;
#pragma unroll 1
  for (int k_tile = 0; k_tile < S::K_TILES; k_tile++, at.advance()) {
    mbarrier_wait_or_fault(base + S::FULL + 8 * at.stage, at.parity);
    const uint32_t stage = base + at.stage * S::STAGE_BYTES, a = stage + warp / 4 * (2 * IMAGE), b = stage + S::A_BYTES;
    ask_for_b(k_tile);
    chain_issue<S>(d[0], a, b, 0);
    chain_issue<S>(d[1], a, b, 1);
    wgmma_wait<1>();
    add(0);
    wgmma_wait<0>();
    mbarrier_arrive(base + S::EMPTY + 8 * at.stage);
    add(1);
    if (k_tile + 1 < S::K_TILES) ask_for_a(k_tile + 1);
  }
}

// A tile of 64 WARPGROUPS rows and the columns from n on. A thread finishes pairs of neighbouring columns, 8 apart, of two rows: epilogue.prepare(row, column)
// before the product, epilogue.finish(sums, row, column, bias, box) behind it; `bias`: of the first pair, and `box`: 2 KB of the warp, in shared memory.
template <class S, class Epilogue>
__device__ __forceinline__ void chain_product(const Operand& a, const float* b, Epilogue epilogue) {
  const uint32_t base = shared_base();
  const int warp = uniform_warp(), rank = S::SPLITS > 1 ? static_cast<int>(cluster_rank()) : 0;
  const int n = blockIdx.x / S::SPLITS * S::BN, row_tile = blockIdx.y * S::WARPGROUPS;
  if (warp == S::MULTIPLIERS / 32 && elect_one()) {
    for (int s = 0; s < S::STAGES; s++) {
      mbarrier_init(base + S::FULL + 8 * s, 1 + 32 * S::OF_STAGE);
      mbarrier_init(base + S::EMPTY + 8 * s, S::MULTIPLIERS);
    }
    mbarrier_init(base + S::SCALED, 1);
    if (S::SPLITS > 1) mbarrier_init(base + S::RECEIVED, S::ARRIVALS);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (warp >= S::MULTIPLIERS / 32) {
    registers_decrease<64>();
    const int converter = warp - S::MULTIPLIERS / 32 - 1, first_k = rank * S::K_TILES;
    if (converter >= 0 && converter < S::PATCHES) {
      ChainConverter<S> share(b + static_cast<size_t>(first_k * 64) * S::N + n);
      share.fetch(converter);
      share.run(base, converter);
    } else if (converter < 0 && elect_one()) {
      chain_bring<S>(base, a, row_tile, first_k);
    }
    __syncwarp();
    if (S::SPLITS > 1) stand_by();
    return;
  }
  registers_increase<144>();
  const int lane = threadIdx.x % 32;
  // The piece of 16 rows that this warp finishes, or has a part in finishing
  const int piece = S::SPLITS > 1 ? rank * S::OWN + warp / S::EACH : warp;
  const int row = row_tile * TILE_ROWS + piece / S::PIECES * 16 + lane / 4;
  const int column = n + piece % S::PIECES * (S::BN / S::PIECES) + (S::SPLITS > 1 ? warp % S::EACH * (8 * S::OCTETS) : 0) + lane % 4 * 2;
  if (S::SPLITS > 1 && threadIdx.x == 0) expect_sums<S>(base + S::RECEIVED);
  if (threadIdx.x < S::BN) store_shared(base + S::BIAS + 4 * threadIdx.x, load_input(epilogue.bias + n + threadIdx.x));
  epilogue.prepare(row, column);
  float sum[S::BN / 2];
  chain_multiply<S>(sum, base, warp);
  const uint32_t box = base + S::BOXES + warp * 2048, bias = base + S::BIAS + 4 * (column - n);
  named_barrier_sync(1, S::MULTIPLIERS);  // all warps have left the ring, and the bias is there
  if constexpr (S::SPLITS == 1) {
    epilogue.finish(sum, row, column, bias, box);
  } else {
    float all[4 * S::OCTETS];
    exchange_sums<S>(all, sum, base, base + S::RECEIVED, warp, rank, [] {});
    epilogue.finish(all, row, column, bias, box);
    cluster_wait();  // the peers have what this block sent
  }
}

}  // namespace exact90
