/* The exact block of many rows as a chain of launches with programmatic edges: the stages of exact_sm90a.cu as kernels of their own, on the same operands. So
   none pays for code that others run, attention has a loop that does not find room beside the rest, and no stage waits for a barrier of the grid. Each
   kernel's arguments are those of the whole, and behind them what the host has found for it to do (src/cuda/exact/work.rs). A product is a kernel for each
   form of its tiles: one kernel of all forms takes 1 to 4 us more, where code that runs once lies far apart (H200).

   Grids: a block for each SM; of the projections one for each tile and part of K, if these are fewer; of LN2 a warp for each row. Threads: THREADS, of LN1
   and LN2 those of long_norm_sm90a.cuh. Shared memory: SHARED_BYTES but for LN2. */
#include "exact/exact_roles_sm90a.cuh"
#include "exact/exchange_sm90a.cuh"
#include "exact/long_attention_sm90a.cuh"
#include "exact/long_norm_sm90a.cuh"
#include "exact/long_output_sm90a.cuh"
#include "exact/long_work_sm90a.cuh"

namespace exact90 {

// A block's place among those that compute, and its shared memory; `arrivals`: of one barrier more, at BAR_END
__device__ __forceinline__ uint32_t begin_long(Crew place, int arrivals = 1) {
  const uint32_t shared = shared_base();
  if (threadIdx.x == 0) {
    crew = place;
    mbarrier_init(shared + BAR_END, arrivals);
    init_barriers(shared);
  }
  __syncthreads();
  return shared;
}
__device__ __forceinline__ Crew whole_grid() { return {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)}; }

// By one thread: brings the units from `first` on, below `end`, when the first one is known and the kernels before have ended. `place`: of the ring. Returns
// the next place.
__device__ __forceinline__ int feed_long_product(uint32_t shared, const ExactArgs& args, int matrix, Cut cut, int first = 0, int end = INT_MAX, int place = 0) {
#pragma unroll 1
  for (int unit = first + crew.rank;; unit += crew.size) {
    Feeder feeder(args, shared, matrix, unit, cut);
    pdl_wait();
    if (unit >= end || !feeder.any) return place;
    place = feeder.run(place, shared + S_RING);
  }
}
// First the widest units, then those of form F, whose ring lies in the same place: so behind those.
template <class F>
__device__ __forceinline__ void feed_long_images(uint32_t shared, const ExactArgs& args, int matrix, const LongTiles& tiles) {
  int place = feed_long_product(shared, args, matrix, Cut::in<Wide>(1), 0, tiles.wide);
  if (F::BN == WIDEST) return;
#pragma unroll 1
  for (int i = 0; i < Wide::SLOTS; i++) {
    mbarrier_wait_or_fault(shared + Wide::EMPTY + 8 * (place < Wide::SLOTS ? place : place - Wide::SLOTS), place < Wide::SLOTS);
    if (++place == 2 * Wide::SLOTS) place = 0;
  }
  feed_long_product(shared, args, matrix, Cut::in<F>(1), tiles.first);
}

// out = act(h W + b) as images, and its scales for who reads it
template <int MATRIX, class F>
__device__ __forceinline__ void long_product_to_images(const ExactArgs& args, const LongTiles& tiles, const LongSlabs& slabs) {
  constexpr int HALF = MATRIX == MATRIX_FC, N = HALF ? FFN : QKV;
  const uint32_t shared = begin_long(whole_grid());
  pdl_launch();
  const Memory memory(args);
  const float* v = memory.vectors();
  const ToImages to{v + (HALF ? V_INVERSE_FC : V_INVERSE_QKV), v + (HALF ? V_B_FC : V_B_QKV), memory.wide(), HALF, 0};
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) return feed_long_images<F>(shared, args, MATRIX, tiles);
    const int thread = thread_index() - CONSUMERS - 32;
    if (thread < 0) return;
    pdl_wait();
    const float* norm = v + (HALF ? V_GAMMA2 : V_GAMMA1);
    Scales::find(shared, norm, norm + D, to.inverses, to.biases, N, HALF, thread);
    return;
  }
  registers_increase<232>();
  const auto enter = [] { pdl_wait(); };
  Ring<Wide::SLOTS> wide;
  product_to_images<Wide>(wide, shared, N, to, memory.rows, enter, 0, tiles.wide);
  if constexpr (F::BN != WIDEST) {
    Ring<F::SLOTS> ring;
    product_to_images<F, N % F::BN != 0>(ring, shared, N, to, memory.rows, enter, tiles.first);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    const Scales scales = Scales::found(shared, HALF, 0);
    memory.scales()[HALF ? SCALE_F : SCALE_QK] = scales.product;
    if (!HALF) memory.scales()[SCALE_V] = scales.value;
  }
  slabs.split(args, shared);
}

