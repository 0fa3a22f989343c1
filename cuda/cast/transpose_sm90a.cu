/* transposed(2304, 768) fp16 = W_qkv(768, 2304), its rows in the order of gemm/transposed_sm90a.cuh, for tiles of the QKV
   product that slabs of the matrix as it lies do not make up.
   grid: (2304 / 32, 768 / 32) tiles of 32 x 32; 256 threads, eight rows at a time. A block is prepared once: what it takes does not matter. */
#include <cuda_fp16.h>
#include "dims.h"
#include "gemm/transposed_sm90a.cuh"

constexpr int SIDE = 32;
static_assert(QKV % SIDE == 0 && D % SIDE == 0);

extern "C" __global__ void __launch_bounds__(SIDE * 8) transpose_qkv(const float* weights, __half* transposed) {
  __shared__ float tile[SIDE][SIDE + 1];
  const int n = blockIdx.x * SIDE, k = blockIdx.y * SIDE, lane = threadIdx.x % SIDE, group = threadIdx.x / SIDE;
  for (int i = group; i < SIDE; i += 8) tile[i][lane] = weights[W_QKV + (k + i) * QKV + n + lane];
  __syncthreads();
  for (int i = group; i < SIDE; i += 8) transposed[transposed_row(n + i) * D + k + lane] = __float2half_rn(tile[lane][i]);
}
