/* C(rows, N) = epilogue(A(rows, K) B(K, N)): fp16 operands, fp32 sums, on the tensor cores of Hopper.

   A block owns BM x BN tiles (with a split, one): one producer thread keeps a ring of STAGES k-blocks (DEPTH of K) full
   with the copy engine, BM / 64 warpgroups multiply (64 x BN each) and run the epilogue on their accumulators. Blocks
   (at most as many as tiles) take tiles block, block + blocks, ..: N runs fastest, so neighbours share rows of A. B is
   read as it lies, N-major, in slabs of 64 columns (32 when BN is no multiple of 64), or, where BN is no multiple of 32 either, from its transpose
   (N, K). The one trick: near the end of a tile each warpgroup lets the one before it finish its last LEAD k-blocks alone. The tensor cores stay busy, and
   the first warpgroup's epilogue (and, with more tiles, its next start) runs under the others' products.
   A swapped tile is multiplied transposed, BN / 64 warpgroups 64 columns x BM each: wgmma wants 64 of what it calls rows, but takes any multiple of eight of
   what it calls columns, so that such tiles fill the chip at whatever number of rows. Clusters of tiles are there because multiprocessors of one part of the
   chip that ask for the same bytes at the same time get more of them; of their blocks only those wait for each other that share a tile.
   Grids: see the .cu files. Threads: GemmShape::THREADS, and what the kernel has beside; bytes of shared memory: GemmMemory::TOTAL.
   Limiter: the wgmma rate at the clock that holds under it; of tiles that draw more than 55 bytes a clock beside it (64 x 192: 85), what comes into a
   multiprocessor; for few rows the latency of the first bytes. */
#pragma once
#include <cuda.h>

#include "common/cluster_sm90a.cuh"
#include "common/copy_sm90a.cuh"
#include "common/fragment_sm90a.cuh"
#include "common/mbarrier_sm90a.cuh"
#include "common/shared_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "common/tma_sm90a.cuh"
#include "common/wgmma_sm90a.cuh"
#include "dims.h"

template <int BM_, int BN_, int N_, int K_, int STAGES_, int SPLITS_ = 1, int ABREAST_ = 1, int BELOW_ = 1, bool SWAPPED_ = false>
struct GemmShape {
  static constexpr int BM = BM_, BN = BN_, N = N_, K = K_, STAGES = STAGES_;
  static constexpr int SPLITS = SPLITS_;  // blocks of a cluster that share a tile, each with its part of K
  static constexpr bool SWAPPED = SWAPPED_;
  // Tiles of a cluster: neighbours in a row, and rows of them. Two ranks that follow each other run on one pair of multiprocessors (an H200, by %smid): there
  // neighbours ask for the same A at the same time
  static constexpr int ABREAST = ABREAST_, BELOW = BELOW_, CLUSTER = SPLITS * ABREAST * BELOW;
  // Of K in a stage. Each round of the loop costs about 120 clocks beside its products, which four of a lone warpgroup do not hide where they are short or
  // bytes come late (64 x 64: prepared 64 and 128 rows -0.7 us, H200). With more rows they are long
  static constexpr int DEPTH = BN == 64 && (SWAPPED ? BM <= 32 : BM == 64) ? 128 : 64;
  static constexpr int N_TILES = N / BN;
  static constexpr int K_BLOCKS = K / DEPTH / SPLITS;
  static constexpr int WARPGROUPS = (SWAPPED ? BN : BM) / 64;
  static constexpr int SUMS = (SWAPPED ? BM : BN) / 2;  // of a thread
  static constexpr int THREADS = 128 * WARPGROUPS + 32;
  static constexpr bool TRANSPOSED = BN % 32 != 0;  // B is (N, K)
  static constexpr int SWIZZLE = BN % 64 == 0 || TRANSPOSED ? 128 : 64;
  static constexpr int SLABS = BN * 2 / SWIZZLE;
  static constexpr int A_BYTES = BM * DEPTH * 2, B_BYTES = BN * DEPTH * 2, STAGE_BYTES = A_BYTES + B_BYTES;
  // A swapped tile of which two blocks have half of K each. The first warpgroup's columns are the peer's to finish, and its sums travel under the second
  // one's products, which take up to twice as long meanwhile: 512 rows take 0.65 us less with a lead of four k-blocks than of eight, prepared 0.2; 1024 rows
  // 0.1 less with five than with four (H200)
  static constexpr bool HALVED = SWAPPED && SPLITS == 2;
  static constexpr int LEAD = HALVED ? (BM < 104 ? 4 : 5) : STAGES < 4 ? STAGES - 1 : 3;
  static_assert(N_TILES % ABREAST == 0, "neighbours have the same rows");
  static_assert(WARPGROUPS >= 1 && WARPGROUPS <= 3, "one to three warpgroups");
  static_assert(!SWAPPED || (BM % 8 == 0 && BN % 64 == 0), "whole groups of rows, slabs of columns");
  static_assert(!HALVED || (BN == 128 && LEAD < STAGES), "each block finishes one slab, and the other one's products are ahead in the ring");
  static_assert(!SWAPPED || SPLITS <= 2, "K of a swapped tile whole or in halves");
  // Which 16 columns of a swapped tile a warp has; of a halved one the first warpgroup has those that the peer finishes: block p finishes slab p
  static __device__ __forceinline__ int place(int warp, int part) { return HALVED ? warp ^ 4 ^ 4 * part : warp; }
  static_assert(BN % (SWIZZLE / 2) == 0 || (TRANSPOSED && DEPTH == 64), "whole slabs");
  static_assert(N % BN == 0 && K % (DEPTH * SPLITS) == 0 && STAGES <= K_BLOCKS, "whole tiles");
};

