/* packed(chunk) fp16 = weights(chunk) fp32, 4096 numbers a chunk: the cast as a role for blocks that a kernel has to spare.
   Chunks 0..431 are W_qkv, ..575 W_attn, ..1151 W_fc, ..1727 W_proj; worker w of n takes first + w, first + w + n, ...
   One thread keeps a ring of 16 KB copies in flight, the other warps convert. The fp32 weights leave L2 first: without that, they push
   out x and the fp16 weights that the next kernels want (1.2 to 2 us of solve() at 1024 rows, H200). Only inputs are read, and the
   destination has had its last reader before the chain of kernels began, so no worker waits for a predecessor. But the last chunks of W_proj may lie
   where W_qkv was, which pushes nothing out of L2: cast beside attention they wait for QKV's end, behind attention that has come, and in the kernel of QKV
   and attention they wait for its blocks to have read W_qkv. Weights that are not 16-byte aligned go by plain loads instead.
   Limiter: what one multiprocessor draws from memory, and the converters' latency (H200: 50 to 70 KB/us of fp32). */
#pragma once
#include <cuda_fp16.h>
#include "common/address.cuh"
#include "common/alarm.cuh"
#include "common/fragment_sm90a.cuh"
#include "common/mbarrier_sm90a.cuh"
#include "common/shared_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "common/tma_sm90a.cuh"
#include "common/watch_sm90a.cuh"
#include "dims.h"

struct CastArgs {
  const float* weights;
  // Whence chunks have their places by their numbers: of W_fc and W_proj, of W_qkv, of W_attn
  __half *packed, *qkv, *attn;
  int first, last;   // chunks
  unsigned* alarms;  // raised by what the weights are like; may be null
};

constexpr int CAST_CHUNK = 4096, CHUNK_BYTES = 4 * CAST_CHUNK;
// Stages that cast_role() has room for in the shared memory of a launch: a chunk and two barriers each
__host__ __device__ constexpr int cast_stages(int shared) { return (shared - SHARED_ALIGNMENT) / (CHUNK_BYTES + 16); }
constexpr int CHUNKS_QKV = D * QKV / CAST_CHUNK, CHUNKS_ATTN = D * D / CAST_CHUNK, CHUNKS_FC = D * FFN / CAST_CHUNK;
constexpr int CHUNKS = CHUNKS_QKV + CHUNKS_ATTN + 2 * CHUNKS_FC;

// The first chunk that may lie where W_qkv was
constexpr int CHUNKS_UNSHARED = CHUNKS - CHUNKS_QKV;

// Where a chunk of `packed` lies in the weight buffer, in floats
__device__ __forceinline__ int cast_source(int chunk) {
  const int at = chunk * CAST_CHUNK;
  if (chunk < CHUNKS_QKV) return at + W_QKV;
  if (chunk < CHUNKS_QKV + CHUNKS_ATTN) return at + (W_ATTN - D * QKV);
  if (chunk < CHUNKS_QKV + CHUNKS_ATTN + CHUNKS_FC) return at + (W_FC - D * QKV - D * D);
  return at + (W_PROJ - D * QKV - D * D - D * FFN);
}

__device__ __forceinline__ __half* cast_target(const CastArgs& args, int chunk) {
  return (chunk < CHUNKS_QKV ? args.qkv : chunk < CHUNKS_QKV + CHUNKS_ATTN ? args.attn : args.packed) + chunk * CAST_CHUNK;
}

__device__ __forceinline__ int cast_matrix(int chunk) {
  return (chunk >= CHUNKS_QKV) + (chunk >= CHUNKS_QKV + CHUNKS_ATTN) + (chunk >= CHUNKS_QKV + CHUNKS_ATTN + CHUNKS_FC);
}

// Rounds weights, and keeps what a warp has seen of the chunks that it took part in, reported matrix by matrix.
struct CastWatch {
  Observation seen;
  HalfObservation<1> look;  // of the last few dozen
  int matrix = 0, count = 0;  // `count` of this lane

