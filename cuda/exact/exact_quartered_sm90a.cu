/* The exact block of as many rows as give each SM one tile of QKV and of FC and a quarter of one of proj, 897 to 1024 of 132 SMs: exact_sm90a.cu with one
   way to cut each product, and with QKV and FC as one piece of code. A kernel pays for the code that it does not run, most of all where that lies in front of
   what it does run, and for each piece that it runs for the first time: 127.8 -> 121.4 us at 1024 rows (H200). Only in precision exact, on all SMs; which
   rows: Form::quartered() of src/cuda/exact.rs. */
#include "exact/exact_roles_sm90a.cuh"

namespace exact90 {

// As Supplier; what a ring brings first has its place already while the blocks meet.
struct QuarteredSupplier : Supplier {
  using Supplier::Supplier;
  int places = 0;  // of the rings: of the narrow one, and in the upper half of the wide one

  __device__ __forceinline__ void feed_product_behind(int matrix) {
#pragma unroll 1
    for (int unit = crew.rank;; unit += crew.size) {
      Feeder feeder(args, gate.shared, matrix, unit);  // the first one while the others are still busy
      const bool more = feeder.any && thread_index() < CONSUMERS + 32;
      const int shift = feeder.wide ? 16 : 0, place = feeder.run_behind(places >> shift & 255, gate.shared + S_RING, feeds && more, [&] {
        if (unit < crew.size) pass();
      });
      if (!more) break;
      places = (places & ~(255 << shift)) | place << shift;
    }
  }
  // The four blocks that share a tile meet.
  __device__ __forceinline__ void pass_to_output() {
    const unsigned tiles = padded_rows(args) / ROW_TILE * (D / GROUP), part = crew.rank / tiles, tile = crew.rank - part * tiles;
    const bool shares = meets && part < QUARTERS;
    GridBarrier few(args.memory + AT_TILES + 4 * tile, 0u, part, QUARTERS);
    if (shares) few.begin();
    named_barrier_sync(STAGE_BARRIER, THREADS);
    if (shares) few.meet();
    if (meets) mbarrier_arrive(gate.shared + BAR_MET);
  }
};

__device__ __forceinline__ void supply_quartered(const ExactArgs& args, uint32_t shared) {
  QuarteredSupplier supplier(args, shared);
#pragma unroll 1
  for (int matrix = MATRIX_QKV; matrix <= MATRIX_PROJ; matrix++) {
    supplier.feed_product_behind(matrix);
    if (matrix == MATRIX_ATTN) supplier.pass();
    if (matrix == MATRIX_PROJ) supplier.pass_to_output();
    if (matrix != MATRIX_QKV) continue;
    supplier.find_scales(0);
    feed_attention_behind(shared, args, supplier.feeds, [&] { supplier.pass(); });
    supplier.find_scales(1);
  }
}

// The slabs that this block splits beside QKV: slab, slab + step, .. if slab is below SLABS. Kept in shared memory, not in registers all the time.
struct Beside {
  int slab, step;
};
__shared__ Beside beside;

__device__ __forceinline__ void consume_quartered(const ExactArgs& args, uint32_t shared, float* reduce) {
  Gate gate{shared};
  Rings rings;
  {
    int early = SLABS;
    const bool cast = args.phases & EXACT_CAST;
    first_norm(args, [&] {
      if (threadIdx.x == 0) beside = {SLABS, 0};
      if (!cast) return;
      const Slabs slabs(args);
      early = slabs.early;
      if (threadIdx.x == 0) beside = {crew.rank >= slabs.first ? slabs.early + crew.rank - slabs.first : SLABS, slabs.others};
      if (crew.rank < early) fetch_slab(args, crew.rank, shared + S_RING);
    });
    if (cast) {
      copy_vectors<false>(args);
      split_slabs<false>(args, shared, reduce, crew.rank, crew.size, early);
    }
  }
  const auto enter = [&] { gate.enter(); };
  float a_inverse;
#pragma unroll 1
  for (int half = 0;; half = 1) {  // the attention half and the feed-forward half: QKV and FC are one piece of code
    gate.leave(true);
    {
      const Memory memory(args);
      const float* v = memory.vectors();
      const ToImages to{v + (half ? V_INVERSE_FC : V_INVERSE_QKV), v + (half ? V_B_FC : V_B_QKV), memory.wide(), half};
      if (args.rows > 0)  // always; behind a branch ptxas takes the lanes for converged again, and keeps descriptors in uniform registers
        product_to_images<Leading>(rings.wide, shared, half ? FFN : QKV, to, memory.rows, enter);
      if (const int slab = beside.slab; half == 0 && slab < SLABS) {  // slabs beside QKV
        named_barrier_sync(CONSUMER_BARRIER, CONSUMERS);  // both warpgroups are done with the ring
        fetch_slab(args, slab, shared + S_RING);
        split_slabs<false>(args, shared, reduce, slab, beside.step, SLABS);
      }
    }
    a_inverse = inverse(Scales::found(shared, half).product);
    gate.leave(true);
    if (half) break;
    attention(shared, args, a_inverse, enter);
    gate.leave(true);
    const int splits = cut_of<MATRIX_ATTN>(args).splits;
    if (args.rows > 0) product_to_parts<Narrow>(rings.narrow, shared, args, false, splits, a_inverse, enter);
    gate.leave(false);
    second_norm<true>(args, splits, Scales::found(shared, 1).norm, enter);
  }
  product_to_output<Leading>(rings.wide, shared, args, a_inverse, enter, [&] { gate.leave(false); });
}

}  // namespace exact90

extern "C" __global__ void __launch_bounds__(exact90::THREADS, 1) exact_quartered(const ExactArgs args) {
  using namespace exact90;
  pdl_wait();
  if (threadIdx.x == 0) crew = Crew{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
  __syncthreads();
  const uint32_t shared = (smem_address(dynamic_shared) + 1023) & ~1023u;
  float* reduce = reinterpret_cast<float*>(dynamic_shared + (shared + S_REDUCE - smem_address(dynamic_shared)));
  compute(shared, [&] { supply_quartered(args, shared); }, [&] { consume_quartered(args, shared, reduce); });
}