// Shared memory of a block from its 1024-byte aligned start: the ring, what the epilogue wants, the barriers.
template <class S, class Epilogue>
struct GemmMemory {
  static constexpr int EPILOGUE = S::STAGES * S::STAGE_BYTES;
  static constexpr int BARRIERS = EPILOGUE + Epilogue::SHARED_BYTES;
  static constexpr int ENDED = BARRIERS + 16 * S::STAGES + 64;  // the barrier that says that the predecessor has
  static constexpr int TOTAL = ENDED + 8 + SHARED_ALIGNMENT;
  static_assert(TOTAL <= MOST_SHARED, "shared memory of one block");
};

constexpr int START_BARRIER = 1, LEAD_BARRIER = 2;  // and one more for each warpgroup after the second

template <class S>
struct GemmProducer {
  const CUtensorMap *a, *b;
  uint32_t ring, full, empty, ended;
  int k_first;  // in k-blocks

  __device__ __forceinline__ void load_a(int stage, int k_block, int tile) const {
    const uint32_t to = ring + stage * S::STAGE_BYTES;
    const int k = (k_first + k_block) * S::DEPTH, row = tile / S::N_TILES * S::BM;
    if (S::DEPTH == 128)
      tma_load_3d(to, a, 0, row, k / 64, full + 8 * stage);
    else if (S::K == FFN)
      tma_load_2d_once(to, a, k, row, full + 8 * stage, evict_first_policy());  // f has no other reader
    else
      tma_load_2d(to, a, k, row, full + 8 * stage);
  }
  __device__ __forceinline__ void load_b(int stage, int k_block, int tile) const {
    const uint32_t to = ring + stage * S::STAGE_BYTES + S::A_BYTES;
    const int k = (k_first + k_block) * S::DEPTH, slab = tile % S::N_TILES * S::SLABS;
    if constexpr (S::TRANSPOSED)
      tma_load_2d(to, b, k, tile % S::N_TILES * S::BN, full + 8 * stage);
    else if constexpr (S::BN >= 192)  // the tiles of many rows, where weights stand in the way of what the next kernels read
      tma_load_3d_once(to, b, 0, k, slab, full + 8 * stage, evict_first_policy());
    else
      tma_load_3d(to, b, 0, k, slab, full + 8 * stage);
  }

