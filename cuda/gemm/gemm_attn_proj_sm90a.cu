/* x1(rows, 768) fp32 = x + att(rows, 768) W_attn + b_attn;  h(rows, 768) fp16 = LayerNorm(x1; gamma2, beta2).
   grid: a multiple of 768 / BN blocks, at most one per multiprocessor (64 x 96 tiles, which are for up to 512 rows, make 64 there; 64 x 128 tiles 96 at
   1024), and blocks past `gemm_blocks`, which cast weights for later kernels.
   Limiter: bytes into an SM (24 KB per k-block at 64 x 128), then the exchange of row statistics, about 1 us. */
#include "cast/cast_sm90a.cuh"
#include "gemm/epilogue_norm_sm90a.cuh"

struct AttnProjArgs {
  NormArgs norm;
  int early, gemm_blocks;
  CastArgs cast;
};

#define GEMM_ATTN_PROJ(BM, BN, STAGES)                                                                                                         \
  extern "C" __global__ void __launch_bounds__(GemmShape<BM, BN, D, D, STAGES>::THREADS, 1) gemm_attn_proj_##BM##x##BN(                        \
      const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap x1,                    \
      const __grid_constant__ CUtensorMap h, const AttnProjArgs args) {                                                                        \
    using Shape = GemmShape<BM, BN, D, D, STAGES>;                                                                                             \
    using Epilogue = NormEpilogue<Shape>;                                                                                                      \
    constexpr int CAST_STAGES = cast_stages(GemmMemory<Shape, Epilogue>::TOTAL);                                                               \
    if (blockIdx.x >= args.gemm_blocks) {                                                                                                      \
      pdl_launch();                                                                                                                            \
      cast_role<Shape::THREADS, CAST_STAGES>(args.cast, shared_base(), blockIdx.x - args.gemm_blocks, gridDim.x - args.gemm_blocks);           \
      return;                                                                                                                                  \
    }                                                                                                                                          \
    gemm<Shape>(&a, &b, Epilogue(&x1, &h, args.norm, args.cast.alarms), args.norm.rows, blockIdx.x, args.gemm_blocks, args.early);             \
  }

GEMM_ATTN_PROJ(64, 96, 8)
GEMM_ATTN_PROJ(64, 128, 7)
GEMM_ATTN_PROJ(128, 96, 5)
GEMM_ATTN_PROJ(128, 192, 3)
