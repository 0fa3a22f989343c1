/* C(rows, N) = epilogue(A(rows, 768) fp16, B(768, N) fp32): the product for two tiles of rows, whose blocks are a
   cluster and share the weights.

   Of the 12 k-blocks of B each block converts every other one, as in gemm_direct_sm90a.cuh, and copies it to its
   neighbour. B has room for all of K, so that nobody waits for room in another block; only A goes through a ring.
   Weights are inputs: a block fetches and converts them while its predecessors run, and waits for A alone. Who writes a
   k-block does not fence its writes, because a fence waits for the thread's outstanding loads: one thread that loads
   nothing fences for all of them, and copies.
   Limiter: latency, 120 clocks a round of a lone warpgroup; where the predecessor is short, the bytes into a
   multiprocessor, and that a block sends but 16 of them a clock, 1.7 us for 49 KB. */
#pragma once
#include "gemm/gemm_direct_sm90a.cuh"

template <int BM_, int BN_, int N_>
struct SharedShape {
  static constexpr int BM = BM_, BN = BN_, N = N_, K = D, BLOCKS = 2;
  static constexpr int DEPTH = 64, PARTS = K / DEPTH, SHARE = PARTS / BLOCKS;  // k-blocks, and how many a block converts
  static constexpr int N_TILES = N / BN;
  static constexpr int WARPGROUPS = BM / 64;
  static constexpr int CONVERTERS = 256, MULTIPLIERS = 128 * WARPGROUPS, THREADS = MULTIPLIERS + 64 + CONVERTERS;
  static constexpr int SWIZZLE = BN % 64 == 0 ? 128 : 32;
  // Of a copy of A, which must have 16 KB: one of 8 KB keeps the copy engine as busy
  static constexpr int A_DEPTH = BM == 64 ? 128 : 64, STEPS = A_DEPTH / DEPTH, COPIES = PARTS / STEPS, UNROLLED = 1;
  static constexpr int A_BYTES = BM * A_DEPTH * 2, B_BYTES = BN * DEPTH * 2;
  static constexpr bool TRANSPOSED = false;
  static constexpr int PIECES = BN * DEPTH / 4 / CONVERTERS;  // of four weights, of a k-block, that one thread converts
  static constexpr int AHEAD = 4;                             // k-blocks that it has asked for
  static constexpr int REST = 1024;                           // bytes, enough for biases and barriers
  static constexpr int ROOM = (MOST_SHARED - SHARED_ALIGNMENT - PARTS * B_BYTES - REST) / A_BYTES, STAGES = ROOM < COPIES ? ROOM : COPIES;
  static_assert(N % BN == 0 && BN % (SWIZZLE / 2) == 0 && PARTS % BLOCKS == 0 && BN * DEPTH % (4 * CONVERTERS) == 0, "whole pieces");
};

// HalfEpilogue for such a block. Its boxes take the place of rows of A that only their warpgroup has read.
template <class S, bool GELU>
struct SharedHalfEpilogue : TileHalfEpilogue<S, GELU> {
  using Base = TileHalfEpilogue<S, GELU>;
  static constexpr int SHARED_BYTES = 4 * S::BN, BOXES_BYTES = Base::BOXES * Base::BOX_BYTES;
  static_assert(2 * BOXES_BYTES <= 64 * 128 && S::STAGES >= 2);
  using Base::Base;
  __device__ void at(uint32_t memory, uint32_t barriers, int) {
    const int warp = threadIdx.x / 32;
    this->staging = memory - (S::STAGES - warp % 4 / 2) * S::A_BYTES + warp / 4 * 8192 + warp % 2 * BOXES_BYTES;
    this->bias_at = memory;
    this->bias_full = barriers;
  }
};

// From the 1024-byte aligned start
template <class S, class Epilogue>
struct SharedMemory {
  static constexpr int A = S::PARTS * S::B_BYTES, EPILOGUE = A + S::STAGES * S::A_BYTES;
  static constexpr int FULL_B = EPILOGUE + Epilogue::SHARED_BYTES, CONVERTED = FULL_B + 8 * S::PARTS, FULL_A = CONVERTED + 8 * S::SHARE;
  static constexpr int EMPTY_A = FULL_A + 8 * S::STAGES, OF_EPILOGUE = EMPTY_A + 8 * S::STAGES;
  static constexpr int TOTAL = OF_EPILOGUE + 16 + SHARED_ALIGNMENT;
  static_assert(TOTAL <= MOST_SHARED, "shared memory of one block");
};

