/* The last rows of each sequence, up to 16 behind a multiple of 64, against all of its keys: a block for three heads, a
   warpgroup for each, of which each warp takes 16 of every 64 keys. At 1025 rows the clusters beside them, of 64 rows a
   group, then go round (128 blocks) as at 1024, and these take four of the multiprocessors that are left.
   Limiter: the bytes into one multiprocessor, K and V of three heads. */
#pragma once
#include "attention/attention_output_sm90a.cuh"
#include "common/mma_sm80.cuh"

// The number of this block among those of tails, negative for the others
template <class T>
__device__ __forceinline__ int tail_block(int seq_len, int groups) {
  constexpr int TAILS = HEADS / T::ROW_GROUPS;  // blocks a sequence
  if (64 * groups >= seq_len) return -1;
  const int sequences = gridDim.x / ((T::BLOCKS * groups + 1) * TAILS);
  return static_cast<int>(blockIdx.x) - sequences * T::BLOCKS * groups * TAILS;
}

// Tile i of the keys of a block's head g is in this stage.
template <class T>
__device__ __forceinline__ int tail_stage(int i, int g) {
  static_assert(T::STAGES == 2 * T::ROW_GROUPS && T::KEYS == 64);
  return i % 2 * T::ROW_GROUPS + g;
}

template <class T>
__device__ __forceinline__ void load_tail(const CUtensorMap* qkv, const AttentionSmem<T>& smem, int seq_len, int block) {
  const int first = block * T::ROW_GROUPS, sequence = first / HEADS, column = first % HEADS * HEAD_DIM;
#pragma unroll
  for (int g = 0; g < T::ROW_GROUPS; g++) {
    mbarrier_expect(smem.q_full(g), 64 * 128);
    load_rows<64, false>(smem.q() + g * 8192, qkv, column + g * HEAD_DIM, seq_len / 64 * 64, sequence, smem.q_full(g));
  }
  for (int tile = 0; tile * T::KEYS < seq_len; tile++)
#pragma unroll
    for (int g = 0; g < T::ROW_GROUPS; g++) {
      const int stage = tail_stage<T>(tile, g);
      if (tile >= 2) mbarrier_wait_or_fault(smem.empty(stage), (tile / 2 - 1) & 1);
      mbarrier_expect(smem.k_full(stage), T::KV_BYTES);
      load_rows<T::KEYS, false>(smem.k(stage), qkv, D + column + g * HEAD_DIM, tile * T::KEYS, sequence, smem.k_full(stage));
      mbarrier_expect(smem.v_full(stage), T::KV_BYTES);
      load_rows<T::KEYS, false>(smem.v(stage), qkv, 2 * D + column + g * HEAD_DIM, tile * T::KEYS, sequence, smem.v_full(stage));
    }
}

// What a warp has of one tile's 16 x 16 scores becomes part of its O.
struct TailSoftmax {
  float reference[2] = {NO_SCORE, NO_SCORE}, sum[2] = {0, 0};

  // Scores become p; what was summed up must be multiplied by `rescale`.
  __device__ __forceinline__ void exponentials(float (&s)[8], float (&rescale)[2]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float top = fmaxf(fmaxf(s[2 * h], s[2 * h + 1]), fmaxf(s[2 * h + 4], s[2 * h + 5])), r = fmaxf(reference[h], quad_max(top));
      rescale[h] = exp2_approx((reference[h] - r) * SCORE_SCALE);
      reference[h] = r;
      sum[h] *= rescale[h];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float& p = s[i / 2 * 4 + 2 * h + i % 2];
        p = exp2_approx(fmaf(p - r, SCORE_SCALE, P_BITS));
        sum[h] += p;
      }
    }
  }
};

// A warp's part of O, 16 rows of 64 floats; swizzled, for the banks
__device__ __forceinline__ uint32_t tail_part(uint32_t parts, int warp, int row, int group) {
  return parts + 4096 * warp + 256 * row + 32 * (group ^ (row & 7));
}

