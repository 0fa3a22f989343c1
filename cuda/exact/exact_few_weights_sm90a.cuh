/* The weights of the exact block of few rows: brought into shared memory by warps of their own, taken from there into registers, multiplied.

   By mma.sync an operand is two halves, as exact.cuh says, but its scale is that of what a warp has of a matrix: 64 of K, by 24 columns or by 16 rows. The
   tensor cores cut sums off instead of rounding them, so these 64 are summed from zero. Up to four rows fp32 multiply-adds are fewer
   instructions, and up to SCALAR_ROWS what computes a call again must be as near as precision exact, which multiplies so (small/fp32.cuh). */
#pragma once

#include "common/copy_sm90a.cuh"
#include "common/mma_sm80.cuh"
#include "common/reduce.cuh"
#include "exact/exact_few_plan_sm90a.cuh"

namespace exact90 {

/* BRINGING more warps bring the weights, unit by unit, into a place in shared memory, the next ones as soon as all threads have taken the last. Asked for by
   the computing warps they hold these up, and rows and the grid barrier's word would wait behind them. */
template <int BRINGING>
struct FewProducer {
  const ExactArgs& args;
  const FewShared& shared;

  // A unit, as FewWeights takes it: four rows at a time, by six lanes each
  __device__ __forceinline__ void bring(const float* from, int width) const {
    constexpr int QUADS = UNIT / 4, ROWS = D / BRINGING;
    const int lane = thread_index() % 32, row = lane / QUADS, column = lane % QUADS * 4, top = (thread_index() - THREADS) / 32 * ROWS;
    uint32_t to = shared.weights() + ((top + 4 * row) * UNIT + column) * 4;
    from += (top + row) * width + column;
    const bool aligned = aligned_16(from);
    if (row < 4)
#pragma unroll 1
      for (int k = 0; k < ROWS; k += 16, to += 16 * UNIT * 4)
#pragma unroll
        for (int t = 0; t < 4; t++, from += 4 * width)
          if (aligned)
            copy_async_16(to + t * UNIT * 4, from);
          else
#pragma unroll
            for (int word = 0; word < 4; word++) copy_async_4(to + t * UNIT * 4 + 4 * word, from + word);
    copy_async_arrive(shared.full());
  }

  __device__ __forceinline__ void run() const {
    uint32_t parity = 1;  // nothing need be taken before the first one
    named_barrier_sync(FEW_ASKED, THREADS + 32 * BRINGING);
#pragma unroll 1
    for (int matrix = MATRIX_QKV; matrix <= MATRIX_PROJ; matrix++) {
      const FewStage stage{args, matrix};
#pragma unroll 1
      for (int unit = crew.rank; unit < stage.units(); unit += crew.size, parity ^= 1) {
        mbarrier_wait_or_fault(shared.taken(), parity);
        bring(stage.at(unit), stage.width());
      }
    }
  }
};

/* A warp's part of a unit: of its lanes, k 16 s + 4 (lane % 4) + e and column 8 tile + lane / 4. Of a step of the MMA a lane has k 2 (lane % 4) and + 1,
   and 8 more: here they stand for those four, in the weights as in A. */
struct FewWeights {
  float w[UNIT_STEPS][UNIT_TILES][4];  // for the MMA, instead, the halves: of k 0 and 1, of 2 and 3, and what is left of these
  float inverse_scale;

  static __device__ __forceinline__ int first_k() { return thread_index() / 32 * (16 * UNIT_STEPS) + thread_index() % 4 * 4; }

  // k 4 t + e of 16 lies in row 4 e + t of a unit in shared memory: then the lanes of one access hit 32 banks.
  __device__ __forceinline__ void take(uint32_t unit, bool scalar) {
    const uint32_t from = unit + ((thread_index() / 32 * (16 * UNIT_STEPS) + thread_index() % 4) * UNIT + thread_index() % 32 / 4) * 4;
#pragma unroll
    for (int s = 0; s < UNIT_STEPS; s++)
#pragma unroll
      for (int e = 0; e < 4; e++)
#pragma unroll
        for (int j = 0; j < UNIT_TILES; j++) w[s][j][e] = load_shared(from + ((16 * s + 4 * e) * UNIT + 8 * j) * 4);
    if (scalar) return fence_async_shared();  // else the caller's arrival passes these loads (mbarrier_arrive)
    float most = 0.f;
#pragma unroll
    for (int s = 0; s < UNIT_STEPS; s++)
#pragma unroll
      for (int j = 0; j < UNIT_TILES; j++) most = fmaxf(most, magnitude(make_float4(w[s][j][0], w[s][j][1], w[s][j][2], w[s][j][3])));
    const float scale = warp_scale(most);
    inverse_scale = inverse(scale);
#pragma unroll
    for (int s = 0; s < UNIT_STEPS; s++)
#pragma unroll
      for (int j = 0; j < UNIT_TILES; j++) {
        float* const v = w[s][j];
        const Split a = split(v[0] * scale, v[1] * scale), b = split(v[2] * scale, v[3] * scale);
        v[0] = __uint_as_float(a.hi), v[1] = __uint_as_float(b.hi), v[2] = __uint_as_float(a.lo), v[3] = __uint_as_float(b.lo);
      }
  }