  // Passes the time that an SM takes for a tile of B; false when the predecessor has ended meanwhile
  __device__ __forceinline__ bool pause() const {
    constexpr uint32_t BYTES_A_CLOCK = 40;
    const uint32_t start = clock_low();
    while (clock_low() - start < S::B_BYTES / BYTES_A_CLOCK)
      if (mbarrier_test_wait(ended, 0)) return false;
    return true;
  }

  // `early`: so many tiles of B, which was written before the predecessor's predecessor ended, or by the predecessor before it let this kernel start, may come
  // before the wait: as many as there is time for, and never so many at once that they would hold up the first of A.
  template <class Epilogue>
  __device__ __forceinline__ void run(const Epilogue& epilogue, int tile, int tiles, int blocks, int early) const {
    constexpr int AT_ONCE = 128 / S::DEPTH;
    const int first = tile;
#pragma unroll
    for (int s = 0; s < S::STAGES; s++) mbarrier_expect(full + 8 * s, S::STAGE_BYTES);
    epilogue.load();
    int fetched = 0;
    for (; fetched < min(early, S::STAGES) && (fetched < AT_ONCE || pause()); fetched++) load_b(fetched, fetched, tile);
    pdl_wait();
#pragma unroll
    for (int s = 0; s < S::STAGES; s++) {
      load_a(s, s, tile);
      if (s >= fetched) load_b(s, s, tile);
      // Only now: a successor that runs may rely on what this kernel's predecessors wrote; and behind the copies that are waited for first
      if (s == 0) pdl_launch();
    }
    Ring<S::STAGES> at;  // in the ring's second round, as the first has been asked for
    int k_block = S::STAGES;
    for (; tile < tiles; tile += blocks, k_block = 0)
      for (; k_block < S::K_BLOCKS; k_block++, at.advance()) {
        mbarrier_wait(empty + 8 * at.stage, at.parity);
        mbarrier_expect(full + 8 * at.stage, S::STAGE_BYTES);
        load_a(at.stage, k_block, tile);
        load_b(at.stage, k_block, tile);
      }
    if constexpr (Epilogue::FETCHES > 0)
      for (int i = 0; i < Epilogue::FETCHES; i++, at.advance()) {
        mbarrier_wait(empty + 8 * at.stage, at.parity);
        epilogue.fetch(i, first / S::N_TILES * S::BM, first % S::N_TILES * S::BN);
      }
  }
};

// `under(k_block)` runs under the products of each k-block. BEGUN: they are added to what is in `d`.
template <class S, bool BEGUN, class Under>
__device__ __forceinline__ void multiply_tile(float (&d)[S::SUMS], Ring<S::STAGES>& at, uint32_t ring, uint32_t full, uint32_t empty, int warpgroup,
                                              int slab, const Under& under) {
  const uint64_t a_form = wgmma_descriptor<128>(16, 1024);
  const uint64_t b_form = S::TRANSPOSED ? wgmma_descriptor<128>(16, 1024) : wgmma_descriptor<S::SWIZZLE>(S::DEPTH * S::SWIZZLE, 8 * S::SWIZZLE);
  constexpr uint32_t B_STEP = S::TRANSPOSED ? 32 : 16 * S::SWIZZLE;  // bytes for 16 of K
  const bool releases = (threadIdx.x & 127) == 0;
  int previous = 0;
  for (int k_block = 0; k_block < S::K_BLOCKS; k_block++) {
    if (S::WARPGROUPS > 1 && warpgroup > 0 && k_block == S::K_BLOCKS - S::LEAD) named_barrier_sync(LEAD_BARRIER + warpgroup - 1, 256);
    mbarrier_wait_or_fault(full + 8 * at.stage, at.parity);
    const uint32_t stage = ring + at.stage * S::STAGE_BYTES;
    const uint64_t a = wgmma_at(a_form, stage + (S::SWAPPED ? 0 : warpgroup * 8192));
    const uint64_t b = wgmma_at(b_form, stage + S::A_BYTES + (S::SWAPPED ? slab * (S::DEPTH * 128) : 0));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < S::DEPTH / 16; k++) {
      const uint64_t a_part = wgmma_further(a, k / 4 * (S::BM * 128) + k % 4 * 32), b_part = wgmma_further(b, B_STEP * k);
      if constexpr (S::SWAPPED)
        Wgmma<S::BM>::template ss<0, 1>(d, b_part, a_part, BEGUN || (k_block | k) != 0);
      else
        Wgmma<S::BN>::template ss<!S::TRANSPOSED>(d, a_part, b_part, BEGUN || (k_block | k) != 0);
    }
    wgmma_commit();
    under(k_block);
    wgmma_wait<1>();
    // One thread for its warpgroup, whose warps' products end together, as CUTLASS's pipelines take for granted, too
    if (k_block > 0 && releases) mbarrier_arrive(empty + 8 * previous);
    previous = at.stage;
    at.advance();
  }
  if (warpgroup < S::WARPGROUPS - 1) named_barrier_arrive(LEAD_BARRIER + warpgroup, 256);
  wgmma_wait<0>();
  if (releases) mbarrier_arrive(empty + 8 * previous);
}

