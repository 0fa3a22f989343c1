/* The exact block on Hopper: exact.cuh says what it computes, the other files how each stage does.

   Grid: one block per SM, cooperative, or any, with what exact_crew_sm90a.cuh says; 384 threads: two warpgroups that compute and one that keeps them supplied: it feeds the
   rings, meets the other blocks and finds scales. Shared memory: SHARED_BYTES. Stages, a grid barrier (1.2 us) after each:

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
__device__ __forceinline__ Cut cut_of(const ExactArgs& args) {
  const int sms = args.sms, columns = MATRIX == MATRIX_QKV ? QKV : MATRIX == MATRIX_FC ? FFN : D;
  const int most_narrow = MATRIX == MATRIX_PROJ ? sms / 2 : 2 * sms;
  return Cut::of(padded_rows(args), columns, sms, most_narrow, MATRIX == MATRIX_PROJ ? 16 : MATRIX == MATRIX_ATTN ? 4 : 1);
}

// Blocks that have a unit of QKV. If enough others are left they split slabs of the other weights meanwhile.
__device__ __forceinline__ int busy_with_qkv(const ExactArgs& args) {
  return padded_rows(args) / ROW_TILE * (QKV / (cut_of<MATRIX_QKV>(args).wide ? GROUP : 64));
}
__device__ __forceinline__ bool splits_late(int busy) { return busy + 24 <= crew.size; }
// Slabs that are split before QKV if the rest is not: those of W_qkv, and as many more as keep all blocks busy, unless the
// others can do six each beside wide tiles.
__device__ __forceinline__ int early_slabs(const ExactArgs& args) {
  const int blocks = crew.size, others = blocks - busy_with_qkv(args);
  if (cut_of<MATRIX_QKV>(args).wide && 6 * others >= SLABS - SLABS_QKV) return SLABS_QKV;
  return (SLABS_QKV + blocks - 1) / blocks * blocks;
}

/* Between two stages: the computing threads leave() one and enter() the next; a thread of the other warpgroup meets the other
   blocks for them and says so by BAR_MET. What a thread loads between leaving and entering comes during the meeting. */
struct Gate {
  uint32_t shared, parity = 0;

  // `images`: some were stored, which the copy engine will read. That fence waits for loads, too.
  __device__ __forceinline__ void leave(bool images) {
    if (images) fence_async_global();
    named_barrier_sync(STAGE_BARRIER, THREADS);
  }
  __device__ __forceinline__ void enter() {
    mbarrier_wait_or_fault(shared + BAR_MET, parity);
    parity ^= 1;
  }
};

struct Rings {
  Ring<WIDE_SLOTS> wide;
  Ring<NARROW_SLOTS> narrow;
};

// Between two stages on the side of the warpgroup that supplies the computing ones.
struct Supplier {
  const ExactArgs& args;
  Gate gate;
  GridBarrier grid;
  Rings rings;
  bool feeds, meets;

  __device__ __forceinline__ Supplier(const ExactArgs& args, uint32_t shared)
      : args(args), gate{shared}, grid(args.memory, crew.rank, crew.size), feeds(threadIdx.x == CONSUMERS), meets(threadIdx.x == CONSUMERS + 32) {}

  __device__ __forceinline__ void pass() {
    named_barrier_sync(STAGE_BARRIER, THREADS);
    if (meets) {
      grid.meet();
      mbarrier_arrive(gate.shared + BAR_MET);
    }
    gate.enter();
    fence_async_global();
  }

  template <int MATRIX>
  __device__ __forceinline__ void feed_product() {
    const Memory memory(args);
    const uint32_t shared = gate.shared;
    const Cut cut = cut_of<MATRIX>(args);  // while the others are still busy
    const Product p{MATRIX == MATRIX_PROJ ? memory.wide() : memory.h(),
                    memory.base + (MATRIX == MATRIX_QKV    ? AT_QKV
                                   : MATRIX == MATRIX_ATTN ? AT_ATTN
                                   : MATRIX == MATRIX_FC   ? AT_FC
                                                           : AT_PROJ),
                    MATRIX == MATRIX_QKV  ? QKV
                    : MATRIX == MATRIX_FC ? FFN
                                          : D,
                    MATRIX == MATRIX_PROJ ? FFN / 64 : D / 64, cut};
    pass();
    if (!feeds) return;
    if (cut.wide)
      feed<Wide>(rings.wide, shared, p, memory.rows);
    else
      feed<Narrow>(rings.narrow, shared, p, memory.rows);
  }
  template <int N>
  __device__ __forceinline__ void find_scales(int gamma, int beta, int inverse, int bias, int half) const {
    const int thread = static_cast<int>(threadIdx.x) - CONSUMERS - 32;
    const float* v = Memory(args).vectors();
    if (thread >= 0) Scales::find<N>(gate.shared, v + gamma, v + beta, v + inverse, v + bias, half, thread);
  }
};

// The warpgroup beside the computing ones: one thread feeds the rings, one meets other blocks, all but the first warp find scales.
__device__ __forceinline__ void supply(const ExactArgs& args, uint32_t shared) {
  Supplier supplier(args, shared);
  supplier.feed_product<MATRIX_QKV>();
  supplier.find_scales<QKV>(V_GAMMA1, V_BETA1, V_INVERSE_QKV, V_B_QKV, 0);
  supplier.pass();
  if (supplier.feeds) feed_attention(shared, args);
  supplier.find_scales<FFN>(V_GAMMA2, V_BETA2, V_INVERSE_FC, V_B_FC, 1);
  supplier.feed_product<MATRIX_ATTN>();
  supplier.pass();
  supplier.feed_product<MATRIX_FC>();
  supplier.feed_product<MATRIX_PROJ>();
  supplier.pass();
}

