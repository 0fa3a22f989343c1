/* Attention on sm_90a, not causal, its work dealt out evenly. See attention_dealt_sm90a.cuh. Grid: a block for each multiprocessor, 512 threads. */
#include "attention/attention_dealt_sm90a.cuh"

extern "C" __global__ void __launch_bounds__(DealtTile::THREADS, 1)
    attention_3x1_f16_dealt(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap att, const __grid_constant__ DealtArgs args) {
  attention_dealt_block(&qkv, &att, args);
}
