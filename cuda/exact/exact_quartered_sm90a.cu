/* The exact block of as many rows as give each SM one tile of QKV and of FC and a quarter of one of proj, 897 to 1024 of 132 SMs:
   exact_sm90a.cu with one way to cut each product, and with QKV and FC as one piece of code. A kernel pays for the code that it does not
   run, most of all where that lies in front of what it does run, and for each piece that it runs for the first time. And a block does one
   thing at a time: of the first stage a slab of weights or rows of LN1, then a tile or further slabs, until the end of attention.
   1024 rows: solve() takes 117 us; exact_sm90a.cu, with a product's whole sum in one accumulator, which is faster, 128 by itself (H200).
   Only in precision exact, on all SMs; which rows: quartered() of src/cuda/exact.rs. */
#include "exact/exact_output_quartered_sm90a.cuh"
#include "exact/exact_roles_sm90a.cuh"

namespace exact90 {

__device__ __forceinline__ int tiles_of_qkv(const ExactArgs& args) { return padded_rows(args) / ROW_TILE * (QKV / GROUP); }

constexpr int LEAVING = CONSUMERS + 32;  // threads that leave a stage: those that compute, and the warp that meets the other blocks

// The only one there is: cut_of() of these rows.
__device__ __forceinline__ Cut cut_quartered(int matrix) { return {matrix != MATRIX_ATTN, matrix == MATRIX_PROJ ? QUARTERS : 1}; }

// Of the warpgroup that supplies, the first warp: one of its lanes feeds the rings and meets the other blocks, so that
// what comes first leaves at once.
struct QuarteredSupplier {
  const ExactArgs& args;
  uint32_t shared;
  unsigned top;    // of the grid's barrier
  bool leads;      // that lane
  int places = 0;  // of the rings: of the narrow one, and in the upper half of the wide one

  __device__ __forceinline__ QuarteredSupplier(const ExactArgs& args, uint32_t shared)
      : args(args), shared(shared), top(GridBarrier(args.memory, crew.rank, crew.size).top), leads(threadIdx.x == CONSUMERS) {}

