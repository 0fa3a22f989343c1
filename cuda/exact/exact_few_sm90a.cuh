/* The exact block for up to FEW_ROWS rows: straight from the fp32 weights, which are read once. No split weights in memory, no scales that must be found first.

   Stages, a grid barrier after each: LN1 and QKV; attention, a warp for each row and head; W_attn and residual; LN2, FC and GELU; proj and residual.
   Sequences of one token need no attention: the softmax over a single key is 1. The four products are rounds of one loop, because code that runs for the
   first time comes from far away. Each block has a unit of 24 columns by 768 of K, whose weights it has in its registers before the barrier in front, or,
   where one warp brings them (small/again.cuh), behind it; W_proj's K is four units, and of the blocks that have them the last one to be ready adds them
   up. Every block normalises all rows for itself: that costs less than one more barrier. Rows come in chunks of CHUNK_ROWS.

   H200, 1, 4, 16, 32, 48 rows: 15.7, 20.5, 26.8, 35.3, 48.4 us; the same from split weights, as for more rows, 61, and before by fp32 multiply-adds alone
   20, 26, 61 (up to 16 rows). Precision exact itself has small/fp32.cuh up to 8 rows and the chain of exact_chain_sm90a.cu from 17 on, which are faster;
   what comes behind fast kernels and computes a call again is one kernel, this one. Limiter: barriers and loads one after the other, then instructions: a
   tile of 16 rows takes 1.2 us in each product. */
#pragma once

#include "exact/exact_crew_sm90a.cuh"
#include "exact/exact_few_rows_sm90a.cuh"
#include "exact/exact_few_weights_sm90a.cuh"

