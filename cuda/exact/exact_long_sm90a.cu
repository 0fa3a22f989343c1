/* The exact block of many rows as a chain of launches with programmatic edges: the stages of exact_sm90a.cu as kernels of their own, on the same images. So
   none pays for code that others run, attention has a loop that does not find room beside the rest, and no stage waits for a barrier of the grid. Each
   kernel's arguments are those of the whole. */
#include "exact/exact_begin_sm90a.cuh"
#include "exact/exact_roles_sm90a.cuh"
#include "exact/long_attention_sm90a.cuh"
#include "exact/long_norm_sm90a.cuh"
#include "exact/long_output_sm90a.cuh"

namespace exact90 {

// QKV and FC have wide tiles in whole rounds; what is left has narrow ones where their rounds, each of 0.46 of the time (H200), end earlier, with 0.03 for the
// change. Returns how many are wide.
template <int MATRIX>
__device__ __forceinline__ int long_wide_units(const ExactArgs& args) {
  const int all = padded_rows(args) / ROW_TILE * (columns_of(MATRIX) / GROUP), rest = all % args.sms;
  return 46 * ((rest * (GROUP / 64) + args.sms - 1) / args.sms) + 3 < 100 ? all - rest : all;
}
__device__ __forceinline__ Slabs long_slabs(const ExactArgs& args) {
  const int all = padded_rows(args) / ROW_TILE * (QKV / GROUP), rest = all - long_wide_units<MATRIX_QKV>(args);
  return Slabs(args, rest == 0, rest == 0 ? all : rest * (GROUP / 64));
}

// As cut_of(), but the attention projection also has wide tiles with K in two, where these are one round and narrow ones two.
template <int MATRIX>
__device__ __forceinline__ Cut long_cut(const ExactArgs& args) {
  const int row_tiles = padded_rows(args) / ROW_TILE;
  if (MATRIX == MATRIX_ATTN && row_tiles * (D / 64) > args.sms && row_tiles * (D / GROUP) * 2 <= args.sms && 2 * row_tiles * ROW_TILE <= PARTIAL_ROWS)
    return {true, 2};
  return cut_of<MATRIX>(args);
}

// A block's place among those that compute, and its shared memory
__device__ __forceinline__ uint32_t begin_long(Crew place) {
  const uint32_t shared = (smem_address(dynamic_shared) + 1023) & ~1023u;
  if (threadIdx.x == 0) {
    crew = place;
    init_barriers(shared);
  }
  __syncthreads();
  pdl_launch();
  return shared;
}
__device__ __forceinline__ uint32_t begin_long() { return begin_long({static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)}); }

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
// First wide units, then narrow ones, whose ring lies in the same place: so behind those.
__device__ __forceinline__ void feed_long_images(uint32_t shared, const ExactArgs& args, int matrix, int wide_units) {
  int place = feed_long_product(shared, args, matrix, {true, 1}, 0, wide_units);
#pragma unroll 1
  for (int i = 0; i < Wide::SLOTS; i++) {
    mbarrier_wait_or_fault(shared + Wide::EMPTY + 8 * (place < Wide::SLOTS ? place : place - Wide::SLOTS), place < Wide::SLOTS);
    if (++place == 2 * Wide::SLOTS) place = 0;
  }
  feed_long_product(shared, args, matrix, {false, 1}, wide_units * (GROUP / 64));
}

// out = act(h W + b) as images, and its scale for who reads it
template <int MATRIX, class Beside>
__device__ __forceinline__ void long_product_to_images(const ExactArgs& args, Beside beside) {
  constexpr int HALF = MATRIX == MATRIX_FC, N = HALF ? FFN : QKV;
  const uint32_t shared = begin_long();
  const int wide_units = long_wide_units<MATRIX>(args);
  const Memory memory(args);
  const float* v = memory.vectors();
  const ToImages to{v + (HALF ? V_INVERSE_FC : V_INVERSE_QKV), v + (HALF ? V_B_FC : V_B_QKV), memory.wide(), HALF, 0};
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) return feed_long_images(shared, args, MATRIX, wide_units);
    const int thread = thread_index() - CONSUMERS - 32;
    if (thread < 0) return;
    pdl_wait();
    const float* norm = v + (HALF ? V_GAMMA2 : V_GAMMA1);
    Scales::find(shared, norm, norm + D, to.inverses, to.biases, N, HALF, thread);
    return;
  }
  registers_increase<232>();
  Rings rings;
  const auto enter = [] { pdl_wait(); };
  product_to_images<Wide>(rings.wide, shared, N, to, memory.rows, enter, 0, wide_units);
  product_to_images<Narrow>(rings.narrow, shared, N, to, memory.rows, enter, wide_units * (GROUP / 64));
  if (blockIdx.x == 0 && threadIdx.x == 0) memory.scales()[HALF ? SCALE_F : SCALE_QKV] = Scales::found(shared, HALF, 0).product;
  beside(shared);
}

