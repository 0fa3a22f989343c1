/* What the forms of the exact kernel on Hopper share: how the roles of a block meet, and what keeps those supplied that compute. */
#pragma once

#include "common/tma_sm90a.cuh"
#include "exact/exact_attention_sm90a.cuh"
#include "exact/exact_gemm_sm90a.cuh"
#include "exact/exact_norm_sm90a.cuh"
#include "exact/exact_plan_sm90a.cuh"

namespace exact90 {

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

/* What a ring brings for one unit of a product, of whatever form it is: one piece of code for all of them, because code that runs for
   the first time comes from far away, and there is a product's first tile to wait for. (Weights before the barrier of the grid, on which
   they do not depend, lose 1 us: the barrier waits behind them.) */
struct Feeder {
  bool wide, any;
  uint32_t slot_bytes, barriers;
  int slots, pieces;
  uint32_t step_b;  // bytes from one piece of B to the next
  const unsigned char *from_a, *from_b;

  __device__ __forceinline__ Feeder(const ExactArgs& args, uint32_t shared, int matrix, int unit, Cut cut) {
    const Memory memory(args);
    wide = cut.wide(), slots = cut.slots;
    slot_bytes = Wide::A_BYTES + cut.columns * COLUMN;
    barriers = shared + (wide ? Wide::FULL : Narrow::FULL);
    const int k_tiles = (matrix == MATRIX_PROJ ? FFN : D) / 64, k_blocks = k_tiles >> (31 - __clz(cut.splits));
    const unsigned n = cut.columns, columns = (columns_of(matrix) + n - 1) / n, tiles = memory.rows / ROW_TILE * columns;
    const unsigned part = unit / tiles, tile = unit - part * tiles, row = tile / columns, column = tile - row * columns;
    any = part < cut.splits;
    pieces = 2 * k_blocks;
    from_a = (matrix == MATRIX_PROJ ? memory.wide() : memory.h()) + activation_at(k_tiles, row * ROW_TILE, part * k_blocks, 0);
    from_b = memory.base + (matrix == MATRIX_QKV ? AT_QKV : matrix == MATRIX_ATTN ? AT_ATTN : matrix == MATRIX_FC ? AT_FC : AT_PROJ) +
             weight_at(columns_of(matrix), column * n, part * k_blocks, 0);
    step_b = columns_of(matrix) * COLUMN;
  }
  // `place`: that of the ring, counted over two rounds, so that it tells the phase of its barriers, too. Returns the next one.
  __device__ __forceinline__ int run(int place, uint32_t ring) {
    const uint32_t empty = 8 * (wide ? Wide::BARRIERS : Narrow::BARRIERS);
#pragma unroll 1
    for (int k = 0; k < pieces; k++) {
      const int stage = place < slots ? place : place - slots;
      const uint32_t to = ring + stage * slot_bytes, full = barriers + 8 * stage;
      mbarrier_wait_or_fault(full + empty, place < slots);
      mbarrier_expect(full, slot_bytes);
      bulk_load(to, from_a, Wide::A_BYTES, full);
      bulk_load(to + Wide::A_BYTES, from_b, slot_bytes - Wide::A_BYTES, full);
      from_a += 2 * IMAGE;
      from_b += step_b;
      if (++place == 2 * slots) place = 0;
    }
    return place;
  }
};

// The warpgroup beside the computing ones: one thread feeds the rings, one meets the other blocks; all but the first warp find scales.
struct Supplier {
  const ExactArgs& args;
  Gate gate;
  unsigned top;              // of the grid's barrier
  int wide = 0, narrow = 0;  // places of the rings
  bool feeds, meets;

  __device__ __forceinline__ Supplier(const ExactArgs& args, uint32_t shared)
      : args(args),
        gate{shared},
        top(GridBarrier(args.memory, crew.rank, crew.size).top),
        feeds(threadIdx.x == CONSUMERS),
        meets(threadIdx.x == CONSUMERS + 32) {}

  __device__ __forceinline__ void pass() {
    named_barrier_sync(STAGE_BARRIER, THREADS);
    if (meets) {
      GridBarrier grid(anew(args.memory), top, crew.rank, crew.size);
      grid.meet();
      top = grid.top;
      mbarrier_arrive(gate.shared + BAR_MET);
    }
    gate.enter();
    fence_async_global();
  }
  __device__ __forceinline__ void feed_product(int matrix) {
#pragma unroll 1
    for (int unit = crew.rank;; unit += crew.size) {
      Feeder feeder(args, gate.shared, matrix, unit, cut_of(args, matrix));  // the first one while the others are still busy
      if (unit < crew.size) pass();
      if (!feeds || !feeder.any) break;
      const int place = feeder.run(feeder.wide ? wide : narrow, gate.shared + S_RING);
      if (feeder.wide)
        wide = place;
      else
        narrow = place;
    }
  }
  __device__ __forceinline__ void find_scales(int half) const {
    const int thread = thread_index() - CONSUMERS - 32;
    const float *v = Memory(args).vectors(), *norm = v + (half ? V_GAMMA2 : V_GAMMA1);
    static_assert(V_BETA1 - V_GAMMA1 == D && V_BETA2 - V_GAMMA2 == D, "beta behind gamma");
    if (thread < 0) return;
    Scales::find(gate.shared, norm, norm + D, v + (half ? V_INVERSE_FC : V_INVERSE_QKV), v + (half ? V_B_FC : V_B_QKV),
                half ? FFN : QKV, half, thread);
  }
};

__device__ __forceinline__ void supply(const ExactArgs& args, uint32_t shared) {
  Supplier supplier(args, shared);
#pragma unroll 1
  for (int matrix = MATRIX_QKV; matrix <= MATRIX_PROJ; matrix++) {
    supplier.feed_product(matrix);
    if (matrix == MATRIX_FC) continue;
    if (matrix == MATRIX_QKV) supplier.find_scales(0);
    supplier.pass();
    if (matrix != MATRIX_QKV) continue;
    if (supplier.feeds) feed_attention(shared, args, WholeUnits{crew.rank, padded_rows(args) / ROW_TILE * HEADS}, BAR_Q + 8, [] {});
    supplier.find_scales(1);
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

// The roles begin.
template <class Supply, class Consume>
__device__ __forceinline__ void compute(uint32_t shared, Supply supply, Consume consume) {
  if (threadIdx.x == 0) init_barriers(shared);
  __syncthreads();
  if (threadIdx.x >= CONSUMERS) {
    registers_decrease<40>();
    supply();
  } else {
    registers_increase<232>();
    consume();
  }
}

}  // namespace exact90
