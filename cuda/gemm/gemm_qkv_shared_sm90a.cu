/* qkv(rows, 2304) fp16 = h(rows, 768) W_qkv + b_qkv for 65 to 128 rows, W_qkv as the caller stored it.
   grid: 48 clusters of two blocks, and those that cast what `cast` says. A is 98 KB a block, its weights are 74, of
   which it converts and sends half: 128 x 32 tiles draw 294. */
#include "cast/cast_sm90a.cuh"
#include "dims.h"
#include "gemm/gemm_shared_sm90a.cuh"

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(SharedShape<64, 48, QKV>::THREADS, 1)
    gemm_qkv_shared_64x48(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap out,
                          const DirectHalfArgs args, const CastArgs cast) {
  using Shape = SharedShape<64, 48, QKV>;
  using Epilogue = SharedHalfEpilogue<Shape, false>;
  constexpr int WORKING = Shape::BLOCKS * Shape::N_TILES,
                CAST_STAGES = (SharedMemory<Shape, Epilogue>::TOTAL - 1024) / 16400;
  if (blockIdx.x >= WORKING) {
    pdl_launch();
    cast_role<Shape::THREADS, CAST_STAGES, 128>(cast, shared_base(), blockIdx.x - WORKING, gridDim.x - WORKING);
    return;
  }
  gemm_shared<Shape>(&a, args.weights, Epilogue(&out, args.bias + blockIdx.x / Shape::BLOCKS * Shape::BN), args.alarms,
                     MATRIX_QKV);
}