  // The same when they are there
  __device__ __forceinline__ void receive(const FewShared& shared, uint32_t parity, bool scalar) {
    mbarrier_wait_or_fault(shared.full(), parity);
    take(shared.weights(), scalar);
    mbarrier_arrive(shared.taken());
  }

  // Sums over the warp's part of K: to[row][column]
  __device__ __forceinline__ void multiply(const float* a, float* to, int rows, bool scalar) const {
    a += first_k(), to += thread_index() / 32 * SUMS_PITCH;
    if (scalar) return multiply_scalar(a, to, rows);
    const int g = thread_index() % 32 / 4, t = thread_index() % 4;
    a += g * A_PITCH, to += g * UNIT + 2 * t;
#pragma unroll 1
    for (int top = 0; top < rows; top += 16, a += 16 * A_PITCH, to += 16 * UNIT) {
      float4 v[UNIT_STEPS][2];
      float most = 0.f;
#pragma unroll
      for (int s = 0; s < UNIT_STEPS; s++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const bool exists = top + 8 * half + g < rows;  // what lies there otherwise is no matter but for the scale
          v[s][half] = exists ? *reinterpret_cast<const float4*>(a + 8 * half * A_PITCH + 16 * s) : make_float4(0.f, 0.f, 0.f, 0.f);
          most = fmaxf(most, magnitude(v[s][half]));
        }
      const float scale = warp_scale(most), back = inverse(scale);
      float large[UNIT_TILES][4] = {}, small[UNIT_TILES][4] = {};
#pragma unroll
      for (int s = 0; s < UNIT_STEPS; s++) {
        const float4 x = v[s][0], y = v[s][1];
        const auto halves = [&](float k, float next) { return split(k * scale, next * scale); };
        const Split left[4] = {halves(x.x, x.y), halves(y.x, y.y), halves(x.z, x.w), halves(y.z, y.w)};
        const unsigned hi[4] = {left[0].hi, left[1].hi, left[2].hi, left[3].hi}, lo[4] = {left[0].lo, left[1].lo, left[2].lo, left[3].lo};
#pragma unroll
        for (int j = 0; j < UNIT_TILES; j++) {
          const auto right = [&](int i) { return __float_as_uint(w[s][j][i]); };
          MmaSm80::mma(small[j], hi, right(2), right(3));
          MmaSm80::mma(small[j], lo, right(0), right(1));
          MmaSm80::mma(large[j], hi, right(0), right(1));
        }
      }
      // The smaller factor first: by the larger one alone a sum could leave fp32.
      const float first = fminf(back, inverse_scale), second = fmaxf(back, inverse_scale);
      const auto sum = [&](int j, int i) { return (large[j][i] + small[j][i]) * first * second; };
#pragma unroll
      for (int j = 0; j < UNIT_TILES; j++)
#pragma unroll
        for (int half = 0; half < 2; half++)
          *reinterpret_cast<float2*>(to + 8 * half * UNIT + 8 * j) = make_float2(sum(j, 2 * half), sum(j, 2 * half + 1));
    }
  }

  __device__ __forceinline__ void multiply_scalar(const float* a, float* to, int rows) const {
    const int g = thread_index() % 32 / 4, t = thread_index() % 4;
#pragma unroll 1
    for (int row = 0; row < rows; row++, a += A_PITCH, to += UNIT) {
      float sums[UNIT_TILES] = {};
#pragma unroll
      for (int s = 0; s < UNIT_STEPS; s++) {
        const float4 v = *reinterpret_cast<const float4*>(a + 16 * s);
#pragma unroll
        for (int j = 0; j < UNIT_TILES; j++) {
          const float* const b = w[s][j];
          sums[j] = fmaf(v.w, b[3], fmaf(v.z, b[2], fmaf(v.y, b[1], fmaf(v.x, b[0], sums[j]))));
        }
      }
#pragma unroll
      for (int j = 0; j < UNIT_TILES; j++) {
        const float sum = quad_sum(sums[j]);
        if (t == j) to[8 * j + g] = sum;
      }
    }
  }
};

}  // namespace exact90
