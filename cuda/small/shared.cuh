/* Shared memory. fp32 weights fill it: proj's follow qkv's in the same place as soon as those are used up, and the sums of a warp lie where its own weights lay. fp16 weights leave room for
   everything at once. */
#pragma once

#include <type_traits>

#include "small/layernorm.cuh"
#include "small/layout.cuh"

namespace small {

/* Where each warp lays down its sums. */
struct Summands {
  float* first;
  int stride;  // in floats
  __device__ __forceinline__ float* of(int warp) const { return first + warp * stride; }
};

template <int MT, class W>
struct Shared {
  using C = Cut<MT>;
  using Element = typename W::Element;
  template <class S>
  static constexpr int SIZE = S::ROWS * S::WIDTH;
  static constexpr bool TIGHT = sizeof(Element) == 4;
  static constexpr int SUMS = 16 * MT * COLS;

  alignas(128) Element qkv_area[TIGHT && SIZE<typename C::Proj> > SIZE<typename C::Qkv> ? SIZE<typename C::Proj> : SIZE<typename C::Qkv>];
  alignas(128) Element fc[SIZE<typename C::Fc>];
  alignas(128) Element attn[SIZE<typename C::Attn>];
  alignas(128) Element proj_area[TIGHT ? 64 : SIZE<typename C::Proj>];
  alignas(128) float sums_area[TIGHT ? 32 : WARPS * SUMS];
  alignas(128) float attn_sums[WARPS][16 * C::Attn::WIDTH];
  alignas(128) float norm1[2 * D], norm2[2 * D];  // gamma, beta
  Moments moments;
  uint64_t arrived[5];  // qkv, attn, fc, proj, vectors

  __device__ __forceinline__ Element* qkv() { return qkv_area; }
  __device__ __forceinline__ Element* proj() { return TIGHT ? qkv_area : proj_area; }
  template <class S>
  __device__ __forceinline__ Summands sums(Element* weights) {
    static_assert(!TIGHT || SIZE<S> / WARPS >= 16 * MT * S::WIDTH);
    return TIGHT ? Summands{reinterpret_cast<float*>(weights), SIZE<S> / WARPS} : Summands{sums_area, SUMS};
  }
  __device__ __forceinline__ Summands qkv_sums() { return sums<typename C::Qkv>(qkv_area); }
  __device__ __forceinline__ Summands fc_sums() { return sums<typename C::Fc>(fc); }
  __device__ __forceinline__ Summands proj_sums() { return sums<typename C::Proj>(proj()); }
};

}  // namespace small
