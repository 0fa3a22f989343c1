/* f(rows, 3072) fp16 = gelu_tanh(h(rows, 768) W_fc + b_fc).
   grid: as few blocks as need no more rounds, each takes every grid-th tile; 128 x 192 tiles make 128 blocks at 1024 rows, 128 x 128 tiles 120 at 640,
   192 x 192 tiles 128 at 1536. Swapped tiles, of 128 columns, make two waves of 132 blocks or four, or three of 128, where these would make more or longer
   ones, and one of 120 at 641 to 800 rows; of 192 columns, one of 128 at 1025 to 1280, two at 2113 to 2304 and three at 3169 to 3456.
   From the caller's weights three warps more may cast the last of W_proj meanwhile (cast/cast_loads_sm90a.cuh): 257 to 448 and 577 to 896 rows.
   Limiter: wgmma (9216 clocks at 128 x 192), then the 6 KB of f per row that go to L2. */
#include "cast/cast_loads_sm90a.cuh"
#include "dims.h"
#include "gemm/epilogue_half_sm90a.cuh"
#include "gemm/epilogue_half_swapped_sm90a.cuh"

struct FcArgs {
  const float* bias;  // (3072)
  int rows, early;
  CastArgs cast;
};

template <class S>
constexpr int FC_THREADS = S::THREADS + 32 * CASTING_WARPS<S>;

template <class S, class Epilogue>
__device__ __forceinline__ void fc(const CUtensorMap* a, const CUtensorMap* b, const Epilogue& epilogue, const FcArgs& args) {
  const int beside = uniform_warp() - S::THREADS / 32;
  if (CASTING_WARPS<S> > 0 && beside >= 0)
    cast_by_loads<CASTING_WARPS<S>>(args.cast, beside);
  else
    gemm<S>(a, b, epilogue, args.rows, blockIdx.x, gridDim.x, args.early);
}

#define GEMM_FC(BM, BN, STAGES)                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(FC_THREADS<GemmShape<BM, BN, FFN, D, STAGES>>, 1) gemm_fc_##BM##x##BN(                             \
      const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap out, const FcArgs args) { \
    using Shape = GemmShape<BM, BN, FFN, D, STAGES>;                                                                                              \
    fc<Shape>(&a, &b, HalfEpilogue<Shape, true>(&out, args.bias), args);                                                                          \
  }

GEMM_FC(64, 64, 6)
GEMM_FC(64, 96, 9)
GEMM_FC(128, 96, 6)
GEMM_FC(128, 128, 5)
GEMM_FC(128, 192, 4)
GEMM_FC(128, 256, 3)
GEMM_FC(192, 192, 3)

#define GEMM_FC_SWAPPED(BM, BN, STAGES)                                                                                                           \
  extern "C" __global__ void __launch_bounds__(FC_THREADS<GemmShape<BM, BN, FFN, D, STAGES, 1, 1, 1, true>>, 1) gemm_fc_##BM##x##BN##_swapped(    \
      const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap out, const FcArgs args) { \
    using Shape = GemmShape<BM, BN, FFN, D, STAGES, 1, 1, 1, true>;                                                                               \
    fc<Shape>(&a, &b, SwappedHalfEpilogue<Shape, true>(&out, args.bias, args.rows), args);                                                        \
  }

GEMM_FC_SWAPPED(144, 128, 4)
GEMM_FC_SWAPPED(144, 192, 4)
GEMM_FC_SWAPPED(160, 128, 4)
GEMM_FC_SWAPPED(160, 192, 3)
GEMM_FC_SWAPPED(192, 128, 4)
GEMM_FC_SWAPPED(224, 128, 3)
GEMM_FC_SWAPPED(240, 128, 3)
