/* x1(rows, 768) fp32 = att(rows, 768) W_attn + b_attn + x;  h(rows, 768) fp16 = (x1 - centre) scale, for FC with LN2 in its weights.
   grid: a multiple of 768 / BN blocks, at most one per multiprocessor. Limiter: bytes into an SM (24 KB per k-block at 64 x 128), then those
   out of it, 16 a clock. */
#include "gemm/epilogue_apart_sm90a.cuh"

struct ApartProjArgs {
  ApartArgs apart;
  int early;
};

#define GEMM_ATTN_PROJ_APART(BM, BN, STAGES)                                                                                                   \
  extern "C" __global__ void __launch_bounds__(GemmShape<BM, BN, D, D, STAGES>::THREADS, 1) gemm_attn_proj_apart_##BM##x##BN(                  \
      const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap x1,                    \
      const __grid_constant__ CUtensorMap h, const ApartProjArgs args) {                                                                       \
    using Shape = GemmShape<BM, BN, D, D, STAGES>;                                                                                             \
    gemm<Shape>(&a, &b, ApartEpilogue<Shape>(&x1, &h, args.apart), args.apart.rows, blockIdx.x, gridDim.x, args.early);                        \
  }

GEMM_ATTN_PROJ_APART(64, 96, 8)
GEMM_ATTN_PROJ_APART(64, 128, 7)
GEMM_ATTN_PROJ_APART(128, 96, 5)
GEMM_ATTN_PROJ_APART(128, 192, 3)
