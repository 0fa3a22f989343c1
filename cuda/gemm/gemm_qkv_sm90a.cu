/* qkv(rows, 2304) fp16 = h(rows, 768) W_qkv + b_qkv; blocks past `gemm_blocks` cast weights for later kernels meanwhile.
   grid: gemm_blocks + cast blocks; 128 x 192 tiles fill 96 multiprocessors at 1024 rows and leave 36 to the cast; 192 x 192 tiles are 132 at 2048. From
   weights that lie transposed, which only a prepared block has, 144 columns make 128 blocks at 1024 rows.
   Swapped tiles, of 128 columns, are 126 blocks, of one tile at 1025 to 1120 and 1409 to 1792 rows and of two at 2113 to 2240 and 2817 to 3584, where
   128 x 192 tiles are 108, and 192 x 192 tiles 96 to 120 and 90 to 114. From the caller's weights, where the blocks that are left cast, they serve 513 to 576
   rows, too, as 72 blocks, and those up to 1120 from 1109 on.
   Limiter: wgmma at 1024 rows and more, latency below. */
#include "cast/cast_sm90a.cuh"
#include "gemm/epilogue_half_sm90a.cuh"
#include "gemm/epilogue_half_swapped_sm90a.cuh"
#include "gemm/transposed_sm90a.cuh"

struct QkvArgs {
  const float* bias;  // (2304)
  int rows, gemm_blocks, early;
  int callers_bias;  // bias is the caller's, aligned to 4 bytes, as the first kernel may still be copying it
  CastArgs cast;
  LongestRows longest;
};

// What a block past the product's does
template <class S, class Epilogue>
__device__ __forceinline__ void cast_meanwhile(const QkvArgs& args) {
  constexpr int STAGES = cast_stages(GemmMemory<S, Epilogue>::TOTAL), GROUP = S::BN == 96 ? 128 : S::THREADS - 32;
  pdl_launch();
  cast_role<S::THREADS, STAGES, GROUP>(args.cast, shared_base(), blockIdx.x - args.gemm_blocks, gridDim.x - args.gemm_blocks);
}

#define GEMM_QKV(BM, BN, STAGES)                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(GemmShape<BM, BN, QKV, D, STAGES>::THREADS, 1) gemm_qkv_##BM##x##BN(                                \
      const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap out, const QkvArgs args) { \
    using Shape = GemmShape<BM, BN, QKV, D, STAGES>;                                                                                               \
    using Epilogue = HalfEpilogue<Shape, false, WITH_BIAS, true>;                                                                                  \
    if (blockIdx.x >= args.gemm_blocks) return cast_meanwhile<Shape, Epilogue>(args);                                                              \
    Epilogue epilogue(&out, args.bias);                                                                                                            \
    epilogue.longest = &args.longest;                                                                                                              \
    epilogue.unstaged = args.callers_bias;                                                                                                         \
    gemm<Shape>(&a, &b, epilogue, args.rows, blockIdx.x, args.gemm_blocks, args.early);                                                            \
  }

#define GEMM_QKV_SWAPPED(BM, BN, STAGES)                                                                                                           \
  extern "C" __global__ void __launch_bounds__(GemmShape<BM, BN, QKV, D, STAGES, 1, 1, 1, true>::THREADS, 1) gemm_qkv_##BM##x##BN##_swapped(       \
      const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap out, const QkvArgs args) { \
    using Shape = GemmShape<BM, BN, QKV, D, STAGES, 1, 1, 1, true>;                                                                                \
    using Epilogue = SwappedHalfEpilogue<Shape, false, WITH_BIAS, true>;                                                                           \
    if (blockIdx.x >= args.gemm_blocks) return cast_meanwhile<Shape, Epilogue>(args);                                                              \
    Epilogue epilogue(&out, args.bias, args.rows);                                                                                                 \
    epilogue.longest = &args.longest;                                                                                                              \
    gemm<Shape>(&a, &b, epilogue, args.rows, blockIdx.x, args.gemm_blocks, args.early);                                                            \
  }

#define GEMM_QKV_TRANSPOSED(BM, BN, STAGES)                                                                                            \
  extern "C" __global__ void __launch_bounds__(GemmShape<BM, BN, QKV, D, STAGES>::THREADS, 1) gemm_qkv_##BM##x##BN(                    \
      const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap out,           \
      const __grid_constant__ CUtensorMap rest, const QkvArgs args) {                                                                  \
    using Shape = GemmShape<BM, BN, QKV, D, STAGES>;                                                                                   \
    using Epilogue = HalfEpilogue<Shape, false, WITH_BIAS, true>;                                                                      \
    static_assert(Shape::TRANSPOSED && Epilogue::BOXES * Epilogue::COLUMNS == TRANSPOSED_WIDE && Epilogue::REST == TRANSPOSED_NARROW); \
    Epilogue epilogue(&out, args.bias, &rest);                                                                                         \
    epilogue.longest = &args.longest;                                                                                                  \
    gemm<Shape>(&a, &b, epilogue, args.rows, blockIdx.x, args.gemm_blocks, args.early);                                                \
  }

GEMM_QKV(64, 64, 6)
GEMM_QKV(64, 96, 9)
GEMM_QKV(128, 96, 6)
GEMM_QKV_TRANSPOSED(128, 144, 5)
GEMM_QKV(128, 192, 4)
GEMM_QKV(192, 192, 3)
GEMM_QKV_SWAPPED(160, 128, 5)
GEMM_QKV_SWAPPED(208, 128, 3)
GEMM_QKV_SWAPPED(224, 128, 3)
GEMM_QKV_SWAPPED(256, 128, 3)
