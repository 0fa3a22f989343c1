/* f(rows, 3072) fp16 = gelu_tanh(factor h(rows, 768) W_fc + b_fc), with a factor for each row: LN2 is in the weights and in the factors
   (gemm/row_facts_sm90a.cuh).
   Grid and limiter as of the other FC (gemm/gemm_fc_sm90a.cu). */
#include "dims.h"
#include "gemm/epilogue_half_sm90a.cuh"
#include "gemm/epilogue_half_swapped_sm90a.cuh"

struct FcScaledArgs {
  const float* bias;  // (3072)
  int rows, early;
  RowScaling scaling;
};

#define GEMM_FC_SCALED(BM, BN, STAGES)                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(GemmShape<BM, BN, FFN, D, STAGES>::THREADS + 32, 1) gemm_fc_scaled_##BM##x##BN(                          \
      const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap out, const FcScaledArgs args) { \
    using Shape = GemmShape<BM, BN, FFN, D, STAGES>;                                                                                                    \
    HalfEpilogue<Shape, true, UNSCALED> epilogue(&out, args.bias);                                                                                      \
    epilogue.scaling = args.scaling;                                                                                                                    \
    gemm<Shape>(&a, &b, epilogue, args.rows, blockIdx.x, gridDim.x, args.early);                                                                        \
  }

GEMM_FC_SCALED(64, 64, 6)
GEMM_FC_SCALED(64, 96, 9)
GEMM_FC_SCALED(128, 96, 6)
GEMM_FC_SCALED(128, 128, 5)
GEMM_FC_SCALED(128, 192, 4)
GEMM_FC_SCALED(128, 256, 3)
GEMM_FC_SCALED(192, 192, 3)

#define GEMM_FC_SCALED_SWAPPED(BM, BN, STAGES)                                                                           \
  extern "C" __global__ void __launch_bounds__(GemmShape<BM, BN, FFN, D, STAGES, 1, 1, 1, true>::THREADS + 32, 1)        \
      gemm_fc_scaled_##BM##x##BN##_swapped(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, \
                                           const __grid_constant__ CUtensorMap out, const FcScaledArgs args) {           \
    using Shape = GemmShape<BM, BN, FFN, D, STAGES, 1, 1, 1, true>;                                                      \
    SwappedHalfEpilogue<Shape, true, UNSCALED> epilogue(&out, args.bias, args.rows);                                     \
    epilogue.scaling = args.scaling;                                                                                     \
    gemm<Shape>(&a, &b, epilogue, args.rows, blockIdx.x, gridDim.x, args.early);                                         \
  }

GEMM_FC_SCALED_SWAPPED(144, 128, 4)
GEMM_FC_SCALED_SWAPPED(144, 192, 4)
GEMM_FC_SCALED_SWAPPED(160, 128, 4)
GEMM_FC_SCALED_SWAPPED(160, 192, 3)
GEMM_FC_SCALED_SWAPPED(192, 128, 4)
GEMM_FC_SCALED_SWAPPED(224, 128, 3)
GEMM_FC_SCALED_SWAPPED(240, 128, 3)
