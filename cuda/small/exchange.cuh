/* How activations pass between blocks without a barrier: every 32-bit word carries its own flag.

   A copy of the exchange area is all ones before a launch works in it. 0xffffffff is a NaN that no rounding instruction
   produces (they give 0x7fffffff, and 0x7fff in half precision), so a word that differs from it has been written in
   this launch, once and for good. A reader polls the very words it needs, and the data arrives with the news that it is
   there: one store and one load through L2 where a grid barrier needs a store, a fence, an atomic, a poll and only then
   the load. No order between words is needed, so relaxed accesses do.

   A launch works in the copy of its parity and clears the other one, which the launch before it used. The count of
   launches is kept by each block for itself, so all launches on one workspace must have the same grid, and no two may
   run at the same time. */
#pragma once

#include "common/pack.cuh"
#include "small/layout.cuh"
#include "small/ptx.cuh"

namespace small {

constexpr uint32_t EMPTY = 0xffffffffu;
// Polls before a launch that cannot finish ends as an error; 2^25 took 7 s on an H100.
constexpr uint32_t PATIENCE = 1u << 27;

__device__ __forceinline__ float2 floats(uint2 v) { return make_float2(__uint_as_float(v.x), __uint_as_float(v.y)); }
__device__ __forceinline__ float4 floats(uint4 v) {
  return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}

/* How many launches there were before this one, and how many of them watched. note_call() adds this one, when all
   threads of the block have asked. C: its Cut */
__device__ __forceinline__ uint2 calls_before(const Workspace& workspace) {
  return load_strong_pair(&workspace.epoch[blockIdx.x]);
}
template <class C>
__device__ __forceinline__ void note_call(Workspace& workspace, const Epoch& before, int rows) {
  workspace.epoch[blockIdx.x] = {before.launches + 1, before.watched + C::WATCHED, static_cast<uint32_t>(rows),
                                 form_of<C>()};
}

/* Loads v[i] from at(i), or zeros where at(i) is null, until every word has been written. The whole warp calls it. With
   many rows a failed attempt would load a lot in vain: then each lane first waits for one word, `sample`, between them
   from nearly every block that has a part. */
template <int N, class At>
__device__ __forceinline__ void receive(uint4 (&v)[N], const void* sample, At at) {
  if (sample)
    for (uint32_t polls = 0; !__all_sync(0xffffffffu, load_strong_word(sample) != EMPTY); ++polls)
      if (polls > PATIENCE) __trap();
  for (uint32_t polls = 0;; ++polls) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const void* p = at(i);
      v[i] = p ? load_strong(p) : make_uint4(0, 0, 0, 0);
    }
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) top = max(top, max(max(v[i].x, v[i].y), max(v[i].z, v[i].w)));
    if (__all_sync(0xffffffffu, top != EMPTY)) return;
    if (polls > PATIENCE) __trap();
  }
}

/* The same for one thread on its own. */
__device__ __forceinline__ float2 receive_one(const float* p) {
  for (uint32_t polls = 0;; ++polls) {
    const uint2 v = load_strong_pair(p);
    if (max(v.x, v.y) != EMPTY) return floats(v);
    if (polls > PATIENCE) __trap();
  }
}
/* The same where v has been asked for before, as a rule not in vain. */
__device__ __forceinline__ float2 received(uint2 v, const float* p) {
  return max(v.x, v.y) != EMPTY ? floats(v) : receive_one(p);
}

__device__ __forceinline__ void send(float* p, float4 v) {
  store_strong(p, make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)));
}
__device__ __forceinline__ void send(__half* p, float4 v) { store_strong(p, pack_half4(v)); }
__device__ __forceinline__ void send(float* p, float2 v) {
  store_strong(p, make_uint2(__float_as_uint(v.x), __float_as_uint(v.y)));
}
__device__ __forceinline__ void send(__half* p, float2 v) { store_strong(p, pack_half2(v.x, v.y)); }

/* Makes ready for the next launch what the last one wrote. The producers of all blocks share the work. */
__device__ inline void clear(Exchange& old, uint32_t rows, uint32_t form) {
  const uint32_t first = blockIdx.x * 32 + threadIdx.x % 32, step = gridDim.x * 32;
  const auto fill = [&](void* p, uint32_t bytes) {
    for (uint32_t i = first; i < bytes / 16; i += step)
      store_strong(static_cast<uint4*>(p) + i, make_uint4(EMPTY, EMPTY, EMPTY, EMPTY));
  };
  const auto fill_blocks = [&](auto& activations) {
    const uint32_t used = min(rows, activations.MOST) * (sizeof activations.block[0][0] / 16),
                   blocks = activations.BLOCKS;  // vectors of a block
    for (uint32_t i = first; i < blocks * used; i += step)
      store_strong(reinterpret_cast<uint4*>(activations.block[i / used]) + i % used,
                   make_uint4(EMPTY, EMPTY, EMPTY, EMPTY));
  };
  fill_blocks(old.x1);
  if (form & IN_FP32) {
    fill_blocks(old.exact_qkv);
    fill_blocks(old.exact_f);
    return;
  }
  fill_blocks(old.f);
  if (form & SPLIT) {
    fill_blocks(old.h[0]);
    fill_blocks(old.h[1]);
  }
  if (form & MERGED) return;
  fill_blocks(old.qk);
  fill_blocks(old.v);
  if (!(form & SPLIT)) return;
  for (int s = 0; s < 4; ++s) fill(old.attn_sums[s], rows * sizeof old.attn_sums[0][0]);
}

}  // namespace small