// Converts the block's share of B. `b`: the tile's first column, aligned to 4 bytes.
template <class S>
struct ShareConverter {
  static constexpr int LANES = S::BN / 4, PER_SLAB = S::SWIZZLE / 8;  // threads
  const float* b;
  int rank;
  bool aligned;
  int from[S::PIECES];
  uint32_t to[S::PIECES];
  float4 v[S::AHEAD][S::PIECES];

  __device__ __forceinline__ ShareConverter(const float* b, uint32_t memory, int rank)
      : b(b), rank(rank), aligned(aligned_16(b)) {
    const int thread = threadIdx.x - S::MULTIPLIERS - 64;
#pragma unroll
    for (int p = 0; p < S::PIECES; p++) {
      const int at = thread + S::CONVERTERS * p, row = at / LANES, four = at % LANES, chunk = four % PER_SLAB / 2;
      from[p] = row * S::N + 4 * four;
      to[p] = memory + four / PER_SLAB * (S::DEPTH * S::SWIZZLE) + swizzle<S::SWIZZLE>(row, chunk) + four % 2 * 8;
    }
  }

  template <bool ALIGNED>
  __device__ __forceinline__ void fetch(float4 (&v)[S::PIECES], int i) const {
    const float* part = b + static_cast<size_t>((rank + S::BLOCKS * i) * S::DEPTH) * S::N;
#pragma unroll
    for (int p = 0; p < S::PIECES; p++) v[p] = fetch_4<ALIGNED>(part + from[p]);
  }
  template <bool ALIGNED>
  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < S::AHEAD; i++) fetch<ALIGNED>(v[i], i);
  }
  // A weight that has been rounded has been seen.
  template <bool ALIGNED>
  __device__ __forceinline__ Observation run(uint32_t converted) {
    Observation seen;
#pragma unroll 1
    for (int first = 0; first < S::SHARE; first += S::AHEAD) {
#pragma unroll
      for (int j = 0; j < S::AHEAD; j++) {
        const int i = first + j;
        if (S::SHARE % S::AHEAD != 0 && i >= S::SHARE) break;
        HalfObservation<> look;
#pragma unroll
        for (int p = 0; p < S::PIECES; p++) {
          const float4 w = v[j][p];
          const uint32_t low = pack_half2(w.x, w.y), high = pack_half2(w.z, w.w);
          store_shared_words(to[p] + (rank + S::BLOCKS * i) * S::B_BYTES, low, high);
          look.add(low, high);
        }
        mbarrier_arrive(converted + 8 * i);
        if (i + S::AHEAD < S::SHARE) fetch<ALIGNED>(v[j], i + S::AHEAD);
        look.move_to(seen);
      }
    }
    return seen;
  }
};

// One thread, when both blocks have their barriers
template <class S, class Memory>
__device__ __forceinline__ void share_out(uint32_t base, int rank) {
#pragma unroll 1
  for (int i = 0; i < S::SHARE; i++) {
    const int part = rank + S::BLOCKS * i;
    const uint32_t from = base + part * S::B_BYTES, full = base + Memory::FULL_B + 8 * part;
    mbarrier_wait(base + Memory::CONVERTED + 8 * i, 0);
    fence_async_shared();
    mbarrier_arrive(full);
    cluster_copy(cluster_address(from, rank ^ 1), from, S::B_BYTES, cluster_address(full, rank ^ 1));
  }
}