template <class T>
__device__ __forceinline__ void store_tail(const AttentionSmem<T>& smem, const float (&o)[32], const TailSoftmax& softmax, __half* att, int seq_len,
                                           int head, int group, int warp) {
  const int lane = threadIdx.x % 32, row = lane / 4;
  const uint32_t parts = smem.k(group), statistics = smem.partial(group);
  const float sums[2] = {quad_sum(softmax.sum[0]), quad_sum(softmax.sum[1])};
  named_barrier_sync(1 + T::CONSUMERS + group, 128);  // all have read the tiles that lay there
#pragma unroll
  for (int i = 0; i < 8; i++) {
    store_shared_2(tail_part(parts, warp, row, i) + 8 * (lane % 4), o[4 * i], o[4 * i + 1]);
    store_shared_2(tail_part(parts, warp, row + 8, i) + 8 * (lane % 4), o[4 * i + 2], o[4 * i + 3]);
  }
  if (lane % 4 == 0) {
    store_shared_2(statistics + 128 * warp + 8 * row, softmax.reference[0], sums[0]);
    store_shared_2(statistics + 128 * warp + 8 * (row + 8), softmax.reference[1], sums[1]);
  }
  named_barrier_sync(1 + T::CONSUMERS + group, 128);

  const int r = 4 * warp + lane / 8, columns = lane % 8, to = seq_len / 64 * 64 + r;  // eight columns of a row each
  float2 part[4];
  float top = NO_SCORE, total = 0, v[8] = {};
#pragma unroll
  for (int w = 0; w < 4; w++) {
    part[w] = load_shared_2(statistics + 128 * w + 8 * r);
    top = fmaxf(top, part[w].x);
  }
#pragma unroll
  for (int w = 0; w < 4; w++) {
    const float weight = exp2_approx((part[w].x - top) * SCORE_SCALE);
    total += weight * part[w].y;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float4 from = load_shared_4(tail_part(parts, w, r, columns) + 16 * i);
      v[4 * i] += weight * from.x;
      v[4 * i + 1] += weight * from.y;
      v[4 * i + 2] += weight * from.z;
      v[4 * i + 3] += weight * from.w;
    }
  }
  const float scale = reciprocal(total);
  uint4 packed;
  packed.x = pack_half2(v[0] * scale, v[1] * scale);
  packed.y = pack_half2(v[2] * scale, v[3] * scale);
  packed.z = pack_half2(v[4] * scale, v[5] * scale);
  packed.w = pack_half2(v[6] * scale, v[7] * scale);
  if (to < seq_len)
    *reinterpret_cast<uint4*>(att + (static_cast<size_t>(head / HEADS) * seq_len + to) * D + head % HEADS * HEAD_DIM + 8 * columns) = packed;
}

template <class T>
__device__ __forceinline__ void attend_tail(const AttentionSmem<T>& smem, __half* att, int seq_len, int block, int group, int warp) {
  const int lane = threadIdx.x % 32;
  uint32_t q[4][4];
  float o[32] = {};
  TailSoftmax softmax;
  mbarrier_wait_or_fault(smem.q_full(group), 0);
#pragma unroll
  for (int k = 0; k < 4; k++) ldmatrix_x4(smem.q() + group * 8192 + swizzle_128(lane & 15, 2 * k + (lane >> 4)), q[k]);
#pragma unroll 1
  for (int tile = 0; tile * T::KEYS < seq_len; tile++) {
    const int stage = tail_stage<T>(tile, group), parity = tile / 2 & 1;
    const int left = seq_len - tile * T::KEYS - 16 * warp - 2 * (lane & 3);  // keys from this thread's first on
    float s[8] = {}, rescale[2];
    mbarrier_wait_or_fault(smem.k_full(stage), parity);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      uint32_t b[4];
      ldmatrix_x4(smem.k(stage) + swizzle_128(16 * warp + 8 * (lane >> 4) + (lane & 7), 2 * k + (lane >> 3 & 1)), b);
      MmaSm80::mma(*reinterpret_cast<float(*)[4]>(s), q[k], b[0], b[1]);
      MmaSm80::mma(*reinterpret_cast<float(*)[4]>(s + 4), q[k], b[2], b[3]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (8 * (i >> 2) + (i & 1) >= left) s[i] = -INFINITY;
    softmax.exponentials(s, rescale);
    const uint32_t p[4] = {pack_half2(s[0], s[1]), pack_half2(s[2], s[3]), pack_half2(s[4], s[5]), pack_half2(s[6], s[7])};
    mbarrier_wait_or_fault(smem.v_full(stage), parity);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint32_t b[4];
      ldmatrix_x4_transposed(smem.v(stage) + swizzle_128(16 * warp + (lane & 15), 2 * i + (lane >> 4)), b);
#pragma unroll
      for (int j = 0; j < 8; j++) o[8 * i + j] *= rescale[j >> 1 & 1];
      MmaSm80::mma(*reinterpret_cast<float(*)[4]>(o + 8 * i), p, b[0], b[1]);
      MmaSm80::mma(*reinterpret_cast<float(*)[4]>(o + 8 * i + 4), p, b[2], b[3]);
    }
    __syncwarp();
    if (elect_one()) mbarrier_arrive(smem.empty(stage));
  }
  store_tail<T>(smem, o, softmax, att, seq_len, block * T::ROW_GROUPS + group, group, warp);
}
