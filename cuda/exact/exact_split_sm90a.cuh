/* The weights as strips of hi and lo.

   A slab of 768 k x 32 columns has one scale and is one block's work at a time: copied into shared memory while the slab
   before it is worked on, its largest magnitude found, split, written. 288 slabs: qkv 72, attn 24, fc 96, proj 24 for each
   of four parts of K. Shared memory: two slabs of 96 KB in the place of the ring. Limiter: 28.4 MB read and as much
   written, by all SMs, or by those that have nothing else to do meanwhile. */
#pragma once

#include "common/reduce.cuh"
#include "common/sync_sm90a.cuh"
#include "common/tma_sm90a.cuh"
#include "exact/exact_memory_sm90a.cuh"

namespace exact90 {

constexpr int SLABS_QKV = QKV / SLAB, SLABS_ATTN = D / SLAB, SLABS_FC = FFN / SLAB, SLABS_PROJ = FFN / CHUNK * (D / SLAB);
constexpr int SLABS = SLABS_QKV + SLABS_ATTN + SLABS_FC + SLABS_PROJ;

struct SlabPlace {
  int matrix, weights, width, column, first_k, inverse;
  size_t strips;

  __device__ explicit SlabPlace(int slab) {
    first_k = 0;
    if (slab < SLABS_QKV) {
      matrix = MATRIX_QKV, weights = W_QKV, width = QKV, strips = AT_QKV, inverse = V_INVERSE_QKV;
    } else if ((slab -= SLABS_QKV) < SLABS_ATTN) {
      matrix = MATRIX_ATTN, weights = W_ATTN, width = D, strips = AT_ATTN, inverse = V_INVERSE_ATTN;
    } else if ((slab -= SLABS_ATTN) < SLABS_FC) {
      matrix = MATRIX_FC, weights = W_FC, width = FFN, strips = AT_FC, inverse = V_INVERSE_FC;
    } else {
      slab -= SLABS_FC;
      const int part = slab / (D / SLAB);
      slab %= D / SLAB;
      matrix = MATRIX_PROJ, weights = W_PROJ, width = D, strips = AT_PROJ, inverse = V_INVERSE_PROJ + part * D;
      first_k = part * CHUNK;
    }
    column = slab * SLAB;
  }
};

constexpr int SLAB_BYTES = CHUNK * SLAB * 4;
static_assert(2 * SLAB_BYTES <= RING_BYTES, "fits");
static_assert(BETA1 == GAMMA1 + D && BETA2 == GAMMA2 + D, "as copy_vectors takes them");

// PTX ISA 9.0, 9.7.9.25.3.1 cp.async
template <int BYTES>
__device__ __forceinline__ void copy_async(uint32_t to, const float* from, uint64_t policy) {
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy) : "memory");
  else
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "l"(policy) : "memory");
}
// With few rows the rest of what a call touches stays in L2 if the weights, which are read once, leave it first: 5 us of 71.
__device__ __forceinline__ uint64_t weights_policy(int rows) {
  uint64_t normal;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));  // 9.7.9.18
  return rows <= ROW_TILE ? evict_first_policy() : normal;
}

// A thread has 24 pieces of four columns, and nobody else touches them: column 4 (t % 8) of row t / 8 + 32 i.
constexpr int SLAB_PIECES = CHUNK / 32, PIECE_STEP = CONSUMERS * 16;