  // With `ahead` the other blocks do not wait for what this one is still computing.
  __device__ __forceinline__ void pass(bool ahead = false) {
    if (!ahead) named_barrier_sync(STAGE_BARRIER, LEAVING);
    if (leads) {
      GridBarrier grid(anew(args.memory), top, crew.rank, crew.size);
      grid.meet();
      top = grid.top;
    }
    if (ahead) named_barrier_sync(STAGE_BARRIER, LEAVING);
    if (!leads) return;
    mbarrier_arrive(shared + BAR_MET);
    fence_async_global();
  }
  __device__ __forceinline__ void feed_product(int matrix) {
    // While the others are still busy; what comes first has its place already.
    Feeder feeder(args, shared, matrix, crew.rank, [&] { return cut_quartered(matrix); });
    const int shift = feeder.wide ? 16 : 0;
    const int place = feeder.run_behind(places >> shift & 255, shared + S_RING, leads && feeder.any, [&] { pass(); });
    places = (places & ~(255 << shift)) | place << shift;
  }
};

/* Its other warps: the scales of LN1 and QKV beside QKV, that of LN2 beside attention, that of FC beside FC, because its slabs are split until
   the end of attention. */
__device__ __forceinline__ void find_scales_quartered(const ExactArgs& args, uint32_t shared) {
  Gate gate{shared};
#pragma unroll 1
  for (int stage = 0; stage < 5; stage++) {
    gate.enter();
    if (stage == 2 || stage == 3) continue;
    const int half = stage > 0;
    const float *v = Memory(args).vectors(), *norm = v + (half ? V_GAMMA2 : V_GAMMA1);
    Scales::find_some(shared, norm, norm + D, v + (half ? V_INVERSE_FC : V_INVERSE_QKV), v + (half ? V_B_FC : V_B_QKV), half ? FFN : QKV, half,
                 thread_index() - CONSUMERS - 32, stage == 4 ? 2 : 0, stage == 1 ? 2 : 4);
  }
}

__device__ __forceinline__ void supply_quartered(const ExactArgs& args, uint32_t shared) {
  if (threadIdx.x >= LEAVING) return find_scales_quartered(args, shared);
  QuarteredSupplier supplier(args, shared);
#pragma unroll 1
  for (int matrix = MATRIX_QKV; matrix <= MATRIX_PROJ; matrix++) {
    supplier.feed_product(matrix);
    if (anew(matrix) == MATRIX_ATTN) {
      if (supplier.leads) mbarrier_wait_or_fault(shared + BAR_SCALES, 1);  // so who finds scales is never two stages late
      supplier.pass();
    }
    if (anew(matrix) == MATRIX_QKV)
      feed_attention_behind(shared, args, supplier.leads, [&] { supplier.pass(crew.rank >= tiles_of_qkv(args)); });
  }
}

// The slabs that a block without a tile of QKV splits beside it and attention: slab, slab + step, .. if slab is below
// SLABS. Kept in shared memory, not in registers all the time.
struct Beside {
  int slab, step;
};
__shared__ Beside beside;

__device__ __forceinline__ void consume_quartered(const ExactArgs& args, uint32_t shared, float* reduce) {
  Gate gate{shared, 0, LEAVING};
  Rings rings;
  {
    const bool cast = args.phases & EXACT_CAST;
    // LN1's rows go to the blocks without a slab, where they are enough.
    const int normless = cast && crew.size >= SLABS_QKV * 3 / 2 ? SLABS_QKV : 0;
    if (threadIdx.x == 0) {
      const int first = tiles_of_qkv(args);
      beside = {cast && crew.rank >= first ? SLABS_QKV + crew.rank - first : SLABS, crew.size - first};
    }
    if (cast) {
      if (crew.rank < SLABS_QKV) fetch_slab(args, crew.rank, shared + S_RING);
      copy_vectors<false>(args);
      split_slabs<false>(args, shared, reduce, crew.rank, crew.size, SLABS_QKV);
    }
    if (crew.rank >= normless) first_norm(args, Crew{crew.rank - normless, crew.size - normless}, [] {});
  }
  const auto enter = [&] { gate.enter(); };
  float a_inverse;
#pragma unroll 1
  for (int half = 0;; half = 1) {  // the attention half and the feed-forward half: QKV and FC are one piece of code
    gate.leave(true);
    {
      const Memory memory(args);
      const float* v = memory.vectors();
      const ToImages to{v + (half ? V_INVERSE_FC : V_INVERSE_QKV), v + (half ? V_B_FC : V_B_QKV), memory.wide(), half, 0};
      if (args.rows > 0)  // always; behind a branch ptxas takes the lanes for converged again, and keeps descriptors in uniform registers
        product_to_images<Leading, true>(rings.wide, shared, half ? FFN : QKV, to, memory.rows, enter);
      if (const int slab = beside.slab; half == 0 && slab < SLABS) {  // the other blocks do not wait for them before attention
        named_barrier_sync(CONSUMER_BARRIER, CONSUMERS);  // both warpgroups are done with the ring
        fetch_slab(args, slab, shared + S_RING);
        split_slabs<false>(args, shared, reduce, slab, beside.step, SLABS);
      }
    }
    a_inverse = inverse(Scales::found(shared, half, 0).product);
    gate.leave(true);
    if (half) break;
    attention<true>(shared, args, a_inverse, enter);
    gate.leave(true);
    if (args.rows > 0) product_to_parts<Narrow, true>(rings.narrow, shared, args, false, 1, a_inverse, enter);
    gate.leave(false);
    second_norm<true>(args, 1, Scales::found(shared, 1, 1).norm, enter);
  }
  product_to_output<Leading>(rings.wide, shared, args, a_inverse, enter, TileMeeting());
}

}  // namespace exact90

extern "C" __global__ void __launch_bounds__(exact90::THREADS, 1) exact_quartered(const ExactArgs args) {
  using namespace exact90;
  pdl_wait();
  if (threadIdx.x == 0) crew = Crew{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
  __syncthreads();
  const uint32_t shared = (smem_address(dynamic_shared) + 1023) & ~1023u;
  float* reduce = reinterpret_cast<float*>(dynamic_shared + (shared + S_REDUCE - smem_address(dynamic_shared)));
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    if (threadIdx.x == CONSUMERS) init_barriers(shared);  // those that compute first use them behind the first stage
    named_barrier_sync(SUPPLY_BARRIER, THREADS - CONSUMERS);
    supply_quartered(args, shared);
  } else {
    registers_increase<232>();
    consume_quartered(args, shared, reduce);
  }
}
