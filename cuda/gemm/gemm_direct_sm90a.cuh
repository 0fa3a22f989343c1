/* C(rows, N) = epilogue(A(rows, K) fp16, B(K, N) fp32): the product for up to 64 rows, where a column of weights meets
   one block only.

   Casting such weights first would move them three times. Here converter warps fetch B as the caller stored it, round
   it to fp16 and lay it into the ring in the swizzled form that wgmma reads; the copy engine brings A alone. Products
   and epilogues are those of gemm_sm90a.cuh. Whoever rounds a weight also watches it (alarm.cuh). The one trick: weights
   are inputs, written by nobody in the chain, and a block takes less than half of a multiprocessor, so it starts beside
   its predecessor and has most of its B when that ends: what it waits for then is A.
   A block has one tile. Limiter: latency; the bytes of A into an SM after the wait, those of B only where the
   predecessors are too short to hide them. */
#pragma once
#include "common/watch_sm90a.cuh"
#include "gemm/epilogue_half_sm90a.cuh"
#include "gemm/gemm_sm90a.cuh"

// A stage of the ring holds DEPTH rows of B: copies of A must have 16 KB, since one of 8 KB keeps the copy engine as busy
template <int BM_, int BN_, int N_, int K_, int STAGES_, int SPLITS_ = 1>
struct DirectShape {
  static constexpr int BM = BM_, BN = BN_, N = N_, K = K_, STAGES = STAGES_;
  static constexpr int SPLITS = SPLITS_;  // blocks of a cluster that share a tile, each with its part of K
  static constexpr int DEPTH = 128;
  static constexpr int N_TILES = N / BN, PARTS = K / DEPTH / SPLITS;
  static constexpr int COPIES = PARTS, UNROLLED = COPIES;  // of A, and how many of them produce_a() unrolls
  static constexpr int WARPGROUPS = 1;
  static constexpr int CONVERTERS = 256, MULTIPLIERS = 128, THREADS = MULTIPLIERS + 32 + CONVERTERS;
  static constexpr bool TRANSPOSED = false;  // B lies as a matrix (K, N)
  static constexpr int SWIZZLE = BN % 64 == 0 ? 128 : 64;
  static constexpr int A_BYTES = BM * DEPTH * 2, B_BYTES = BN * DEPTH * 2, STAGE_BYTES = A_BYTES + B_BYTES;
  static constexpr int PER_SM = 2;  // blocks on a multiprocessor, of this product or one of it and one of a neighbour
  static constexpr int SHARED_LIMIT = 125000;
  // Converters take stages in turn, by groups: a fence waits for what its thread has asked for, so that one thread
  // cannot look ahead
  static constexpr int GROUPS = K / DEPTH / SPLITS % 2 == 0 ? 2 : 1;
  static constexpr int LANES = BN / 4;                      // threads that share a row of B, four columns each
  static constexpr int ROWS = CONVERTERS / GROUPS / LANES;  // of B at a time
  static constexpr int PIECES = DEPTH / ROWS;               // of a stage that one thread converts
  static_assert(BM == 64, "one warpgroup");
  static_assert(N % BN == 0 && K % (DEPTH * SPLITS) == 0 && BN % (SWIZZLE / 2) == 0 && STAGES <= PARTS, "whole tiles");
  static_assert(ROWS % 8 == 0 && DEPTH % ROWS == 0 && PARTS % GROUPS == 0, "whole pieces");
};

struct DirectHalfArgs {
  const float* bias;     // (N)
  const float* weights;  // (K, N), aligned to 4 bytes
  unsigned* alarms;
};

// The columns of one tile as a matrix of their own
template <class S>
struct TileColumns : S {
  static constexpr int N = S::BN;
};
// HalfEpilogue for a block with one tile: it takes `bias` from the tile's first column on
template <class S, bool GELU>
struct TileHalfEpilogue : HalfEpilogue<TileColumns<S>, GELU, WITHOUT_BIAS> {
  using HalfEpilogue<TileColumns<S>, GELU, WITHOUT_BIAS>::HalfEpilogue;
  __device__ void prepare(int, int n) { this->bias_at -= 4 * n; }
};

