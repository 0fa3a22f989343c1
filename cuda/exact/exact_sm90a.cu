/* The exact block on Hopper: exact.cuh says what it computes, the other files how each stage does.

   Grid: one block per SM, cooperative; 384 threads: two warpgroups that compute and a producer thread that keeps them
   supplied. Shared memory: SHARED_BYTES. Stages, a grid barrier (1.2 us) after each:

     weights -> images (of W_qkv; the rest beside QKV where SMs are idle there), h = LN1(x)
     Q | K | V = h W_qkv + b_qkv      att = attention(Q, K, V)      parts = att W_attn
     x1 = x + parts + b_attn, h = LN2(x1)      f = gelu(h W_fc + b_fc)      parts = f W_proj      output = x1 + parts + b_proj

   x may be output: only the last stage writes there. The same bits come out every time: sums have a fixed order. */
#include "exact/exact_attention_sm90a.cuh"
#include "exact/exact_crew_sm90a.cuh"
#include "exact/exact_few_sm90a.cuh"
#include "exact/exact_gemm_sm90a.cuh"
#include "exact/exact_norm_sm90a.cuh"
#include "exact/exact_split_sm90a.cuh"

namespace exact90 {

// How a product is cut: found anew by each role where it is needed.
template <int MATRIX>
__device__ __forceinline__ Cut cut_of(int rows) {
  return Cut::of(rows, MATRIX == MATRIX_QKV ? QKV : MATRIX == MATRIX_FC ? FFN : D, MATRIX == MATRIX_PROJ,
                 MATRIX == MATRIX_PROJ ? 16 : MATRIX == MATRIX_ATTN ? 4 : 1);
}

// Slabs that are split before QKV if the rest is not: those of W_qkv, and as many more as keep all blocks busy.
__device__ __forceinline__ int early_slabs() { return (SLABS_QKV + crew.size - 1) / crew.size * crew.size; }
// Blocks that have a unit of QKV. If enough others are left they split the other slabs meanwhile.
__device__ __forceinline__ int busy_with_qkv(int rows) {
  return rows / ROW_TILE * (QKV / (cut_of<MATRIX_QKV>(rows).wide ? GROUP : 64));
}
__device__ __forceinline__ bool splits_late(int busy) { return busy + 24 <= crew.size; }

// All threads of the block: 384, of which the first of the computing ones speaks for the block.
__device__ __forceinline__ void meet(const ExactArgs& args, uint32_t shared) {
  fence_async_global();  // what was stored will be read by the copy engine
  named_barrier_sync(STAGE_BARRIER, THREADS);
  if (thread_index() == 0) {
    GridBarrier grid(args.memory, load_shared_word(shared + S_TOP), crew.rank, crew.size);
    grid.meet();
    store_shared_word(shared + S_TOP, grid.top);
  }
  named_barrier_sync(STAGE_BARRIER, THREADS);
  fence_async_global();
}

template <int MATRIX>
__device__ __forceinline__ void feed_product(Ring<WIDE_SLOTS>& wide, Ring<NARROW_SLOTS>& narrow, const ExactArgs& args, uint32_t shared, bool feeds) {
  const Memory memory(args);
  const Cut cut = cut_of<MATRIX>(memory.rows);  // while the others are still busy
  const Product p{MATRIX == MATRIX_PROJ ? memory.wide() : memory.h(),
                  memory.base + (MATRIX == MATRIX_QKV    ? AT_QKV
                                 : MATRIX == MATRIX_ATTN ? AT_ATTN
                                 : MATRIX == MATRIX_FC   ? AT_FC
                                                         : AT_PROJ),
                  MATRIX == MATRIX_QKV  ? QKV
                  : MATRIX == MATRIX_FC ? FFN
                                        : D,
                  MATRIX == MATRIX_PROJ ? FFN / 64 : D / 64, cut};
  meet(args, shared);
  if (feeds && cut.wide) feed<Wide>(wide, shared, p, memory.rows);
  if (feeds && !cut.wide) feed<Narrow>(narrow, shared, p, memory.rows);
}

__device__ __forceinline__ void produce(const ExactArgs& args, uint32_t shared) {
  const bool feeds = threadIdx.x == CONSUMERS;
  Ring<WIDE_SLOTS> wide;
  Ring<NARROW_SLOTS> narrow;
  feed_product<MATRIX_QKV>(wide, narrow, args, shared, feeds);
  meet(args, shared);
  if (feeds) feed_attention(shared, args);
  feed_product<MATRIX_ATTN>(wide, narrow, args, shared, feeds);
  meet(args, shared);
  feed_product<MATRIX_FC>(wide, narrow, args, shared, feeds);
  feed_product<MATRIX_PROJ>(wide, narrow, args, shared, feeds);
  meet(args, shared);
}

__device__ __forceinline__ void consume(const ExactArgs& args, uint32_t shared, float* reduce) {
  Ring<WIDE_SLOTS> wide;
  Ring<NARROW_SLOTS> narrow;
  first_norm(args);
  if (args.phases & EXACT_CAST) {
    copy_vectors<false>(args);
    split_slabs<false>(args, shared, reduce, crew.rank, crew.size, splits_late(busy_with_qkv(padded_rows(args))) ? early_slabs() : SLABS);
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {  // the attention half and the feed-forward half
    meet(args, shared);
    float a_inverse;
    {
      const Memory memory(args);
      const float* v = memory.vectors();
      const Scales scales = half ? Scales::of<FFN>(v + V_GAMMA2, v + V_BETA2, v + V_INVERSE_FC, v + V_B_FC, reduce)
                                 : Scales::of<QKV>(v + V_GAMMA1, v + V_BETA1, v + V_INVERSE_QKV, v + V_B_QKV, reduce);
      a_inverse = inverse(scales.product);
      const ToImages to{v + (half ? V_INVERSE_FC : V_INVERSE_QKV), v + (half ? V_B_FC : V_B_QKV), inverse(scales.norm),
                        scales.product, memory.wide(), half != 0};
      const int busy = busy_with_qkv(memory.rows), block = crew.rank;
      if (half == 0 && args.phases & EXACT_CAST && splits_late(busy) && block >= busy)
        split_slabs<false>(args, shared, reduce, early_slabs() + block - busy, crew.size - busy, SLABS);
      else if ((half ? cut_of<MATRIX_FC>(memory.rows) : cut_of<MATRIX_QKV>(memory.rows)).wide)
        product_to_images<Wide>(wide, shared, half ? FFN : QKV, to, memory.rows);
      else
        product_to_images<Narrow>(narrow, shared, half ? FFN : QKV, to, memory.rows);
    }
    meet(args, shared);
    if (half == 0) {
      attention(shared, args, a_inverse);
      meet(args, shared);
    }
    const int rows = padded_rows(args);
    const Cut cut = half ? cut_of<MATRIX_PROJ>(rows) : cut_of<MATRIX_ATTN>(rows);
    if (cut.wide)
      product_to_parts<Wide>(wide, shared, args, half != 0, cut.splits, a_inverse);
    else
      product_to_parts<Narrow>(narrow, shared, args, half != 0, cut.splits, a_inverse);
    meet(args, shared);
    if (half == 0)
      second_norm(args, cut.splits);
    else
      finish_rows(args, cut.splits);
  }
}

__device__ __forceinline__ void init_barriers(uint32_t shared) {
  const auto init = [&](int at, int slots) {
    for (int i = 0; i < slots; i++) {
      mbarrier_init(shared + at + 8 * i, 1);            // full: the producer, and the bytes
      mbarrier_init(shared + at + 8 * (slots + i), 2);  // empty: both warpgroups
    }
  };
  init(BAR_WIDE, WIDE_SLOTS);
  init(BAR_NARROW, NARROW_SLOTS);
  init(BAR_Q, 1);
  init(BAR_KV, KV_SLOTS);
  fence_mbarrier_init();
}

}  // namespace exact90

extern "C" __global__ void __launch_bounds__(exact90::THREADS, 1) exact(const ExactArgs args) {
  using namespace exact90;
  if (!args.settled) pdl_wait();
  // Usually all: as little as possible in front of it, which is worth 0.35 us of the chain at 1024 rows on an H200.
  if (args.rule != RULE_EXACT && !any_raised(args.alarms)) asm volatile("exit;");
  bool raised;
  if (args.phases & EXACT_FORWARD && !must_rescue(args.alarms, args.rule, raised)) {
    // Without alarms the fast result stands, too: no matter who reads them before or after this.
    if (raised && !args.keep_alarms && blockIdx.x == 0 && threadIdx.x < ALARMS) args.alarms[threadIdx.x] = 0;
    return;
  }
  if (args.settled) pdl_wait();
  if (threadIdx.x == 0) crew = args.rule == RULE_EXACT ? Crew{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)} : gather(args);
  __syncthreads();
  if (crew.size == 0) return;
  const uint32_t shared = (smem_address(dynamic_shared) + 1023) & ~1023u;
  float* from_shared = reinterpret_cast<float*>(dynamic_shared + (shared - smem_address(dynamic_shared)));
  float* reduce = from_shared + S_REDUCE / 4;
  if (!(args.phases & EXACT_FORWARD)) {
    if (threadIdx.x < CONSUMERS) {
      copy_vectors<true>(args);
      split_slabs<true>(args, shared, reduce, crew.rank, crew.size, SLABS);
    }
    return;
  }
  if (args.rows <= FEW_ROWS) {
    if (args.rows <= 1)
      few_rows<1>(args, from_shared);
    else if (args.rows <= 4)
      few_rows<4>(args, from_shared);
    else
      few_rows<FEW_ROWS>(args, from_shared);
    return;
  }
  if (threadIdx.x == 0) {
    init_barriers(shared);
    store_shared_word(shared + S_TOP, GridBarrier(args.memory, crew.rank, crew.size).top);
  }
  __syncthreads();
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    produce(args, shared);
  } else {
    registers_increase<232>();
    consume(args, shared, reduce);
  }
}
