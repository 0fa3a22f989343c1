/* x1(rows, 768) fp32 = x + att(rows, 768) W_attn + b_attn;  h(rows, 768) fp16 = LayerNorm(x1; gamma2, beta2); W_attn as the caller stored it.
   grid: ceil(rows / 64) * 24, at most what is resident at once: neighbours exchange the statistics of their rows. */
#include "gemm/epilogue_norm_sm90a.cuh"
#include "gemm/gemm_direct_sm90a.cuh"

struct AttnProjDirectArgs {
  NormArgs norm;
  const float* weights;  // (768, 768)
  unsigned* alarms;
};

#define GEMM_ATTN_PROJ_DIRECT(BM, BN, STAGES)                                                                                            \
  extern "C" __global__ void __launch_bounds__(DirectShape<BM, BN, D, D, STAGES>::THREADS, BM == 64 ? 2 : 1)                                            \
      gemm_attn_proj_direct_##BM##x##BN(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap x1,                   \
                                        const __grid_constant__ CUtensorMap h, const AttnProjDirectArgs args) {                          \
    using Shape = DirectShape<BM, BN, D, D, STAGES>;                                                                                     \
    gemm_direct<Shape>(&a, args.weights, NormEpilogue<Shape>(&x1, &h, args.norm), blockIdx.x, args.alarms, MATRIX_ATTN); \
  }

GEMM_ATTN_PROJ_DIRECT(64, 32, 3)