template <class S, class Memory>
__device__ __forceinline__ void multiply_shared(float (&d)[S::BN / 2], uint32_t base, int warpgroup) {
  const uint64_t a_form = wgmma_descriptor<128>(16, 1024);
  const uint64_t b_form = wgmma_descriptor<S::SWIZZLE>(S::DEPTH * S::SWIZZLE, 8 * S::SWIZZLE);
  const bool releases = (threadIdx.x & 127) == 0;
  Ring<S::STAGES> at;
  int previous = 0;
  for (int part = 0; part < S::PARTS; part += S::STEPS) {
#pragma unroll
    for (int i = 0; i < S::STEPS; i++) mbarrier_wait_or_fault(base + Memory::FULL_B + 8 * (part + i), 0);
    mbarrier_wait_or_fault(base + Memory::FULL_A + 8 * at.stage, at.parity);
    const uint64_t a = wgmma_at(a_form, base + Memory::A + at.stage * S::A_BYTES + warpgroup * 8192);
    const uint64_t b = wgmma_at(b_form, base + part * S::B_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < S::A_DEPTH / 16; k++)
      Wgmma<S::BN>::template ss<1>(d, wgmma_further(a, k / 4 * 8192 + k % 4 * 32),
                                   wgmma_further(b, k / 4 * S::B_BYTES + k % 4 * (16 * S::SWIZZLE)), (part | k) != 0);
    wgmma_commit();
    wgmma_wait<1>();
    if (part > 0 && releases) mbarrier_arrive(base + Memory::EMPTY_A + 8 * previous);
    previous = at.stage;
    at.advance();
  }
  wgmma_wait<0>();
}

template <class S, class Epilogue>
__device__ __forceinline__ void gemm_shared(const CUtensorMap* a, const float* b, Epilogue epilogue, unsigned* alarms, Matrix matrix) {
  using Memory = SharedMemory<S, Epilogue>;
  const uint32_t base = shared_base();
  const int warp = uniform_warp(), rank = static_cast<int>(cluster_rank());
  const int row = rank * S::BM, n = blockIdx.x / S::BLOCKS * S::BN;
  const bool converts = warp >= S::MULTIPLIERS / 32 + 2;
  epilogue.at(base + Memory::EPILOGUE, base + Memory::OF_EPILOGUE, rank);
  ShareConverter<S> share(b + n, base, rank);
  if (converts) {
    share.aligned ? share.template start<true>() : share.template start<false>();
  } else if (warp == S::MULTIPLIERS / 32 && elect_one()) {
    for (int part = 0; part < S::PARTS; part++) mbarrier_init(base + Memory::FULL_B + 8 * part, 1);
    for (int i = 0; i < S::SHARE; i++) mbarrier_init(base + Memory::CONVERTED + 8 * i, S::CONVERTERS);
    for (int s = 0; s < S::STAGES; s++) {
      mbarrier_init(base + Memory::FULL_A + 8 * s, 1);
      mbarrier_init(base + Memory::EMPTY_A + 8 * s, S::WARPGROUPS);
    }
    epilogue.init();
    fence_mbarrier_init();
    prefetch_tensor_map(a);
    for (int part = 0; part < S::PARTS; part++)
      if (part % S::BLOCKS != rank) mbarrier_expect(base + Memory::FULL_B + 8 * part, S::B_BYTES);
  }
  __syncthreads();
  // Both blocks have their barriers. All threads wait for that, also those that would not have to: racecheck takes the
  // cluster's barrier for one where all meet.
  cluster_arrive();
  cluster_wait();
  if (warp < S::MULTIPLIERS / 32) {
    epilogue.prepare(row + 16 * warp, n);
    float d[S::BN / 2];
    multiply_shared<S, Memory>(d, base, warp / 4);
    cluster_arrive();  // all that the other had for this block is there
    epilogue.finish(d, row + 16 * warp, n);
    epilogue.end();
  } else {
    if (converts) {
      const uint32_t converted = base + Memory::CONVERTED;
      Observation seen = share.aligned ? share.template run<true>(converted) : share.template run<false>(converted);
      if (alarms != nullptr) seen.report(alarms, matrix, 32.f * 4 * S::PIECES * S::SHARE);
    } else if (elect_one()) {
      if (warp == S::MULTIPLIERS / 32)
        produce_a<S>(epilogue, base + Memory::FULL_A, base + Memory::EMPTY_A, [=](int copy, int stage, uint32_t barrier) {
          const uint32_t to = base + Memory::A + stage * S::A_BYTES;
          if (S::STEPS == 2)
            tma_load_3d(to, a, 0, row, 2 * copy, barrier);
          else
            tma_load_2d(to, a, copy * S::DEPTH, row, barrier);
        });
      else
        share_out<S, Memory>(base, rank);
    }
    __syncwarp();
    cluster_arrive();
  }
  cluster_wait();  // the other has what was copied from here
}