// parts = A W, of W_attn or W_proj
template <int MATRIX>
__device__ __forceinline__ void long_product_to_parts(const ExactArgs& args) {
  const uint32_t shared = begin_long();
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) feed_long_product(shared, args, MATRIX, long_cut<MATRIX>(args));
    return;
  }
  registers_increase<232>();
  Rings rings;
  const Cut cut = long_cut<MATRIX>(args);
  pdl_wait();
  const float a_inverse = inverse(load(Memory(args).scales() + (MATRIX == MATRIX_PROJ ? SCALE_F : SCALE_QKV)));
  if (cut.wide)
    product_to_parts<Wide>(rings.wide, shared, args, MATRIX == MATRIX_PROJ, cut.splits, a_inverse, [] {});
  else
    product_to_parts<Narrow>(rings.narrow, shared, args, MATRIX == MATRIX_PROJ, cut.splits, a_inverse, [] {});
}

// output = x1 + f W_proj + b_proj, K in SPLITS parts, 1 or 2: of a pair of blocks each finishes half of the columns of their tile.
template <class F, int SPLITS>
__device__ __forceinline__ void long_product_to_output(const ExactArgs& args) {
  const int tiles = padded_rows(args) / ROW_TILE * (D / F::BN), rank = SPLITS > 1 ? static_cast<int>(cluster_rank()) : 0;
  const uint32_t shared = begin_long({static_cast<int>(blockIdx.x) / SPLITS + rank * tiles, static_cast<int>(gridDim.x)});
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) feed_long_product(shared, args, MATRIX_PROJ, {F::BN == GROUP, SPLITS});
    __syncwarp();
    if (SPLITS > 1) LongExchange::stand_by();
    return;
  }
  registers_increase<232>();
  Ring<F::SLOTS> ring;
  Units<F> units(padded_rows(args), D, FFN / 64, SPLITS);
  int turn = 0;
  pdl_wait();
  const float a_inverse = inverse(load(Memory(args).scales() + SCALE_F));
#pragma unroll 1
  for (; units.more(); units.advance()) {
    const Spot<F> spot(units);
    float sum[F::BN / 2];
    multiply_unit<F, false>(sum, turn, ring, shared, args, true, units.k_blocks, spot);
    if constexpr (SPLITS == 1) {
      finish_long_rows<F::BN / 32>(shared, args, spot.row, spot.column, sum, a_inverse);
    } else {  // a block has one unit
      float own[F::BN / 4];
      LongExchange(shared).add(own, sum, rank);
      finish_long_rows<F::BN / 64>(shared, args, spot.row, spot.column + rank * (F::BN / 2), own, a_inverse);
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
  const uint32_t shared = begin_long();
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
  const uint32_t shared = begin_long();
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) feed_long_attention(shared, args);
    return;
  }
  registers_increase<232>();
  long_attention(shared, args);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) exact_long_attn(const ExactArgs args) { long_product_to_parts<MATRIX_ATTN>(args); }

extern "C" __global__ void __launch_bounds__(LONG_NORM_THREADS, 3) exact_long_norm2(const ExactArgs args) {
  pdl_launch();
  pdl_wait();
  long_norm2(args, long_cut<MATRIX_ATTN>(args).splits);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) exact_long_fc(const ExactArgs args) {
  long_product_to_images<MATRIX_FC>(args, [](uint32_t) {});
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) exact_long_proj(const ExactArgs args) { long_product_to_parts<MATRIX_PROJ>(args); }

// The same in tiles of so many columns, up to output. grid of K in two: two for each tile
extern "C" __global__ void __launch_bounds__(THREADS, 1) exact_long_proj_64_k1(const ExactArgs args) { long_product_to_output<Narrow, 1>(args); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) exact_long_proj_192_k1(const ExactArgs args) { long_product_to_output<Wide, 1>(args); }
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 1) exact_long_proj_192_k2(const ExactArgs args) {
  long_product_to_output<Wide, 2>(args);
}

extern "C" __global__ void __launch_bounds__(LONG_NORM_THREADS, 3) exact_long_output(const ExactArgs args) {
  pdl_launch();
  pdl_wait();
  long_output(args, long_cut<MATRIX_PROJ>(args).splits);
}
