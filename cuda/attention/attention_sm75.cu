/* Attention on sm_75: one group of warps, because two do not fit 64 KB of shared memory; 55,296 bytes.
   Grid (ceil(seq_len / 128), 12, batch), 128 threads. See attention.cuh. */
#include "attention/attention.cuh"
#include "common/sm75.cuh"

constexpr int GROUPS = 1;

extern "C" __global__ void __launch_bounds__(GROUPS* GROUP_THREADS, 1)
    attention_f16(const __half* __restrict__ qkv,  // (batch, seq_len, 3 D)
                  __half* __restrict__ att,        // (batch, seq_len, D)
                  int seq_len) {
  attention<Sm75, false, GROUPS>(qkv, att, seq_len);
}

extern "C" __global__ void __launch_bounds__(GROUPS* GROUP_THREADS, 1)
    attention_f16_causal(const __half* __restrict__ qkv, __half* __restrict__ att, int seq_len) {
  attention<Sm75, true, GROUPS>(qkv, att, seq_len);
}
