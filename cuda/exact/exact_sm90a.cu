/* The exact block on Hopper: exact.cuh says what it computes, the other files how each stage does.

   Grid: one block per SM, cooperative, or any, with what exact_crew_sm90a.cuh says; 384 threads: two warpgroups that
   compute and one that keeps them supplied: it feeds the rings, meets the other blocks and finds scales. Shared memory:
   SHARED_BYTES. Stages, a grid barrier (1.2 us) after each:

     weights -> strips (of W_qkv; others beside QKV where SMs are idle there), h = LN1(x)
     Q | K | V = h W_qkv + b_qkv      att = attention(Q, K, V)      parts = att W_attn
     x1 = x + parts + b_attn, h = LN2(x1)      f = gelu(h W_fc + b_fc)      parts = f W_proj      output = x1 + parts + b_proj

   x may be output: only the last stage writes there. The same bits come out every time: sums have a fixed order. */
#include "exact/exact_begin_sm90a.cuh"
#include "exact/exact_output_sm90a.cuh"
#include "exact/exact_roles_sm90a.cuh"

namespace exact90 {

__device__ __forceinline__ void consume(const ExactArgs& args, uint32_t shared, float* reduce) {
  Gate gate{shared};
  Rings rings;
  int early = SLABS, first_other = 0, others = 0;  // of Slabs
  {
    const bool cast = args.phases & EXACT_CAST;
    first_norm(args, [&] {
      if (!cast) return;
      const Slabs slabs(args);
      early = slabs.early, first_other = slabs.first, others = slabs.others;
      if (crew.rank < early) fetch_slab(args, crew.rank, shared + S_RING);
    });
    if (cast) {
      copy_vectors<false>(args);
      split_slabs<false>(args, shared, reduce, crew.rank, crew.size, early);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {  // the attention half and the feed-forward half
    gate.leave(true);
    const auto enter = [&] { gate.enter(); };
    {
      const Memory memory(args);
      const float* v = memory.vectors();
      const ToImages to{v + (half ? V_INVERSE_FC : V_INVERSE_QKV), v + (half ? V_B_FC : V_B_QKV), memory.wide(), half, half};
      if ((half ? cut_of<MATRIX_FC>(args) : cut_of<MATRIX_QKV>(args)).wide()) {
        product_to_images<Wide>(rings.wide, shared, half ? FFN : QKV, to, memory.rows, enter);
      } else {
        product_to_images<Narrow>(rings.narrow, shared, half ? FFN : QKV, to, memory.rows, enter);
      }
      if (half == 0 && early < SLABS && crew.rank >= first_other) {  // slabs beside QKV
        const int slab = early + crew.rank - first_other;
        named_barrier_sync(CONSUMER_BARRIER, CONSUMERS);  // both warpgroups are done with the ring
        if (slab < SLABS) fetch_slab(args, slab, shared + S_RING);
        split_slabs<false>(args, shared, reduce, slab, others, SLABS);
      }
    }
    const Scales scales = Scales::found(shared, half);
    const float a_inverse = inverse(half ? scales.product : scales.value);
    gate.leave(true);
    if (half == 0) {
      attention(shared, args, inverse(scales.product), enter);
      gate.leave(true);
    }
    const Cut cut = half ? cut_of<MATRIX_PROJ>(args) : cut_of<MATRIX_ATTN>(args);
    // No block has two of these units. (A launch with fewer blocks adds the same numbers in the same order.)
    if (half && cut.wide() && cut.splits == QUARTERS && padded_rows(args) / ROW_TILE * (D / WIDEST) * QUARTERS <= crew.size) {
      product_to_output<Wide>(rings.wide, shared, args, a_inverse, enter, [&] { gate.leave(false); });
      break;
    }
    if (cut.wide())
      product_to_parts<Wide>(rings.wide, shared, args, half != 0, cut.splits, a_inverse, enter);
    else
      product_to_parts<Narrow>(rings.narrow, shared, args, half != 0, cut.splits, a_inverse, enter);
    gate.leave(false);
    if (half == 0)
      second_norm(args, cut.splits, Scales::found(shared, 1).norm, enter);
    else
      finish_rows(args, cut.splits, enter);
  }
}

}  // namespace exact90

extern "C" __global__ void __launch_bounds__(exact90::THREADS, 1) exact(const ExactArgs args) {
  using namespace exact90;
  if (!join_crew(args)) return;
  const uint32_t shared = shared_base();
  float* reduce = reinterpret_cast<float*>(dynamic_shared + (shared + S_REDUCE - shared_address(dynamic_shared)));
  if (!(args.phases & EXACT_FORWARD)) {
    if (threadIdx.x < CONSUMERS) {
      if (crew.rank < SLABS) fetch_slab(args, crew.rank, shared + S_RING);
      copy_vectors<true>(args);
      split_slabs<true>(args, shared, reduce, crew.rank, crew.size, SLABS);
    }
    return;
  }
  // As a call it would spill.
  compute(shared, [&] { supply(args, shared); }, [&]() __attribute__((always_inline)) { consume(args, shared, reduce); });
}