// x1 = x + att W_attn + b_attn, or output = x1 + f W_proj + b_proj, K in SPLITS parts: a cluster of so many blocks has a tile together, of which each finishes
// some rows.
template <int MATRIX, class F, int SPLITS>
__device__ __forceinline__ void long_projection(const ExactArgs& args) {
  constexpr bool LAST = MATRIX == MATRIX_PROJ;
  using Sums = Exchange<WARPS, F::BN, SPLITS>;
  const int tiles = padded_rows(args) / ROW_TILE * (D / F::BN), rank = SPLITS > 1 ? static_cast<int>(cluster_rank()) : 0;
  const uint32_t shared = begin_long({static_cast<int>(blockIdx.x) / SPLITS + rank * tiles, static_cast<int>(gridDim.x)}, Sums::ARRIVALS);
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) feed_long_product(shared, args, MATRIX, Cut::in<F>(SPLITS));
    __syncwarp();
    if (SPLITS > 1) stand_by();
    return;
  }
  registers_increase<232>();
  if (SPLITS > 1 && threadIdx.x == 0) expect_sums<Sums>(shared + BAR_END);
  Ring<F::SLOTS> ring;
  Units<F> units(padded_rows(args), D, (LAST ? FFN : D) / 64, SPLITS);
  const LongResidual residual = LAST ? LongResidual::of_output(args) : LongResidual::of_attention(args);
  const int warp = uniform_group() * 4 + thread_index() % 128 / 32;
  int turn = 0;
  pdl_wait();
  pdl_launch();  // not before: LN2 takes it for a sign that the first kernel has ended
  const float a_inverse = inverse(load(Memory(args).scales() + (LAST ? SCALE_F : SCALE_V)));
#pragma unroll 1
  for (; units.more(); units.advance()) {
    const Spot<F> spot(units);
    float sum[F::BN / 2];
    multiply_unit<F, !LAST || SPLITS == FFN / CHUNK>(sum, turn, ring, shared, args, LAST, units.k_blocks, spot);
    if constexpr (SPLITS == 1) {
      LongRows<F::BN, 2> rows{residual, spot.row + warp * 16, spot.column};
      rows.fetch();
      rows.finish(shared, sum, a_inverse);
    } else {  // a block has one unit
      static_assert(Sums::BYTES <= RING_BYTES, "where the ring was");
      constexpr int COLUMNS = 8 * Sums::OCTETS;
      LongRows<COLUMNS, COLUMNS / 32> rows{residual, spot.row + (rank * Sums::OWN + warp / Sums::EACH) * 16, spot.column + warp % Sums::EACH * COLUMNS};
      float all[COLUMNS / 2];
      exchange_sums<Sums>(all, sum, shared + S_RING, shared + BAR_END, warp, rank, [&] { rows.fetch(); });
      rows.finish(shared, all, a_inverse);
      return cluster_wait();  // the other blocks have what this one sent
    }
  }
}

}  // namespace exact90

using namespace exact90;

// Weights -> strips, of W_qkv and as many others as are not split later, by half of the warps of some blocks; h = LN1(x) by the other blocks and, where these
// have more than a row a warp, by the other halves
extern "C" __global__ void __launch_bounds__(LONG_BEGIN_THREADS, 1) exact_long_begin(const ExactArgs args, const LongSlabs slabs) {
  constexpr int BLOCK_WARPS = LONG_BEGIN_THREADS / 32;
  const uint32_t shared = begin_long(whole_grid());
  pdl_launch();
  const bool cast = args.phases & EXACT_CAST;
  const int casting = min(slabs.end, crew.size), warp = threadIdx.x / 32;
  pdl_wait();
  if (warp < WARPS && crew.rank < casting) fetch_slab(args, crew.rank, shared + S_RING);
  if (warp < WARPS && cast) copy_vectors<false>(args);
  if (threadIdx.x < WARPS) LongParts(Memory(args)).counters(crew.rank)[threadIdx.x] = 0;
  if (warp >= WARPS || crew.rank >= casting) {
    const int busy = padded_rows(args) > (crew.size - casting) * BLOCK_WARPS ? WARPS : BLOCK_WARPS;  // warps of a casting block without rows
    if (crew.rank < casting && busy == BLOCK_WARPS) return;
    return long_norm1(args, crew.rank * BLOCK_WARPS + warp - min(crew.rank + 1, casting) * busy, crew.size * BLOCK_WARPS - casting * busy);
  }
  float* reduce = reinterpret_cast<float*>(dynamic_shared + (shared + S_REDUCE - shared_address(dynamic_shared)));
  split_slabs<false>(args, shared, reduce, crew.rank, crew.size, slabs.end);
}

