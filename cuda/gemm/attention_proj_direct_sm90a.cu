/* Attention, its projection and LN2 in one kernel for up to 64 rows, W_attn as the caller stored it or prepared, and
   for 65 to 128, W_attn as the kernel before has cast it; attention_proj_direct_sm90a.cuh describes it. Blocks behind
   the 64 of that form cast what `cast` says. */
#include "cast/cast_sm90a.cuh"
#include "gemm/attention_proj_direct_sm90a.cuh"

#define ATTENTION_PROJ(KEYS) \
  extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(AttentionProj<KEYS>::THREADS, 1)

ATTENTION_PROJ(64) attention_proj_direct_64(const __grid_constant__ CUtensorMap qkv, const AttentionProjArgs args) {
  attention_proj<64>(&qkv, nullptr, args);
}
ATTENTION_PROJ(64)
attention_proj_packed_64(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap w,
                         const AttentionProjArgs args) {
  attention_proj<64, true>(&qkv, &w, args);
}
ATTENTION_PROJ(128)
attention_proj_packed_128(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap w,
                          const AttentionProjArgs args, const CastArgs cast) {
  using A = AttentionProj<128>;
  constexpr int WORKING = 2 * A::BLOCKS * A::N_TILES, CAST_STAGES = cast_stages(A::TOTAL);
  if (blockIdx.x >= WORKING) {
    pdl_launch();
    cast_role<A::THREADS, CAST_STAGES, 128>(cast, shared_base(), blockIdx.x - WORKING, gridDim.x - WORKING);
    return;
  }
  attention_proj<128>(&qkv, &w, args);
}
