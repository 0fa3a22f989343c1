/* Attention, its projection and LN2 in one kernel for up to 64 and up to 128 rows, W_attn as the caller stored it or packed;
   attention_proj_direct_sm90a.cuh describes it. */
#include "gemm/attention_proj_direct_sm90a.cuh"

#define ATTENTION_PROJ(KEYS) extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(AttentionProj<KEYS>::THREADS, 1)

ATTENTION_PROJ(64) attention_proj_direct_64(const __grid_constant__ CUtensorMap qkv, const AttentionProjArgs args) {
  attention_proj<64>(&qkv, nullptr, args);
}
ATTENTION_PROJ(128) attention_proj_direct_128(const __grid_constant__ CUtensorMap qkv, const AttentionProjArgs args) {
  attention_proj<128>(&qkv, nullptr, args);
}
ATTENTION_PROJ(64)
attention_proj_packed_64(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap w, const AttentionProjArgs args) {
  attention_proj<64>(&qkv, &w, args);
}
