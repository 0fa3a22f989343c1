/* The exact block of many rows as a chain of launches with programmatic edges: the stages of exact_sm90a.cu as kernels of their own, on the same images. So
   none pays for code that others run, attention has a loop that does not find room beside the rest, and no stage waits for a barrier of the grid. Each
   kernel's arguments are those of the whole. */
#include "exact/exact_roles_sm90a.cuh"
#include "exact/long_attention_sm90a.cuh"
#include "exact/long_norm_sm90a.cuh"
#include "exact/long_output_sm90a.cuh"

namespace exact90 {

// QKV and FC have wide tiles in whole rounds. What is left has narrow tiles, or else middling ones, where one for each SM is enough: a round of them takes 0.4
// and 0.75 of the time (H200).
struct LongTiles {
  int wide, rest;  // of which so many, all of them together as large as what is left
  Cut rest_in;

  __device__ __forceinline__ LongTiles(const ExactArgs& args, int n) {
    const int all = padded_rows(args) / ROW_TILE * (n / GROUP), left = all % args.sms;
    const int narrow = left * (GROUP / 64), middling = left * GROUP / MIDDLE;
    rest_in = narrow <= args.sms ? Cut::in<Narrow>(1) : Cut::in<Middling>(1);
    // An odd number of wide tiles may end within a middling one.
    rest = !rest_in.middle ? narrow : middling <= args.sms && left % 2 == 0 ? middling : 0;
    wide = rest > 0 ? all - left : all;
  }
  // Where the rest begins, counted in its tiles
  template <class F>
  __device__ __forceinline__ int first() const {
    return wide * GROUP / F::BN;
  }
};
__device__ __forceinline__ Slabs long_slabs(const ExactArgs& args) {
  const LongTiles tiles(args, QKV);
  return tiles.rest == 0 ? Slabs(args, 5, tiles.wide) : Slabs(args, tiles.rest_in.middle ? 4 : 3, tiles.rest);
}

// A block's place among those that compute, and its shared memory; `arrivals`: of one barrier more, at BAR_END
__device__ __forceinline__ uint32_t begin_long(Crew place, int arrivals = 1) {
  const uint32_t shared = (smem_address(dynamic_shared) + 1023) & ~1023u;
  if (threadIdx.x == 0) {
    crew = place;
    mbarrier_init(shared + BAR_END, arrivals);
    init_barriers(shared);
  }
  __syncthreads();
  pdl_launch();
  return shared;
}
__device__ __forceinline__ Crew whole_grid() { return {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)}; }

// By one thread: brings the units from `first` on, below `end`, when the first one is known and the kernels before have ended. `place`: of the ring. Returns
// the next place.
__device__ __forceinline__ int feed_long_product(uint32_t shared, const ExactArgs& args, int matrix, Cut cut, int first = 0, int end = INT_MAX, int place = 0) {
#pragma unroll 1
  for (int unit = first + crew.rank;; unit += crew.size) {
    Feeder feeder(args, shared, matrix, unit, [&] { return cut; });
    pdl_wait();
    if (unit >= end || !feeder.any) return place;
    place = feeder.run(place, shared + S_RING);
  }
}
// First wide units, then others, whose ring lies in the same place: so behind those.
__device__ __forceinline__ void feed_long_images(uint32_t shared, const ExactArgs& args, int matrix, const LongTiles& tiles) {
  int place = feed_long_product(shared, args, matrix, Cut::in<Wide>(1), 0, tiles.wide);
  if (tiles.rest == 0) return;
#pragma unroll 1
  for (int i = 0; i < Wide::SLOTS; i++) {
    mbarrier_wait_or_fault(shared + Wide::EMPTY + 8 * (place < Wide::SLOTS ? place : place - Wide::SLOTS), place < Wide::SLOTS);
    if (++place == 2 * Wide::SLOTS) place = 0;
  }
  feed_long_product(shared, args, matrix, tiles.rest_in, tiles.rest_in.middle ? tiles.first<Middling>() : tiles.first<Narrow>());
}