// Asks for a slab; one group of copies (9.7.9.25.3.2 cp.async.commit_group).
__device__ __forceinline__ void fetch_slab(const ExactArgs& args, int slab, uint32_t to) {
  const SlabPlace at(slab);
  const int thread = thread_index();
  const float* from = args.weights + at.weights + static_cast<size_t>(at.first_k + thread / 8) * at.width + at.column + thread % 8 * 4;
  to += 16 * thread;
  const bool aligned = aligned_16(args.weights);
  const uint64_t policy = weights_policy(args.rows);
#pragma unroll 4
  for (int i = 0; i < SLAB_PIECES; i++, from += 32 * at.width, to += PIECE_STEP) {
    if (aligned) {
      copy_async<16>(to, from, policy);
    } else {
      for (int j = 0; j < 4; j++) copy_async<4>(to + 4 * j, from + j, policy);
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ __forceinline__ void write_slab(const Memory& memory, int slab, uint32_t from, float scale) {
  const SlabPlace at(slab);
  const int thread = thread_index(), row = thread / 8, strip = thread % 8 / 4 * STRIP, column = thread % 4 * 4;
  unsigned char* const to = memory.base + at.strips + weight_at(at.width, at.column + strip, at.first_k / 64, 0) + column % 8 * 2;
  const uint32_t upper = swizzle<32>(row, column / 8), lower = swizzle<32>(row + 32, column / 8), part = at.width * COLUMN;
#pragma unroll 4
  for (int i = 0; i < SLAB_PIECES; i++) {
    const float4 v = load_shared_4(from + 16 * thread + i * PIECE_STEP);
    const Split a = split(v.x * scale, v.y * scale), b = split(v.z * scale, v.w * scale);
    unsigned char* const at_row = to + static_cast<size_t>(i / 2 * 2) * part + (i % 2 ? lower : upper);
    __stcg(reinterpret_cast<uint2*>(at_row), make_uint2(a.hi, b.hi));
    __stcg(reinterpret_cast<uint2*>(at_row + part), make_uint2(a.lo, b.lo));
  }
  if (thread < SLAB) memory.vectors()[at.inverse + at.column + thread] = inverse(scale);
}

// Slabs first, first + step, .. below `end`, of which the first has been asked for. By the CONSUMERS threads; `reduce`:
// 2 x WARPS floats of shared memory.
template <bool OBSERVE>
__device__ __forceinline__ void split_slabs(const ExactArgs& args, uint32_t shared, float* reduce, int first, int step, int end) {
  if (first >= end) return;
  const Memory memory(args);
  uint32_t now = shared + S_RING, next = now + SLAB_BYTES;
#pragma unroll 1
  for (int slab = first, turn = 0; slab < end; slab += step, turn ^= 1) {
    if (slab + step < end) {
      fetch_slab(args, slab + step, next);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    const int thread = thread_index();
    Observation seen;
#pragma unroll 4
    for (int i = 0; i < SLAB_PIECES; i++) seen.add(load_shared_4(now + 16 * thread + i * PIECE_STEP));
    if (OBSERVE) seen.report(args.alarms, SlabPlace(slab).matrix, CHUNK * SLAB / WARPS);
    float m = warp_max(seen.largest);
    if (thread % 32 == 0) reduce[turn * WARPS + thread / 32] = m;
    named_barrier_sync(CONSUMER_BARRIER, CONSUMERS);
    m = 0.f;
#pragma unroll
    for (int i = 0; i < WARPS; i++) m = fmaxf(m, reduce[turn * WARPS + i]);
    write_slab(memory, slab, now, scale_for(m));
    const uint32_t other = now;
    now = next, next = other;
  }
  fence_async_shared();  // the copy engine will write where the slabs were
}

// Where vectors()[i] is in the weights.
__device__ __forceinline__ int place_of_vector(int i) {
  return i < V_GAMMA2   ? GAMMA1 + i
         : i < V_B_QKV  ? GAMMA2 + i - V_GAMMA2
         : i < V_B_ATTN ? B_QKV + i - V_B_QKV
         : i < V_B_FC   ? B_ATTN + i - V_B_ATTN
         : i < V_B_PROJ ? B_FC + i - V_B_FC
                        : B_PROJ + i - V_B_PROJ;
}

// The alarms about the vectors, of which a warp looks at 32. b_proj, the last one, has none.
__device__ __forceinline__ void watch_vectors(const ExactArgs& args) {
  for (int i = crew.rank * CONSUMERS + thread_index(); i < V_B_PROJ; i += crew.size * CONSUMERS)
    watch_vector(args.alarms, place_of_vector(i), __ldg(args.weights + place_of_vector(i)));
}

// The vectors, and, when preparing, the alarms about them and the plain weights. All blocks share the work: a load that misses
// every cache takes a microsecond, so each thread has one of them.
template <bool PREPARE>
__device__ __forceinline__ void copy_vectors(const ExactArgs& args) {
  const Memory memory(args);
  constexpr int LENGTH = V_INVERSE_QKV;
  const int thread = thread_index(), each = (LENGTH + crew.size - 1) / crew.size;
  for (int j = thread; j < each; j += CONSUMERS) {
    const int i = crew.rank * each + j;
    if (i >= LENGTH) break;
    memory.vectors()[i] = __ldg(args.weights + place_of_vector(i));
  }
  if (PREPARE) watch_vectors(args);
  const int first = crew.rank * CONSUMERS + thread, step = crew.size * CONSUMERS;
  if (PREPARE)
    for (int i = first; i < WEIGHTS_LEN; i += 8 * step) {
      float v[8];
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] = i + j * step < WEIGHTS_LEN ? __ldg(args.weights + i + j * step) : 0.f;
#pragma unroll
      for (int j = 0; j < 8; j++)
        if (i + j * step < WEIGHTS_LEN) memory.plain()[i + j * step] = v[j];
    }
}

}  // namespace exact90
