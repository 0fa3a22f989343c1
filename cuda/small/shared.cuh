/* Shared memory. fp32 weights fill it: proj's follow qkv's and the attention projection's in the same place as soon as
   those are used up, and the sums of a warp lie where its own weights lay. fp16 weights leave room for everything at
   once. */
#pragma once

#include "small/layernorm.cuh"
#include "small/layout.cuh"
#include "small/pair.cuh"

namespace small {

/* Where the parts of K lay down their sums. */
struct Summands {
  float* first;
  int stride;  // in floats
  __device__ __forceinline__ float* of(int depth) const { return first + depth * stride; }
};

template <int ROWS, class W, bool SINGLE>
struct Shared {
  using C = Cut<ROWS, W, SINGLE>;
  static constexpr int MT = C::MT;
  using Element = typename W::Element;
  template <class S>
  static constexpr int SIZE = S::ROWS * S::WIDTH;
  static constexpr bool TIGHT = W::FP32, PROJ_IN_QKV = TIGHT && !SINGLE;
  static constexpr int SUMS = 16 * MT * COLS;

  // 512: the period of the order in which rows of 64 bytes lie (stream.cuh)
  alignas(512) Element qkv_area[SIZE<typename C::Qkv>];
  alignas(512) Element attn[PROJ_IN_QKV ? SIZE<typename C::Proj> - SIZE<typename C::Qkv>
                            : C::MERGED ? 64
                                        : SIZE<typename C::Attn>];
  alignas(512) Element fc[SIZE<typename C::Fc>];
  alignas(512) Element proj_area[PROJ_IN_QKV ? 64 : SIZE<typename C::Proj>];
  static_assert(C::MERGED || sizeof attn >= SIZE<typename C::Attn> * sizeof(Element));
  // K and V of a slice's heads, above 16 rows. The pitches keep the reads of attention.cuh free of bank conflicts.
  static constexpr int K_PITCH = 96, V_PITCH = 72, STAGED_ROWS = C::Attn::ROWS / HEAD_DIM * 16 * MT,
                       STAGED = STAGED_ROWS * (K_PITCH + V_PITCH);
  static_assert(!(TIGHT && MT > 1) || STAGED * 2 <= SIZE<typename C::Qkv> * 4);
  alignas(128) float sums_area[TIGHT ? 32 : MT > 1 && STAGED / 2 > WARPS* SUMS ? STAGED / 2 : WARPS* SUMS];
  // Of each warp, in fp32 (fp32.cuh) its features of the rows and of V
  static constexpr int OF_A_WARP = !C::IN_FP32 ? 16 * C::Attn::WIDTH : SINGLE ? C::Attn::WIDTH : 2 * FP32_ROWS * 64;
  alignas(128) float attn_sums[C::Attn::ROWS / HEAD_DIM * MT][OF_A_WARP];
  alignas(128) float norm2[2 * D];                               // gamma, beta
  alignas(128) float2 seen[W::WATCHED ? 4 : 1][W::WATCHED ? THREADS : 1];  // of each matrix by each thread (watch.cuh)
  alignas(16) float base[C::IN_FP32 ? 4 : D];  // of the row that is being put together, above 16 rows
  alignas(16) float b_qkv[COLS], b_attn[COLS], b_fc[COLS], b_proj[COLS];
  alignas(16) PeerSums<MT> peer[C::PASSES], attn_peer;
  alignas(16) PeerRows<C::PAIRED> peer_rows;
  Moments moments;
  uint64_t qkv_arrived[MOST_PARTS], attn_arrived[MOST_PARTS], fc_arrived[MOST_PARTS], proj_arrived[MOST_PARTS];
  uint64_t norm2_arrived;
  uint64_t watched[4];  // what was seen of each matrix has been laid down
  unsigned loud;        // whether this block has raised an alarm
  unsigned again;       // whether the call must be computed again

  __device__ __forceinline__ Element* qkv() { return qkv_area; }
  __device__ __forceinline__ Element* proj() { return PROJ_IN_QKV ? qkv_area : proj_area; }
  __device__ __forceinline__ __half* staged_k() {
    return TIGHT ? reinterpret_cast<__half*>(qkv_area) : reinterpret_cast<__half*>(sums_area);
  }
  __device__ __forceinline__ __half* staged_v() { return staged_k() + STAGED_ROWS * K_PITCH; }
  template <class S>
  __device__ __forceinline__ Summands sums(Element* weights) {
    static_assert(!TIGHT || SIZE<S> / WARPS >= (SINGLE ? 1 : C::IN_FP32 ? FP32_ROWS : 16 * MT) * S::WIDTH);
    return TIGHT ? Summands{reinterpret_cast<float*>(weights), SIZE<S> / WARPS} : Summands{sums_area, SUMS};
  }
  __device__ __forceinline__ Summands qkv_sums() { return sums<typename C::Qkv>(qkv_area); }
  // In fp32, where V was
  __device__ __forceinline__ Summands attn_summands() {
    return {attn_sums[0] + (SINGLE ? 0 : FP32_ROWS * 64), sizeof attn_sums[0] / sizeof(float)};
  }
  __device__ __forceinline__ float4* rows_of(int warp) { return reinterpret_cast<float4*>(attn_sums[warp]); }
  // Of one token where W_qkv was
  __device__ __forceinline__ float4* hidden_of(int warp) {
    return SINGLE ? reinterpret_cast<float4*>(qkv_area + SIZE<typename C::Qkv> / WARPS * warp) : rows_of(warp);
  }
  __device__ __forceinline__ Summands fc_sums() { return sums<typename C::Fc>(fc); }
  __device__ __forceinline__ Summands proj_sums() { return sums<typename C::Proj>(proj()); }
};

}  // namespace small