// Where the sums of groups of 8 columns begin: with a row of biases, of which `biases` is the lane's first pair
template <int GROUPS>
__device__ __forceinline__ void begin_with(uint32_t biases, float* d) {
#pragma unroll
  for (int g = 0; g < GROUPS; g++) {
    const float2 b = load_shared_2(biases + 32 * g);
    d[4 * g] = d[4 * g + 2] = b.x;
    d[4 * g + 1] = d[4 * g + 3] = b.y;
  }
}

// The same where they are an input, aligned to 4 bytes
template <int GROUPS>
__device__ __forceinline__ void begin_with_input(const float* biases, float* d) {
#pragma unroll
  for (int g = 0; g < GROUPS; g++) {
    d[4 * g] = d[4 * g + 2] = load_input(biases + 8 * g);
    d[4 * g + 1] = d[4 * g + 3] = load_input(biases + 8 * g + 1);
  }
}

// When an epilogue's prepare() is called
enum Prepares { BEFORE_PRODUCTS, UNDER_FIRST_PRODUCTS };

// What most epilogues have in common
struct GemmEpilogue {
  static constexpr int CLUSTER_PHASES = 0;
  static constexpr Prepares PREPARES = BEFORE_PRODUCTS;
  static constexpr bool BEGINS = false, HELPED = false;
  static constexpr int FETCHES = 0;
  static __device__ void help(int, int) {}
};

/* An epilogue has SHARED_BYTES; PREPARES; BEGINS, whether begin() fills the sums that products are added to; HELPED, whether the block has a warp more,
   which calls help(); CLUSTER_PHASES, how often the blocks of a cluster meet (the first time after init(), which the epilogue awaits before it touches a
   peer; a block of a cluster has one tile); FETCHES; and the functions

     at(memory, barriers, part)
                         called by every thread before anything else; `memory`: SHARED_BYTES of shared memory, right behind the ring, `barriers`: room for
                         eight of its own, right behind the ring's, `part`: which part of K the block has

     init()              called by the producer thread then

     load()              called by the producer thread, for what was written before the predecessor began

     prepare(row, n)     called by every multiplying thread for a tile; `row` is the first of its warp's 16 rows, `n`
                         the first column; of a swapped tile the first row and the first of its warp's 16 columns

     fetch(i, row, n)    called FETCHES times by the producer thread, when the ring needs its stage (K_BLOCKS + i) % STAGES no more; `row` and `n` are the
                         tile's first

     begin(d, n)         called before the tile's products, as all that can be: what is fetched behind them everyone waits for, up to 0.5 us (H200)

     help(row, n)        called for each tile once the predecessor has ended; `row` and `n` are the tile's first

     finish(d, row, n)   called after the products

     end()               called after the last tile */