// The widest tiles in whole rounds, then those of so many columns
#define LONG_PRODUCT(NAME, MATRIX, COLUMNS)                                                                                                  \
  extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                                                   \
      exact_long_##NAME##_##COLUMNS(const ExactArgs args, const LongTiles tiles, const LongSlabs slabs) {                                    \
    long_product_to_images<MATRIX, Form<COLUMNS>>(args, tiles, slabs);                                                                       \
  }
LONG_PRODUCT(qkv, MATRIX_QKV, 64)
LONG_PRODUCT(qkv, MATRIX_QKV, 80)
LONG_PRODUCT(qkv, MATRIX_QKV, 96)
LONG_PRODUCT(qkv, MATRIX_QKV, 128)
LONG_PRODUCT(qkv, MATRIX_QKV, 144)
LONG_PRODUCT(qkv, MATRIX_QKV, 192)
LONG_PRODUCT(fc, MATRIX_FC, 64)
LONG_PRODUCT(fc, MATRIX_FC, 80)
LONG_PRODUCT(fc, MATRIX_FC, 96)
LONG_PRODUCT(fc, MATRIX_FC, 128)
LONG_PRODUCT(fc, MATRIX_FC, 144)
LONG_PRODUCT(fc, MATRIX_FC, 192)

extern "C" __global__ void __launch_bounds__(THREADS, 1) exact_long_attention(const ExactArgs args, const LongRuns runs, const LongSlabs slabs) {
  const uint32_t shared = begin_long(whole_grid(), CONSUMERS);
  pdl_launch();
  const LongDeal deal(runs, padded_rows(args) / ROW_TILE * HEADS);
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) feed_attention(shared, args, deal, Q_EMPTY, [] { pdl_wait(); });
    return;
  }
  registers_increase<232>();
  long_attention<false>(shared, args, deal);
  slabs.split(args, shared);
}

// The same of as few rows as give each block half a unit at most
extern "C" __global__ void __launch_bounds__(THREADS, 1) exact_long_attention_halves(const ExactArgs args, const LongSlabs slabs) {
  constexpr int HEIGHT = ROW_TILE / 2;
  const uint32_t shared = begin_long(whole_grid(), CONSUMERS);
  pdl_launch();
  const WholeUnits deal{crew.rank, padded_rows(args) / HEIGHT * HEADS};
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) feed_attention<HEIGHT>(shared, args, deal, Q_EMPTY, [] { pdl_wait(); });
    return;
  }
  registers_increase<232>();
  long_attention<true>(shared, args, deal);
  slabs.split(args, shared);
}

// The projections in tiles of so many columns. grid of K in parts: so many for each tile
#define LONG_PROJECTION(NAME, MATRIX, FORM, COLUMNS, SPLITS)                                               \
  extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(THREADS, 1)                 \
      exact_long_##NAME##_##COLUMNS##_k##SPLITS(const ExactArgs args) {                                    \
    static_assert(FORM::BN == COLUMNS, "as it is called");                                                 \
    long_projection<MATRIX, FORM, SPLITS>(args);                                                           \
  }
LONG_PROJECTION(attn, MATRIX_ATTN, Narrow, 64, 4)
LONG_PROJECTION(attn, MATRIX_ATTN, Narrow, 64, 2)
LONG_PROJECTION(attn, MATRIX_ATTN, Narrow, 64, 1)
LONG_PROJECTION(attn, MATRIX_ATTN, Wide, 192, 2)
LONG_PROJECTION(attn, MATRIX_ATTN, Form<128>, 128, 1)
LONG_PROJECTION(attn, MATRIX_ATTN, Wide, 192, 1)
LONG_PROJECTION(proj, MATRIX_PROJ, Narrow, 64, 4)
LONG_PROJECTION(proj, MATRIX_PROJ, Form<96>, 96, 4)
LONG_PROJECTION(proj, MATRIX_PROJ, Form<128>, 128, 4)
LONG_PROJECTION(proj, MATRIX_PROJ, Form<96>, 96, 2)
LONG_PROJECTION(proj, MATRIX_PROJ, Form<128>, 128, 2)
LONG_PROJECTION(proj, MATRIX_PROJ, Wide, 192, 2)
LONG_PROJECTION(proj, MATRIX_PROJ, Form<128>, 128, 1)
LONG_PROJECTION(proj, MATRIX_PROJ, Wide, 192, 1)

// grid: rows of whole tiles / warps of a block
extern "C" __global__ void __launch_bounds__(LONG_NORM_THREADS, 3) exact_long_norm2(const ExactArgs args) {
  pdl_launch();
  long_norm2(args);
}
