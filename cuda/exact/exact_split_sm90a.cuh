/* The weights as images of hi and lo.

   A slab of 768 k x 32 columns has one scale and is one block's work at a time: copied into shared memory while the slab
   before it is worked on, its largest magnitude found, split, written. 288 slabs: qkv 72, attn 24, fc 96, proj 24 for each
   of four parts of K. Shared memory: two slabs of 96 KB in the place of the ring. Limiter: 28.4 MB read and as much
   written, by all SMs, or by those that have no tile of QKV meanwhile. */
#pragma once

#include "common/sync_sm90a.cuh"
#include "exact/exact_memory_sm90a.cuh"

namespace exact90 {

constexpr int SLABS_QKV = QKV / SLAB, SLABS_ATTN = D / SLAB, SLABS_FC = FFN / SLAB, SLABS_PROJ = FFN / CHUNK * (D / SLAB);
constexpr int SLABS = SLABS_QKV + SLABS_ATTN + SLABS_FC + SLABS_PROJ;

struct SlabPlace {
  int matrix, weights, width, column, first_k, inverse, k_tiles;
  size_t images;

  __device__ explicit SlabPlace(int slab) {
    first_k = 0;
    k_tiles = D / 64;
    if (slab < SLABS_QKV) {
      matrix = MATRIX_QKV, weights = W_QKV, width = QKV, images = AT_QKV, inverse = V_INVERSE_QKV;
    } else if ((slab -= SLABS_QKV) < SLABS_ATTN) {
      matrix = MATRIX_ATTN, weights = W_ATTN, width = D, images = AT_ATTN, inverse = V_INVERSE_ATTN;
    } else if ((slab -= SLABS_ATTN) < SLABS_FC) {
      matrix = MATRIX_FC, weights = W_FC, width = FFN, images = AT_FC, inverse = V_INVERSE_FC;
    } else {
      slab -= SLABS_FC;
      const int part = slab / (D / SLAB);
      slab %= D / SLAB;
      matrix = MATRIX_PROJ, weights = W_PROJ, width = D, images = AT_PROJ, inverse = V_INVERSE_PROJ + part * D;
      first_k = part * CHUNK;
      k_tiles = FFN / 64;
    }
    column = slab * SLAB;
  }
};

constexpr int SLAB_BYTES = CHUNK * SLAB * 4;
static_assert(2 * SLAB_BYTES <= RING_BYTES, "fits");

// PTX ISA 9.0, 9.7.9.25.2 cp.async
template <int BYTES>
__device__ __forceinline__ void copy_async(uint32_t to, const float* from) {
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

// A thread has 24 pieces of four columns, and nobody else touches them: column 4 (t % 8) of row t / 8 + 32 i.
constexpr int SLAB_PIECES = CHUNK / 32, PIECE_STEP = CONSUMERS * 16;

// Asks for a slab; one group of copies.
__device__ __forceinline__ void fetch_slab(const float* weights, int slab, uint32_t to) {
  const SlabPlace at(slab);
  const int thread = thread_index();
  const float* from = weights + at.weights + static_cast<size_t>(at.first_k + thread / 8) * at.width + at.column + thread % 8 * 4;
  to += 16 * thread;
  const bool aligned = reinterpret_cast<size_t>(weights) % 16 == 0;
#pragma unroll 4
  for (int i = 0; i < SLAB_PIECES; i++, from += 32 * at.width, to += PIECE_STEP) {
    if (aligned) {
      copy_async<16>(to, from);
    } else {
      for (int j = 0; j < 4; j++) copy_async<4>(to + 4 * j, from + j);
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ __forceinline__ void write_slab(const Memory& memory, int slab, uint32_t from, float scale) {
  const SlabPlace at(slab);
  const int thread = thread_index(), column = at.column + thread % 8 * 4, row = thread / 8;
  unsigned char* to = memory.base + at.images + weight_at(at.k_tiles, column, at.first_k / 64, 0) + column % 8 * 2;
  const uint32_t upper = swizzle_128(row, column % 64 / 8), lower = swizzle_128(row + 32, column % 64 / 8);
#pragma unroll 4
  for (int i = 0; i < SLAB_PIECES; i++) {
    const float4 v = load_shared_4(from + 16 * thread + i * PIECE_STEP);
    const Split a = split(v.x * scale, v.y * scale), b = split(v.z * scale, v.w * scale);
    unsigned char* at_row = to + (i / 2) * (6 * IMAGE) + (i % 2 ? lower : upper);
    __stcg(reinterpret_cast<uint2*>(at_row), make_uint2(a.hi, b.hi));
    __stcg(reinterpret_cast<uint2*>(at_row + 3 * IMAGE), make_uint2(a.lo, b.lo));
  }
  if (thread < SLAB) memory.vectors()[at.inverse + at.column + thread] = inverse(scale);
}

// Slabs first, first + step, .. below `end`. By the CONSUMERS threads; `reduce`: 2 x WARPS floats of shared memory.
template <bool OBSERVE>
__device__ __forceinline__ void split_slabs(const ExactArgs& args, uint32_t shared, float* reduce, int first, int step, int end) {
  if (first >= end) return;
  const Memory memory(args);
  uint32_t now = shared + S_RING, next = now + SLAB_BYTES;
  fetch_slab(args.weights, first, now);
#pragma unroll 1
  for (int slab = first, turn = 0; slab < end; slab += step, turn ^= 1) {
    if (slab + step < end) {
      fetch_slab(args.weights, slab + step, next);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    const int thread = thread_index();
    Observation seen;
#pragma unroll 4
    for (int i = 0; i < SLAB_PIECES; i++) seen.add(load_shared_4(now + 16 * thread + i * PIECE_STEP));
    if (OBSERVE) seen.report(args.alarms, SlabPlace(slab).matrix, CHUNK * SLAB / WARPS);
    float m = seen.largest;
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, lanes));
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

// The vectors, and, when preparing, the alarms about them and the plain weights. All blocks share the work.
template <bool PREPARE>
__device__ __forceinline__ void copy_vectors(const ExactArgs& args) {
  const Memory memory(args);
  const int first = crew.rank * CONSUMERS + thread_index(), step = crew.size * CONSUMERS;
  const auto copy = [&](int from, int to, int length, int alarm, float usual) {
    for (int i = first; i < length; i += step) {
      const float v = __ldg(args.weights + from + i);
      memory.vectors()[to + i] = v;
      if (PREPARE && alarm >= 0) raise(args.alarms, alarm, fabsf(v), usual);
    }
  };
  copy(GAMMA1, V_GAMMA1, D, ALARM_GAMMA1, USUAL_GAMMA);
  copy(BETA1, V_BETA1, D, ALARM_BETA1, USUAL_BETA);
  copy(GAMMA2, V_GAMMA2, D, ALARM_GAMMA2, USUAL_GAMMA);
  copy(BETA2, V_BETA2, D, ALARM_BETA2, USUAL_BETA);
  copy(B_QKV, V_B_QKV, QKV, ALARM_B_QKV, USUAL_BIAS);
  copy(B_ATTN, V_B_ATTN, D, -1, 0.f);
  copy(B_FC, V_B_FC, FFN, ALARM_B_FC, USUAL_BIAS);
  copy(B_PROJ, V_B_PROJ, D, -1, 0.f);
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