// `b`: the tile's first column in the first row that this block multiplies. A weight that has been rounded has been seen.
template <class S, bool ALIGNED>
__device__ __forceinline__ Observation convert(const float* b, uint32_t ring, uint32_t full, uint32_t empty) {
  constexpr int GROUP = S::CONVERTERS / S::GROUPS, PER_SLAB = S::SWIZZLE / 8;  // threads
  const int group = (threadIdx.x - S::MULTIPLIERS - 32) / GROUP, thread = (threadIdx.x - S::MULTIPLIERS - 32) % GROUP;
  const int row = thread / S::LANES, four = thread % S::LANES, chunk = four % PER_SLAB / 2;
  b += static_cast<size_t>(S::DEPTH * group + row) * S::N + 4 * four;
  const uint32_t to =
      ring + S::A_BYTES + four / PER_SLAB * (S::DEPTH * S::SWIZZLE) + swizzle<S::SWIZZLE>(row, chunk) + four % 2 * 8;
  float4 v[S::PIECES];
  const auto fetch = [&] {
#pragma unroll
    for (int p = 0; p < S::PIECES; p++) v[p] = fetch_4<ALIGNED>(b + static_cast<size_t>(S::ROWS * p) * S::N);
    b += static_cast<size_t>(S::DEPTH * S::GROUPS) * S::N;
  };
  fetch();
  Observation seen;
  Ring<S::STAGES> at;
  if (S::GROUPS == 2 && group == 1) at.advance();
#pragma unroll 1
  for (int part = group; part < S::PARTS; part += S::GROUPS) {
    mbarrier_wait(empty + 8 * at.stage, at.parity ^ 1);
    HalfObservation<> look;
#pragma unroll
    for (int p = 0; p < S::PIECES; p++) {
      const uint32_t low = pack_half2(v[p].x, v[p].y), high = pack_half2(v[p].z, v[p].w);
      store_shared_words(to + at.stage * S::STAGE_BYTES + p * (S::ROWS * S::SWIZZLE), low, high);
      look.add(low, high);
    }
    fence_async_shared();
    mbarrier_arrive(full + 8 * at.stage);
    if (part + S::GROUPS < S::PARTS) fetch();
    look.move_to(seen);
#pragma unroll
    for (int i = 0; i < S::GROUPS; i++) at.advance();
  }
  return seen;
}

// A, copy by copy: load(copy, stage, barrier) asks for one.
template <class S, class Epilogue, class Load>
__device__ __forceinline__ void produce_a(const Epilogue& epilogue, uint32_t full, uint32_t empty, Load load) {
#pragma unroll
  for (int s = 0; s < S::STAGES; s++) mbarrier_expect(full + 8 * s, S::A_BYTES);
  pdl_wait();
  pdl_launch();  // not before: the successors' weights would come in the way of this block's own
#pragma unroll
  for (int s = 0; s < S::STAGES; s++) {
    load(s, s, full + 8 * s);
    if (s == 0) epilogue.load();
  }
  Ring<S::STAGES> at;  // in the ring's second round, as the first has been asked for
#pragma unroll S::UNROLLED
  for (int copy = S::STAGES; copy < S::COPIES; copy++, at.advance()) {
    mbarrier_wait(empty + 8 * at.stage, at.parity);
    mbarrier_expect(full + 8 * at.stage, S::A_BYTES);
    load(copy, at.stage, full + 8 * at.stage);
  }
}