__device__ __forceinline__ void consume(const ExactArgs& args, uint32_t shared, float* reduce) {
  Gate gate{shared};
  Rings rings;
  {
    const bool cast = args.phases & EXACT_CAST;
    const int early = splits_late(busy_with_qkv(args)) ? early_slabs(args) : SLABS;
    first_norm(args, [&] {
      if (cast && crew.rank < early) fetch_slab(args, crew.rank, shared + S_RING);
    });
    if (cast) {
      copy_vectors<false>(args);
      split_slabs<false>(args, shared, reduce, crew.rank, crew.size, early);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {  // the attention half and the feed-forward half
    gate.leave(true);
    gate.enter();
    {
      const Memory memory(args);
      const float* v = memory.vectors();
      const ToImages to{v + (half ? V_INVERSE_FC : V_INVERSE_QKV), v + (half ? V_B_FC : V_B_QKV), memory.wide(), half};
      const int busy = busy_with_qkv(args), block = crew.rank, slab = early_slabs(args) + block - busy;
      if (half == 0 && args.phases & EXACT_CAST && splits_late(busy) && block >= busy) {
        if (slab < SLABS) fetch_slab(args, slab, shared + S_RING);
        split_slabs<false>(args, shared, reduce, slab, crew.size - busy, SLABS);
      } else if ((half ? cut_of<MATRIX_FC>(args) : cut_of<MATRIX_QKV>(args)).wide) {
        product_to_images<Wide>(rings.wide, shared, half ? FFN : QKV, to, memory.rows);
      } else {
        product_to_images<Narrow>(rings.narrow, shared, half ? FFN : QKV, to, memory.rows);
      }
    }
    const float a_inverse = inverse(Scales::found(shared, half).product);
    gate.leave(true);
    gate.enter();
    if (half == 0) {
      attention(shared, args, a_inverse);
      gate.leave(true);
      gate.enter();
    }
    const Cut cut = half ? cut_of<MATRIX_PROJ>(args) : cut_of<MATRIX_ATTN>(args);
    if (cut.wide)
      product_to_parts<Wide>(rings.wide, shared, args, half != 0, cut.splits, a_inverse);
    else
      product_to_parts<Narrow>(rings.narrow, shared, args, half != 0, cut.splits, a_inverse);
    gate.leave(false);
    const auto enter = [&] { gate.enter(); };
    if (half == 0)
      second_norm(args, cut.splits, enter);
    else
      finish_rows(args, cut.splits, enter);
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
  mbarrier_init(shared + BAR_SCALES, SCALE_WARPS);
  mbarrier_init(shared + BAR_MET, 1);
  fence_mbarrier_init();
}

// They run or have ended, because this kernel starts only when their blocks have let it. One thread of a block asks: all of the grid at one word would wait
// for one another.
__device__ __forceinline__ void await_watchers(const ExactArgs& args) {
  unsigned polls = 0;
  if (threadIdx.x == 0)
    while (load_acquire(args.alarms + ALARMS_WATCHED) != args.watchers) bound(++polls);
  __syncthreads();
}

}  // namespace exact90

extern "C" __global__ void __launch_bounds__(exact90::THREADS, 1) exact(const ExactArgs args) {
  using namespace exact90;
  if (args.watchers == WATCHERS_UNKNOWN) pdl_wait();
  if (args.watchers > 0) await_watchers(args);
  const bool quiet = args.rule != RULE_EXACT && !any_raised(args.alarms);
  pdl_wait();  // in any case: a graph ends with this kernel, and must not before the one in front of it
  if (quiet) asm volatile("exit;");  // usually all; as an exit it is worth 0.35 us of the chain at 1024 rows on an H200
  bool raised;
  if (args.phases & EXACT_FORWARD && !must_rescue(args.alarms, args.rule, raised)) {
    // Without alarms the fast result stands, too: no matter who reads them before or after this.
    if (raised && !args.keep_alarms && blockIdx.x == 0 && threadIdx.x < ALARMS) args.alarms[threadIdx.x] = 0;
    return;
  }
  __syncthreads();  // everybody has read the alarms, which the last block to gather clears
  if (threadIdx.x == 0) crew = args.rule == RULE_EXACT ? Crew{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)} : gather(args);
  __syncthreads();
  if (crew.size == 0) return;
  const uint32_t shared = (smem_address(dynamic_shared) + 1023) & ~1023u;
  float* from_shared = reinterpret_cast<float*>(dynamic_shared + (shared - smem_address(dynamic_shared)));
  float* reduce = from_shared + S_REDUCE / 4;
  if (!(args.phases & EXACT_FORWARD)) {
    if (threadIdx.x < CONSUMERS) {
      if (crew.rank < SLABS) fetch_slab(args, crew.rank, shared + S_RING);
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
  if (threadIdx.x == 0) init_barriers(shared);
  __syncthreads();
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    supply(args, shared);
  } else {
    registers_increase<232>();
    consume(args, shared, reduce);
  }
}