// out = act(h W + b) as images, and its scale for who reads it
template <int MATRIX, class Beside>
__device__ __forceinline__ void long_product_to_images(const ExactArgs& args, Beside beside) {
  constexpr int HALF = MATRIX == MATRIX_FC, N = HALF ? FFN : QKV;
  const uint32_t shared = begin_long(whole_grid());
  const LongTiles tiles(args, N);
  const Memory memory(args);
  const float* v = memory.vectors();
  const ToImages to{v + (HALF ? V_INVERSE_FC : V_INVERSE_QKV), v + (HALF ? V_B_FC : V_B_QKV), memory.wide(), HALF, 0};
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) return feed_long_images(shared, args, MATRIX, tiles);
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
  if (tiles.rest > 0 && tiles.rest_in.middle) {
    Ring<Middling::SLOTS> ring;
    product_to_images<Middling>(ring, shared, N, to, memory.rows, enter, tiles.first<Middling>());
  } else if (tiles.rest > 0) {
    Ring<Narrow::SLOTS> ring;
    product_to_images<Narrow>(ring, shared, N, to, memory.rows, enter, tiles.first<Narrow>());
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) memory.scales()[HALF ? SCALE_F : SCALE_QKV] = Scales::found(shared, HALF, 0).product;
  beside(shared);
}

// x1 = x + att W_attn + b_attn, or output = x1 + f W_proj + b_proj, K in SPLITS parts, 1 or 2: of a pair of blocks each finishes half of the columns of
// their tile.
template <int MATRIX, class F, int SPLITS>
__device__ __forceinline__ void long_projection(const ExactArgs& args) {
  constexpr bool LAST = MATRIX == MATRIX_PROJ;
  const int tiles = padded_rows(args) / ROW_TILE * (D / F::BN), rank = SPLITS > 1 ? static_cast<int>(cluster_rank()) : 0;
  const uint32_t shared = begin_long({static_cast<int>(blockIdx.x) / SPLITS + rank * tiles, static_cast<int>(gridDim.x)});
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) feed_long_product(shared, args, MATRIX, Cut::in<F>(SPLITS));
    __syncwarp();
    if (SPLITS > 1) LongExchange<F>::stand_by();
    return;
  }
  registers_increase<232>();
  if (SPLITS > 1 && threadIdx.x == 0) LongExchange<F>(shared).expect();
  Ring<F::SLOTS> ring;
  Units<F> units(padded_rows(args), D, (LAST ? FFN : D) / 64, SPLITS);
  const LongResidual residual = LAST ? LongResidual::of_output(args) : LongResidual::of_attention(args);
  int turn = 0;
  pdl_wait();
  const float a_inverse = inverse(load(Memory(args).scales() + (LAST ? SCALE_F : SCALE_QKV)));
#pragma unroll 1
  for (; units.more(); units.advance()) {
    const Spot<F> spot(units);
    float sum[F::BN / 2];
    multiply_unit<F, !LAST>(sum, turn, ring, shared, args, LAST, units.k_blocks, spot);
    if constexpr (SPLITS == 1) {
      finish_long_rows<F::BN / 32>(shared, residual, spot.row, spot.column, sum, a_inverse);
    } else {  // a block has one unit
      float own[F::BN / 4];
      LongExchange<F>(shared).add(own, sum, rank);
      finish_long_rows<F::BN / 64>(shared, residual, spot.row, spot.column + rank * (F::BN / 2), own, a_inverse);
      return cluster_wait();  // the other block has what this one sent
    }
  }
}

}  // namespace exact90

using namespace exact90;

