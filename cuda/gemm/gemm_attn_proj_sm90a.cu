/* x1(rows, 768) fp32 = x + att(rows, 768) W_attn + b_attn;  h(rows, 768) fp16 = LayerNorm(x1; gamma2, beta2).
   grid: a multiple of 768 / BN blocks, at most one per multiprocessor; 64 x 96 tiles make 128 blocks at 1024 rows.
   Limiter: bytes into an SM (20 KB per k-block), then the exchange of row statistics, about 1 us. */
#include "gemm/epilogue_norm_sm90a.cuh"

struct AttnProjArgs {
  NormArgs norm;
  int early;
};

#define GEMM_ATTN_PROJ(BM, BN, STAGES)                                                                                                         \
  extern "C" __global__ void __launch_bounds__(GemmShape<BM, BN, D, D, STAGES>::THREADS, 1) gemm_attn_proj_##BM##x##BN(                        \
      const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap x1,                    \
      const __grid_constant__ CUtensorMap h, const AttnProjArgs args) {                                                                        \
    using Shape = GemmShape<BM, BN, D, D, STAGES>;                                                                                             \
    gemm<Shape>(&a, &b, NormEpilogue<Shape>(&x1, &h, args.norm), args.norm.rows, blockIdx.x, gridDim.x, args.early);                        \
  }

GEMM_ATTN_PROJ(64, 32, 12)
GEMM_ATTN_PROJ(64, 96, 8)
GEMM_ATTN_PROJ(128, 96, 5)
GEMM_ATTN_PROJ(128, 192, 3)
