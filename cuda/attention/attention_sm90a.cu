/* Attention on sm_90a, not causal. See attention_sm90a.cuh. attention_<R>x<G>_f16: R row groups, G key groups, 128 (R G + 1) threads.
   Grid (ceil(seq_len / (64 R)), 12, batch). Blocks cast weights that later kernels read beside their own work. */
#include "attention/attention_sm90a.cuh"

#define ATTENTION(NAME, R, G, KEYS, STAGES)                                                                                    \
  extern "C" __global__ void __launch_bounds__(AttentionTile<R, G, KEYS, STAGES, false>::THREADS, 1)                           \
      NAME(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap att, int seq_len, const CastArgs cast, \
           const float2* longest) {                                                                                            \
    attention_block<AttentionTile<R, G, KEYS, STAGES, false>>(&qkv, &att, seq_len, longest, cast);                             \
  }

ATTENTION(attention_1x2_f16, 1, 2, 64, 8)
ATTENTION(attention_2x1_f16, 2, 1, 128, 5)
ATTENTION(attention_3x1_f16, 3, 1, 128, 5)
