/* Attention on sm_90a, causal: key j has weight for query i when j <= i. See attention_sm90a.cuh. attention_<R>x<G>_f16_causal: R row groups, G key
   groups, 128 (R G + 1) threads. Grid (12, ceil(seq_len / (64 R)), batch): the blocks with the most keys come first. */
#include "attention/attention_sm90a.cuh"

#define ATTENTION_CAUSAL(NAME, ROW_GROUPS, KEY_GROUPS, KEYS, STAGES)                                                      \
  extern "C" __global__ void __launch_bounds__(AttentionTile<ROW_GROUPS, KEY_GROUPS, KEYS, STAGES, true>::THREADS, 1)     \
      NAME(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap att, int seq_len,                 \
           const float2* longest) {                                                                                       \
    attention_block<AttentionTile<ROW_GROUPS, KEY_GROUPS, KEYS, STAGES, true>>(&qkv, &att, seq_len, longest, CastArgs{}); \
  }

ATTENTION_CAUSAL(attention_1x2_f16_causal, 1, 2, 64, 8)
ATTENTION_CAUSAL(attention_2x1_f16_causal, 2, 1, 128, 5)
ATTENTION_CAUSAL(attention_3x1_f16_causal, 3, 1, 128, 5)