namespace exact90 {

// The elements of a unit and chunk that a thread finishes: of a column, every 16th row from one on. work(row, which of them)
constexpr int OWN = CHUNK_ROWS / 16;
static_assert(THREADS == 16 * UNIT, "a thread for each element of 16 rows");
template <class Work>
__device__ __forceinline__ void each_own(int first_row, int rows, Work work) {
#pragma unroll
  for (int i = 0; i < OWN; i++)
    if (first_row + 16 * i < rows) work(first_row + 16 * i, i);
}

__device__ __forceinline__ float sum_of_warps(const float* sums) {
  float sum = sums[0];
#pragma unroll
  for (int warp = 1; warp < FEW_WARPS; warp++) sum += sums[warp * SUMS_PITCH];
  return sum;
}

// Whether this block is the last one that comes here of those with a part of these columns. Each turns its bit over, so before and after they are alike.
__device__ __forceinline__ bool last_of_parts(const ExactArgs& args, int column, int part) {
  constexpr unsigned ALL = (1 << PARTS) - 1;
  static_assert(D / UNIT <= TILE_WORDS, "a word for each");
  few_sync();
  bool last = false;
  if (threadIdx.x == 0) {
    const unsigned bit = 1u << part, bits = (xor_ordered(reinterpret_cast<unsigned*>(args.memory + AT_TILES) + column, bit) ^ bit) & ALL;
    last = bits == 0 || bits == ALL;
  }
  return !named_barrier_all(FEW_COMPUTING, THREADS, !last);
}

// output = x1 + the parts of W_proj's sums + bias, of a column and every 16th row from one on
__device__ __forceinline__ void few_add_parts(const FewStage& stage, int first_row, int column, float bias) {
#pragma unroll 4
  for (int row = first_row; row < stage.args.rows; row += THREADS / UNIT) {
    const float* const sum = stage.parts() + row * D + column;
    const float residual = load(stage.x1() + row * D + column);
    float all = load(sum);
#pragma unroll
    for (int p = 1; p < PARTS; p++) all += load(sum + p * (FEW_ROWS * D));
    stage.args.output[row * D + column] = all + bias + residual;
  }
}

template <int BRINGING>
__device__ __forceinline__ void few_compute(const ExactArgs& args, const FewShared& shared) {
  // Read as it is: to acquire it here would hold up all loads behind.
  GridBarrier grid(args.memory, __ldcg(reinterpret_cast<const unsigned*>(args.memory)) & GridBarrier::TOP, crew.rank, crew.size);
  const int rows = args.rows, own_row = thread_index() / UNIT, own_column = thread_index() % UNIT;
  const auto leave = [&] {
    few_sync();
    if (threadIdx.x == 0) grid.arrive();
  };
  const auto enter = [&] {
    if (threadIdx.x == 0) grid.await();
    few_sync();
  };
  constexpr bool EARLY = BRINGING > 1;  // weights are taken before the rows of A are there; 128 registers are too few for both
  const auto ask = [] { named_barrier_arrive(FEW_ASKED, THREADS + 32 * BRINGING); };
  uint32_t parity = 0;
#pragma unroll 1
  for (int matrix = MATRIX_QKV; matrix <= MATRIX_PROJ; matrix++) {
    const FewStage stage{args, matrix};
    const bool begins = matrix == MATRIX_QKV, works = crew.rank < stage.units();
    if (matrix == MATRIX_ATTN && args.seq_len > 1) {
      leave();
      enter();
      few_attention(stage.qkv(), stage.att(), args);
    }
    if (!begins) leave();
    if (matrix == MATRIX_FC) bring_norm(stage.weights() + GAMMA2, shared.norm());
    if (!works && begins) ask();
    if (!works && !begins && matrix != MATRIX_PROJ) enter();
    FewWeights weights;
#pragma unroll 1
    for (int unit = crew.rank; unit < stage.units(); unit += crew.size, parity ^= 1) {
      const int part = stage.part(unit), column = stage.column(unit) + own_column;
      const bool first = unit == crew.rank;
      // The weights are there before the rows of A, but for those of the first stage.
      if (begins && first)
        few_norm(args.x, shared.norm(), shared.a(), min(rows, CHUNK_ROWS), [&] {
          bring_norm(stage.weights() + GAMMA1, shared.norm());
          ask();
          copy_async_wait();
          few_sync();
        });
      if constexpr (EARLY) weights.receive(shared, parity, rows <= SCALAR_ROWS);
      copy_async_wait();
      if (first && !begins) enter();
      const float bias = load(stage.bias() + column);
#pragma unroll 1
      for (int top = 0; top < (EARLY ? rows : 1); top += CHUNK_ROWS) {
        const int count = min(rows - top, CHUNK_ROWS);
        const bool there = first ? begins && top == 0 : rows <= CHUNK_ROWS && matrix != MATRIX_PROJ;
        const FewStage::Left left = stage.left(part);
        if (!there && stage.norms())
          few_norm(left.rows + top * D, shared.norm(), shared.a(), count, [] {});
        else if (!there)
          bring_rows(left.rows + top * left.pitch, left.pitch, shared.a(), count);
        float residual[OWN] = {};
        if (matrix == MATRIX_ATTN) each_own(own_row, count, [&](int row, int i) { residual[i] = load(args.x + (top + row) * D + column); });
        if constexpr (!EARLY) weights.receive(shared, parity, rows <= SCALAR_ROWS);
        copy_async_wait();
        few_sync();
        weights.multiply(shared.a(), shared.sums(), count, rows <= SCALAR_ROWS);
        few_sync();
        float* const to = stage.result(part) + top * stage.width() + column;
        const int width = stage.width();
        each_own(own_row, count, [&](int row, int i) {
          const float sum = sum_of_warps(shared.sums() + row * UNIT + own_column);
          const float all = sum + bias + residual[i];
          __stcg(to + row * width, matrix == MATRIX_PROJ ? sum : matrix == MATRIX_FC ? gelu_exact(all) : all);
        });
      }
      if (matrix == MATRIX_PROJ && last_of_parts(args, stage.column(unit) / UNIT, part)) few_add_parts(stage, own_row, column, bias);
    }
  }
}

// By THREADS and BRINGING warps more. Whole warpgroups of these give some of their registers away.
template <int BRINGING>
__device__ __forceinline__ void few_block(const ExactArgs& args, const FewShared& shared) {
  if (threadIdx.x == THREADS) {
    mbarrier_init(shared.full(), 32 * BRINGING);
    mbarrier_init(shared.taken(), THREADS);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < THREADS) {
    if constexpr (BRINGING == 4) registers_increase<152>();
    few_compute<BRINGING>(args, shared);
  } else {
    if constexpr (BRINGING == 4) registers_decrease<40>();
    FewProducer<BRINGING>{args, shared}.run();
  }
}

}  // namespace exact90