template <class S>
__device__ __forceinline__ void multiply(float (&d)[S::BN / 2], uint32_t ring, uint32_t full, uint32_t empty) {
  const uint64_t a_form = wgmma_descriptor<128>(16, 1024);
  const uint64_t b_form = wgmma_descriptor<S::SWIZZLE>(S::DEPTH * S::SWIZZLE, 8 * S::SWIZZLE);
  Ring<S::STAGES> at;
  int previous = 0;
  for (int part = 0; part < S::PARTS; part++) {
    mbarrier_wait(full + 8 * at.stage, at.parity);
    const uint32_t stage = ring + at.stage * S::STAGE_BYTES;
    const uint64_t a = wgmma_at(a_form, stage), b = wgmma_at(b_form, stage + S::A_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < S::DEPTH / 16; k++)
      Wgmma<S::BN>::template ss<1>(d, wgmma_further(a, k / 4 * (S::BM * 128) + k % 4 * 32), wgmma_further(b, 16 * S::SWIZZLE * k), (part | k) != 0);
    wgmma_commit();
    wgmma_wait<1>();
    if (part > 0) mbarrier_arrive(empty + 8 * previous);
    previous = at.stage;
    at.advance();
  }
  wgmma_wait<0>();
}

// As gemm() of gemm_sm90a.cuh, with one tile of columns for a block and the converters as a third role; `b` is aligned
// to 4 bytes. Every thread arrives for itself at the ring's barriers: an elected one, after its warp has met, is no
// faster.
template <class S, class Epilogue>
__device__ __forceinline__ void gemm_direct(const CUtensorMap* a, const float* b, Epilogue epilogue, int tile,
                                            unsigned* alarms, Matrix matrix) {
  using Memory = GemmMemory<S, Epilogue>;
  static_assert(Memory::TOTAL <= S::SHARED_LIMIT, "PER_SM blocks on a multiprocessor");
  const uint32_t base = shared_base(), full = base + Memory::BARRIERS, empty = full + 8 * S::STAGES;
  const int warp = uniform_warp();
  const int rank = S::SPLITS > 1 ? static_cast<int>(cluster_rank()) : 0;
  const int n = tile * S::BN;
  epilogue.at(base + Memory::EPILOGUE, empty + 8 * S::STAGES, rank);
  if (warp == S::MULTIPLIERS / 32 && elect_one()) {
    prefetch_tensor_map(a);
    for (int s = 0; s < S::STAGES; s++) {
      mbarrier_init(full + 8 * s, 1 + S::CONVERTERS / S::GROUPS);
      mbarrier_init(empty + 8 * s, S::MULTIPLIERS);
    }
    epilogue.init();
    fence_mbarrier_init();
  }
  __syncthreads();
  if (Epilogue::CLUSTER_PHASES > 0) cluster_arrive();
  if (warp >= S::MULTIPLIERS / 32) {
    if (warp > S::MULTIPLIERS / 32) {
      b += static_cast<size_t>(rank * S::PARTS * S::DEPTH) * S::N + n;
      Observation seen = aligned_16(b) ? convert<S, true>(b, base, full, empty) : convert<S, false>(b, base, full, empty);
      if (alarms != nullptr) {
        const bool raised = seen.report(alarms, matrix, 32.f * 4 * S::PIECES * S::PARTS / S::GROUPS);
        // The last weights: who judges the result waits for this, not for the end of the kernel.
        if (matrix == MATRIX_PROJ && threadIdx.x % 32 == 0) add_released(alarms + ALARMS_WATCHED, raised ? WATCHED_RAISED + 1 : 1);
      }
    } else if (elect_one()) {
      const int first = rank * S::PARTS;
      produce_a<S>(epilogue, full, empty, [=](int part, int stage, uint32_t barrier) {
        tma_load_3d(base + stage * S::STAGE_BYTES, a, 0, 0, (first + part) * (S::DEPTH / 64), barrier);
      });
    }
    __syncwarp();
    if (Epilogue::CLUSTER_PHASES > 0) cluster_wait();
    if (Epilogue::CLUSTER_PHASES > 1) {
      cluster_arrive();
      cluster_wait();
    }
    return;
  }
  epilogue.prepare(16 * warp, n);
  float d[S::BN / 2];
  multiply<S>(d, base, full, empty);
  epilogue.finish(d, 16 * warp, n);
  epilogue.end();
}
