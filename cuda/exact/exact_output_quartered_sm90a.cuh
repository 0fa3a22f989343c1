/* The last stage of exact_quartered_sm90a.cu: exact_output_sm90a.cuh, but each warpgroup meets its like of the other three blocks as soon as it has its own
   sums, the first one while the second one still multiplies. */
#pragma once

#include "exact/exact_output_sm90a.cuh"

namespace exact90 {

// A word of a tile has a bit for each warpgroup of its four blocks, which the warpgroup turns over. Those of the same rows are alike before and after.
struct TileMeeting {
  unsigned *word, bit, all, before = 0;

  // All stores of the warpgroup are seen by those that await() this.
  __device__ __forceinline__ TileMeeting(unsigned char* memory, int tile, int part) {
    const int thread = thread_index(), group = thread / 128;
    word = reinterpret_cast<unsigned*>(memory + AT_TILES) + tile;
    bit = 1u << (QUARTERS * group + part), all = ((1u << QUARTERS) - 1) << QUARTERS * group;
    named_barrier_sync(GROUP_BARRIER + group, 128);
    if (thread % 128 == 0)  // PTX ISA 9.0, 9.7.13.7
      asm volatile("atom.xor.release.gpu.global.b32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(bit) : "memory");
  }
  __device__ __forceinline__ void await() const {
    const int thread = thread_index();
    const unsigned after = before & bit ? 0 : all;
    if (thread % 128 == 0)
      for (unsigned polls = 0; (load_acquire(word) & all) != after;) bound(++polls);
    named_barrier_sync(GROUP_BARRIER + thread / 128, 128);
  }
};
static_assert(2 * QUARTERS <= 32, "bits of a word");

// As product_to_output(). enter() waits for the other blocks before the product.
template <class Enter>
__device__ __forceinline__ void product_to_output_quartered(Ring<WIDE_SLOTS>& at, uint32_t shared, const ExactArgs& args, float a_inverse, Enter enter) {
  using F = Leading;
  constexpr int VECTORS = F::BN / 8 / QUARTERS;
  const Units<F> units(padded_rows(args), D, FFN / 64, QUARTERS);
  const Spot<F> spot(units);
  const int tile = anew(units.tile());
  enter();
  const auto part_at = [&](int part, int quarter) {
    const int at = (tile * QUARTERS + part) * QUARTERS + quarter;
    return reinterpret_cast<float4*>(Memory(args).partial()) + at * (VECTORS * CONSUMERS) + thread_index();
  };
  float4 own[VECTORS];
  float2 bias[VECTORS], x1[2][VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; i++) own[i] = make_float4(0.f, 0.f, 0.f, 0.f);  // behind a loop over stages: see Sums
  if (units.more()) {
    float sum[F::BN / 2];
    int turn = 0;
    multiply_unit<F>(sum, turn, at, shared, args, true, units.k_blocks, spot);
#pragma unroll
    for (int quarter = 0; quarter < QUARTERS; quarter++) {
      float4* to = part_at(spot.part, quarter);
#pragma unroll
      for (int i = 0; i < VECTORS; i++) {
        const float* v = sum + 4 * (VECTORS * quarter + i);
        const float4 scaled = make_float4(v[0] * a_inverse, v[1] * a_inverse, v[2] * a_inverse, v[3] * a_inverse);
        if (quarter == spot.part)
          own[i] = scaled;
        else
          __stcg(to + i * CONSUMERS, scaled);
      }
    }
  }
  if (!units.more()) return;
  TileMeeting meeting(args.memory, tile, spot.part);
  const int thread = thread_index(), row = spot.row + thread / 32 * 16 + thread % 32 / 4;
  const int column = spot.column + spot.part * (8 * VECTORS) + thread % 4 * 2, first = row * D + column;  // of this thread's first value
  const float* residual = Memory(args).x1() + first;
  const float* biases = Memory(args).vectors() + V_B_PROJ + column;
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    bias[i] = __ldcg(reinterpret_cast<const float2*>(biases + 8 * i));
#pragma unroll
    for (int r = 0; r < 2; r++) x1[r][i] = __ldcg(reinterpret_cast<const float2*>(residual + 8 * r * D + 8 * i));
  }
  float* to = args.output + first;
  // While it would wait the first warpgroup does all this once without loads and stores: instructions that run for the first time come from far away.
  const int rehearses = uniform_group() == 0;
  if (!rehearses) meeting.await();
#pragma unroll 1
  for (int dry = anew(rehearses);; dry = anew(0)) {
    float4 parts[QUARTERS][VECTORS];
#pragma unroll
    for (int part = 0; part < QUARTERS; part++) {
      const float4* from = part_at(part, spot.part);
#pragma unroll
      for (int i = 0; i < VECTORS; i++) {
        parts[part][i] = own[i];
        if (part != spot.part && !dry) parts[part][i] = __ldcg(from + i * CONSUMERS);
      }
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      float4 sum = make_float4(bias[i].x, bias[i].y, bias[i].x, bias[i].y);  // as finish_rows does it, which has fewer blocks
#pragma unroll
      for (int part = 0; part < QUARTERS; part++) add(sum, parts[part][i]);
      const float2 top = make_float2(sum.x + x1[0][i].x, sum.y + x1[0][i].y), bottom = make_float2(sum.z + x1[1][i].x, sum.w + x1[1][i].y);
      if (row < args.rows && !dry) *reinterpret_cast<float2*>(to + 8 * i) = top;
      if (row + 8 < args.rows && !dry) *reinterpret_cast<float2*>(to + 8 * D + 8 * i) = bottom;
    }
    if (!dry) return;
    meeting.await();
  }
}

}  // namespace exact90
