/* Fill small::Prepared from the caller's weights, once at create() or update(); weights need 4-byte alignment only.
   small_prepare: any grid and block. Limiter: 28 MB read in pieces of 32 bytes. */
#include "small/merge.cuh"
#include "small/packed.cuh"

namespace {

__device__ __forceinline__ void copy(float* to, const float* from, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = from[i];
}

}  // namespace

extern "C" __global__ void small_prepare(const float* weights, small::Prepared* out) {
  using namespace small;
  pack_matrix<Qkv>(out->qkv, weights);
  pack_matrix<Attn>(out->attn, weights);
  pack_matrix<Fc>(out->fc, weights);
  pack_matrix<Proj>(out->proj, weights);
  copy(out->b_qkv, weights + B_QKV, QKV);
  copy(out->b_attn, weights + B_ATTN, D);
  copy(out->norm2, weights + GAMMA2, 2 * D);
  copy(out->b_fc, weights + B_FC, FFN);
  copy(out->b_proj, weights + B_PROJ, D);
  copy(out->norm1, weights + GAMMA1, 2 * D);
}

extern "C" __global__ void __cluster_dims__(small::Merge::CLUSTER) __launch_bounds__(small::Merge::THREADS)
    small_merge(const float* weights, small::Prepared* out) {
  extern __shared__ __align__(16) unsigned char raw[];
  reinterpret_cast<small::Merge*>(raw)->run(weights, out->merged, out->of_merged);
}