// Weights -> images, of W_qkv and as many others as are not split beside QKV, by half of the warps of some blocks; h = LN1(x) by the other blocks and, where
// these have more than a row a warp, by the other halves
extern "C" __global__ void __launch_bounds__(LONG_BEGIN_THREADS, 1) exact_long_begin(const ExactArgs args) {
  constexpr int BLOCK_WARPS = LONG_BEGIN_THREADS / 32;
  const uint32_t shared = begin_long(whole_grid());
  const bool cast = args.phases & EXACT_CAST;
  const int early = cast ? long_slabs(args).early : 0, casting = min(early, crew.size), warp = threadIdx.x / 32;
  pdl_wait();
  if (warp < WARPS && crew.rank < casting) fetch_slab(args, crew.rank, shared + S_RING);
  if (warp < WARPS && cast) copy_vectors<false>(args);
  if (threadIdx.x < WARPS) LongParts(Memory(args)).counters(crew.rank)[threadIdx.x] = 0;
  if (warp >= WARPS || crew.rank >= casting) {
    const int busy = padded_rows(args) > (crew.size - casting) * BLOCK_WARPS ? WARPS : BLOCK_WARPS;  // warps of a casting block without rows
    if (crew.rank < casting && busy == BLOCK_WARPS) return;
    return long_norm1(args, crew.rank * BLOCK_WARPS + warp - min(crew.rank + 1, casting) * busy, crew.size * BLOCK_WARPS - casting * busy);
  }
  float* reduce = reinterpret_cast<float*>(dynamic_shared + (shared + S_REDUCE - smem_address(dynamic_shared)));
  split_slabs<false>(args, shared, reduce, crew.rank, crew.size, early);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) exact_long_qkv(const ExactArgs args) {
  long_product_to_images<MATRIX_QKV>(args, [&](uint32_t shared) {
    if (!(args.phases & EXACT_CAST)) return;
    const Slabs slabs = long_slabs(args);
    if (slabs.early >= SLABS || crew.rank < slabs.first) return;
    float* reduce = reinterpret_cast<float*>(dynamic_shared + (shared + S_REDUCE - smem_address(dynamic_shared)));
    const int slab = slabs.early + crew.rank - slabs.first;
    named_barrier_sync(CONSUMER_BARRIER, CONSUMERS);  // both warpgroups are done with the ring
    if (slab < SLABS) fetch_slab(args, slab, shared + S_RING);
    split_slabs<false>(args, shared, reduce, slab, slabs.others, SLABS);
  });
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) exact_long_attention(const ExactArgs args) {
  const uint32_t shared = begin_long(whole_grid(), CONSUMERS);
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) feed_attention(shared, args, LongDeal(args, padded_rows(args)), Q_EMPTY, [] { pdl_wait(); });
    return;
  }
  registers_increase<232>();
  long_attention(shared, args);
}

// The projections in tiles of so many columns. grid of K in two: two for each tile
#define LONG_PROJECTION(NAME, MATRIX, FORM, COLUMNS, SPLITS)                                               \
  extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(THREADS, 1)                 \
      exact_long_##NAME##_##COLUMNS##_k##SPLITS(const ExactArgs args) {                                    \
    static_assert(FORM::BN == COLUMNS, "as it is called");                                                 \
    long_projection<MATRIX, FORM, SPLITS>(args);                                                           \
  }
LONG_PROJECTION(attn, MATRIX_ATTN, Narrow, 64, 2)
LONG_PROJECTION(attn, MATRIX_ATTN, Narrow, 64, 1)
LONG_PROJECTION(attn, MATRIX_ATTN, Wide, 192, 2)
LONG_PROJECTION(attn, MATRIX_ATTN, Middling, 128, 1)
LONG_PROJECTION(attn, MATRIX_ATTN, Wide, 192, 1)
LONG_PROJECTION(proj, MATRIX_PROJ, Narrow, 64, 2)
LONG_PROJECTION(proj, MATRIX_PROJ, Middling, 128, 2)
LONG_PROJECTION(proj, MATRIX_PROJ, Wide, 192, 2)
LONG_PROJECTION(proj, MATRIX_PROJ, Middling, 128, 1)
LONG_PROJECTION(proj, MATRIX_PROJ, Wide, 192, 1)

// grid: rows of whole tiles / warps of a block
extern "C" __global__ void __launch_bounds__(LONG_NORM_THREADS, 3) exact_long_norm2(const ExactArgs args) {
  pdl_launch();
  pdl_wait();
  long_norm2(args);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) exact_long_fc(const ExactArgs args) {
  long_product_to_images<MATRIX_FC>(args, [](uint32_t) {});
}
