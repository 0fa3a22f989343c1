/* The first kernel of a prepared block's chain: h(rows, 768) fp16 = LayerNorm(x) without gamma1 and beta1, which are part of W_qkv and b_qkv
   (cast/fold_layernorms_sm90a.cu). For LN2 statistics = EMPTY (rows x tiles words, through which the blocks of the attention projection
   speak), or facts of each row for the one that does without.

   grid: ceil(rows / 8) blocks of 256 threads, a row a warp. Limiter: the latency of x, and of instructions that nothing has run since the
   last call: so few of them, in one straight run, and what is seldom wanted behind them.
   Everything later in the chain may read inputs and write its own outputs as soon as it starts, because this kernel lets its successors
   start only after its own predecessor has ended. */
#include <cuda_fp16.h>
#include "common/copy_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "gemm/row_facts_sm90a.cuh"
#include "gemm/statistics_sm90a.cuh"
#include "layernorm/layernorm_sm90a.cuh"

struct Layernorm1Args {
  const float* x;                  // (rows, 768), 16-byte aligned
  __half* h;                       // (rows, 768)
  const ResidualFacts* residual;   // one
  RowFacts* facts;                 // (rows); may be null
  unsigned long long* statistics;  // (rows, tiles)
  int rows, tiles;
  float* x_copy;  // (rows, 768): x once more, for a call that overwrites it; may be null
};

extern "C" __global__ void __launch_bounds__(256) layernorm1(const Layernorm1Args args) {
  const int lane = threadIdx.x % 32;
  const size_t row = min(static_cast<int>(blockIdx.x * 8 + threadIdx.x / 32), args.rows - 1);  // the last one by all warps that are left over
  pdl_wait();
  pdl_launch();
  LayernormRow one;
  one.load(args.x + row * D);
  const float2 residual = load_here_2(&args.residual->mean);
  const float2 moments = one.normalise();
  one.store_half(args.h + row * D);
  if (args.facts != nullptr && lane == 0) args.facts[row] = row_facts(moments.x, moments.y, {residual.x, residual.y});
  if (lane < args.tiles) args.statistics[row * args.tiles + lane] = EMPTY;
  if (args.x_copy != nullptr) {
    one.load(args.x + row * D);
    one.store(args.x_copy + row * D);
  }
}
