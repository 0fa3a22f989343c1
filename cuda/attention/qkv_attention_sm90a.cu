/* QKV and attention in one kernel on sm_90a, not causal, of one sequence. See qkv_attention_sm90a.cuh. qkv_attention_<B>: 128 (B - 1) + 1 to 128 B rows.
   Grid: 12 clusters of B blocks, and a few more that cast weights for later kernels; 384 threads. An H100 holds 17, 15 and 15 such clusters. */
#include "attention/qkv_attention_sm90a.cuh"

#define QKV_ATTENTION(HEAD_BLOCKS)                                                                                                                   \
  extern "C" __global__ void __cluster_dims__(HEAD_BLOCKS) __launch_bounds__(QkvAttentionTile::THREADS, 1)                                           \
      qkv_attention_##HEAD_BLOCKS(const __grid_constant__ CUtensorMap h, const __grid_constant__ CUtensorMap weights,                                \
                                  const __grid_constant__ CUtensorMap qkv, const QkvAttentionArgs args) {                                            \
    qkv_attention_block<HEAD_BLOCKS>(&h, &weights, &qkv, args);                                                                                      \
  }

QKV_ATTENTION(6)
QKV_ATTENTION(7)
QKV_ATTENTION(8)
