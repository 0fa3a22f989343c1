/* QKV and attention in one kernel on sm_90a, not causal, of one sequence of 897 to 1024 rows. See qkv_attention_sm90a.cuh.
   Grid: 12 clusters of eight blocks, and a few more that cast weights for later kernels; 384 threads. An H200 holds 15 such clusters. */
#include "attention/qkv_attention_sm90a.cuh"

extern "C" __global__ void __cluster_dims__(HEAD_BLOCKS) __launch_bounds__(QkvAttentionTile::THREADS, 1)
    qkv_attention(const __grid_constant__ CUtensorMap h, const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap qkv,
                  const QkvAttentionArgs args) {
  if (blockIdx.x >= args.working) {
    constexpr int CAST_STAGES = (QkvAttentionSmem::TOTAL - 1024) / 16400;
    cast_role<QkvAttentionTile::THREADS, CAST_STAGES, 64, false, HEADS * HEAD_BLOCKS>(args.cast, shared_base(), blockIdx.x - args.working,
                                                                                      gridDim.x - args.working);
    return;
  }
  QkvAttention{&h, &weights, &qkv, args, {{shared_base()}}, static_cast<int>(blockIdx.x / HEAD_BLOCKS), static_cast<int>(cluster_rank())}.run();
}