  __device__ __forceinline__ void turn_to(int chunk, unsigned* alarms) {
    if (cast_matrix(chunk) == matrix) return;
    report(alarms);
    matrix = cast_matrix(chunk);
  }
  __device__ __forceinline__ void cast(float4 v, __half* to) {
    const uint2 halves = make_uint2(pack_half2(v.x, v.y), pack_half2(v.z, v.w));
    look.add(halves.x, halves.y);
    *reinterpret_cast<uint2*>(to) = halves;
  }
  // After each chunk, of which the lane has had so many. Counted here, or each four would take an instruction more.
  __device__ __forceinline__ void gather(int more) { look.move_to(seen), count += more; }
  __device__ __forceinline__ void report(unsigned* alarms) {
    const int all = __reduce_add_sync(~0u, count);
    if (alarms != nullptr && all > 0) seen.report(alarms, matrix, static_cast<float>(all));
    seen = Observation(), count = 0;
  }
};

// 9.7.9.8 ld with an L2 policy
__device__ __forceinline__ float4 load_once_4(const float* p, uint64_t policy) {
  float4 v;
  asm volatile("ld.global.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p), "l"(policy));
  return v;
}
__device__ __forceinline__ float4 load_unaligned_4(const float* p) { return make_float4(__ldg(p), __ldg(p + 1), __ldg(p + 2), __ldg(p + 3)); }

// Beside the product of QKV itself: its blocks count themselves when they have read their part of W_qkv. They are lower blocks of the grid than those that
// wait here: that they start first is what hardware does, and CUDA does not say.
__device__ __forceinline__ void wait_for_readers(const unsigned* alarms, unsigned readers) {
  pdl_wait();  // the first kernel has set the count to zero
  for (uint32_t tries = 0; load_acquire(alarms + ALARMS_QKV_READ) < readers; tries++)
    if (tries > MOST_TRIES) __trap();
}

// chunk_of(first), chunk_of(first + step), .. of numbers below `last`, by plain loads of all threads
template <int THREADS, int READERS, class ChunkOf>
__device__ __forceinline__ void cast_unaligned(const CastArgs& args, int first, int last, int step, ChunkOf chunk_of) {
  CastWatch watch;
  for (int turn = first; turn < last; turn += step) {
    const int chunk = chunk_of(turn);
    watch.turn_to(chunk, args.alarms);
    if (READERS > 0 && chunk >= CHUNKS_UNSHARED) wait_for_readers(args.alarms, READERS);
    int own = 0;
    for (int i = threadIdx.x * 4; i < CAST_CHUNK; i += THREADS * 4, own += 4)
      watch.cast(load_unaligned_4(args.weights + cast_source(chunk) + i), cast_target(args, chunk) + i);
    watch.gather(own);
  }
  watch.report(args.alarms);
  if (READERS > 0) __threadfence(), fence_async_global();  // the next kernel starts when all have ended
}

constexpr int ATTN_CAST_BARRIER = 1;

// Shared memory: ROOM * (CHUNK_BYTES + 16) bytes from `memory` (128-byte aligned), for ROOM stages, of which it takes a multiple of the groups, so that a stage
// is always the same group's: an mbarrier tells but the parity of a phase, and another group that came before the stage's last chunk would take the phase
// before that for its own.
// GROUP threads convert a chunk. Where all share each one, a warp waits for every chunk and has but two or four loads to make up for it:
// in groups of four warps 256, 384 and 512 rows take 0.2 to 0.5 us less (H200). But the kernels of large tiles, which cast little, pay for
// the longer code: 2048 rows about 1.5 more.
// LEAVES_FC: chunks of W_fc are left out, because FC will read it as it is.
// READERS: so many blocks of this kernel read it. Then the role lets the next kernel start, but only when its part of W_attn is there, so that this one may
// fetch that ahead of its wait (-0.15 to -0.2 us at 1024 rows, H200). GROUP leaves a warp idle for it.
template <int THREADS, int ROOM, int GROUP = THREADS - 32, bool LEAVES_FC = false, int READERS = 0>
__device__ __forceinline__ void cast_role(const CastArgs& args, uint32_t memory, int worker, int workers) {
  constexpr int CONVERTERS = THREADS - 32, GROUPS = CONVERTERS / GROUP, STAGES = ROOM / GROUPS * GROUPS;
  constexpr int FC_BEGINS = CHUNKS_QKV + CHUNKS_ATTN;
  const int last = LEAVES_FC && args.last > FC_BEGINS ? args.last - CHUNKS_FC : args.last;
  const auto chunk_of = [](int turn) { return LEAVES_FC && turn >= FC_BEGINS ? turn + CHUNKS_FC : turn; };
  const uint32_t full = memory + STAGES * CHUNK_BYTES, empty = full + 8 * STAGES;
  if (!aligned_16(args.weights)) return cast_unaligned<THREADS, READERS>(args, args.first + worker, last, workers, chunk_of);
  CastWatch watch;
  if (threadIdx.x == CONVERTERS) {
    for (int s = 0; s < STAGES; s++) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, GROUP);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  Ring<STAGES> at;
  if (threadIdx.x >= CONVERTERS) {
    if (threadIdx.x > CONVERTERS) return;
    const uint64_t policy = evict_first_policy();
    for (int turn = args.first + worker; turn < last; turn += workers, at.advance()) {
      mbarrier_wait(empty + 8 * at.stage, at.parity ^ 1);
      mbarrier_expect(full + 8 * at.stage, CHUNK_BYTES);
      bulk_load_once(memory + at.stage * CHUNK_BYTES, args.weights + cast_source(chunk_of(turn)), CHUNK_BYTES, full + 8 * at.stage, policy);
    }
    return;
  }
  constexpr int PIECES = (CAST_CHUNK / 4 + GROUP - 1) / GROUP;  // of four numbers
  const int group = GROUPS > 1 ? threadIdx.x / GROUP : 0, thread = GROUPS > 1 ? threadIdx.x % GROUP : threadIdx.x;
  const int own = 4 * ((CAST_CHUNK / 4 - thread + GROUP - 1) / GROUP);
  static_assert(READERS == 0 || GROUPS * GROUP + 32 == CONVERTERS);
  if (GROUPS * GROUP < CONVERTERS && group >= GROUPS) {
    if (READERS > 0) {
      named_barrier_sync(ATTN_CAST_BARRIER, CONVERTERS);
      pdl_launch();
    }
    return;
  }
  bool told = READERS == 0, room = READERS == 0;
  const auto tell = [&] {
    __threadfence();
    fence_async_global();  // the copy engine reads it
    named_barrier_arrive(ATTN_CAST_BARRIER, CONVERTERS);
    told = true;
  };
  for (int i = 0; i < group; i++) at.advance();
  for (int turn = args.first + worker + group * workers; turn < last; turn += GROUPS * workers) {
    const int chunk = chunk_of(turn);
    if (!told && chunk >= CHUNKS_QKV + CHUNKS_ATTN) tell();
    watch.turn_to(chunk, args.alarms);
    __half* const to = cast_target(args, chunk);
    mbarrier_wait(full + 8 * at.stage, at.parity);
    float4 v[PIECES];
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
      const int i = thread + p * GROUP;
      if (i < CAST_CHUNK / 4) v[p] = load_shared_4(memory + at.stage * CHUNK_BYTES + 16 * i);
    }
    if (!room && chunk >= CHUNKS_UNSHARED) {
      wait_for_readers(args.alarms, READERS);
      room = true;
    }
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
      const int i = thread + p * GROUP;
      if (i < CAST_CHUNK / 4) watch.cast(v[p], to + 4 * i);
    }
    watch.gather(own);
    mbarrier_arrive(empty + 8 * at.stage);  // not before the numbers are in use: they may still be on their way to the registers
#pragma unroll
    for (int i = 0; i < GROUPS; i++) at.advance();
  }
  if (!told) tell();
  watch.report(args.alarms);
}
