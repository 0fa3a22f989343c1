/* Attention on sm_90a, not causal, the keys shared out between the blocks of a cluster. See attention_cluster_sm90a.cuh. attention_<R>x1x2_f16: R row
   groups, 128 (R + 1) threads. Grid 2 ceil(batch 12 ceil(seq_len / 64) / R). */
#include "attention/attention_cluster_sm90a.cuh"

using Tile = AttentionTile<3, 1, 64, 6, false, 2>;

extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(Tile::THREADS, 1)
    attention_3x1x2_f16(const __grid_constant__ CUtensorMap qkv, const ClusterArgs args) {
  attention_cluster_block<Tile>(&qkv, args);
}