template <class S, class Epilogue>
__device__ __forceinline__ void gemm(const CUtensorMap* a, const CUtensorMap* b, Epilogue epilogue, int rows, int block, int blocks, int early) {
  using Memory = GemmMemory<S, Epilogue>;
  const uint32_t base = shared_base(), full = base + Memory::BARRIERS, empty = full + 8 * S::STAGES, ended = base + Memory::ENDED;
  const int warp = uniform_warp(), lane = threadIdx.x % 32;
  const int tiles = (rows + S::BM - 1) / S::BM * S::N_TILES;
  constexpr int STARTERS = S::THREADS + (Epilogue::HELPED ? 32 : 0);
  // Of K, among the blocks that share the tile; in a way that ptxas knows to be the same for all lanes
  const int part = S::SPLITS > 1 ? __shfl_sync(~0u, static_cast<int>(cluster_rank()), 0) / (S::CLUSTER / S::SPLITS) : 0;
  epilogue.at(base + Memory::EPILOGUE, empty + 8 * S::STAGES, part);
  // ptxas lays the second of two branches out first: the producer's code, which nothing has run before, follows upon the kernel's start
  if (warp < 4 * S::WARPGROUPS) {
    named_barrier_sync(START_BARRIER, STARTERS);
    if (Epilogue::CLUSTER_PHASES > 0) cluster_arrive();
    const int warpgroup = S::WARPGROUPS == 1 ? 0 : warp / 4, slab = S::HALVED ? S::place(warp, part) / 4 : warpgroup;
    Ring<S::STAGES> at;
    int tile = block;
    do {
      const int row = tile / S::N_TILES * S::BM + (S::SWAPPED ? 0 : 16 * warp);
      const int n = tile % S::N_TILES * S::BN + (S::SWAPPED ? 16 * S::place(warp, part) : 0);
      float d[S::SUMS];
      if (Epilogue::PREPARES == BEFORE_PRODUCTS) epilogue.prepare(row, n);
      if constexpr (Epilogue::BEGINS) epilogue.begin(d, n);
      if (warp == 0 && tile == block) {
        pdl_wait();
        if (lane == 0) mbarrier_arrive(ended);  // for pause(): the producer cannot ask whether the predecessor has ended, only wait for it
      }
      const auto under = [&](int k_block) {
        if (Epilogue::PREPARES == UNDER_FIRST_PRODUCTS && k_block == 1) epilogue.prepare(row, n);
      };
      multiply_tile<S, Epilogue::BEGINS>(d, at, base, full, empty, warpgroup, slab, under);
      epilogue.finish(d, row, n);
      tile += blocks;
    } while (Epilogue::CLUSTER_PHASES == 0 && tile < tiles);
    epilogue.end();
  } else if (Epilogue::HELPED && warp > 4 * S::WARPGROUPS) {
    named_barrier_sync(START_BARRIER, STARTERS);
    pdl_wait();
    for (int tile = block; tile < tiles; tile += blocks) epilogue.help(tile / S::N_TILES * S::BM, tile % S::N_TILES * S::BN);
  } else {
    if (elect_one()) {
      for (int s = 0; s < S::STAGES; s++) {
        mbarrier_init(full + 8 * s, 1);
        mbarrier_init(empty + 8 * s, S::WARPGROUPS);
      }
      mbarrier_init(ended, 1);
      epilogue.init();
      fence_mbarrier_init();
      prefetch_tensor_map(a);
      prefetch_tensor_map(b);
    }
    __syncwarp();
    named_barrier_arrive(START_BARRIER, STARTERS);
    if (Epilogue::CLUSTER_PHASES > 0) cluster_arrive();
    if (elect_one())
      GemmProducer<S>{a, b, base, full, empty, ended, part * S::K_BLOCKS}.run(epilogue, block, tiles, blocks, early);
    __syncwarp();
    if (Epilogue::CLUSTER_PHASES > 0) cluster_wait();
    if (Epilogue::CLUSTER_PHASES > 1) {
      cluster_arrive();
      cluster_wait();
    }
  }
}
