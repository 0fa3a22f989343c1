/* Attention on sm_90a, not causal, the keys shared out between the blocks of a cluster. See attention_cluster_sm90a.cuh. attention_<R>x1x2_f16: R row
   groups, 128 (R + 1) threads. Grid 2 ceil(batch 12 ceil(seq_len / 64) / R). */
#include "attention/attention_cluster_sm90a.cuh"

#define ATTENTION_CLUSTER(ROW_GROUPS, KEYS, STAGES)                                                                                              \
  extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(AttentionTile<ROW_GROUPS, 1, KEYS, STAGES, false, 2>::THREADS, 1)             \
      attention_##ROW_GROUPS##x1x2_f16(const __grid_constant__ CUtensorMap qkv, const ClusterArgs args) {                                        \
    attention_cluster_block<AttentionTile<ROW_GROUPS, 1, KEYS, STAGES, false, 2>>(&qkv, args);                                                   \
  }

ATTENTION_CLUSTER(3, 64, 6)
