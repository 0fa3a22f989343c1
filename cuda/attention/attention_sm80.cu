/* Attention on sm_80: two groups of warps share the keys; 92,160 bytes of shared memory.
   Grid (ceil(seq_len / 128), 12, batch), 256 threads. See attention.cuh. */
#include "attention/attention.cuh"
#include "common/sm80.cuh"

constexpr int GROUPS = 2;

extern "C" __global__ void __launch_bounds__(GROUPS* GROUP_THREADS, 1)
    attention_f16(const __half* __restrict__ qkv,  // (batch, seq_len, 3 D)
                  __half* __restrict__ att,        // (batch, seq_len, D)
                  int seq_len) {
  attention<Sm80, false, GROUPS>(qkv, att, seq_len);
}

extern "C" __global__ void __launch_bounds__(GROUPS* GROUP_THREADS, 1)
    attention_f16_causal(const __half* __restrict__ qkv, __half* __restrict__ att, int seq_len) {
  attention<Sm80, true, GROUPS>(qkv, att, seq_len);
}
