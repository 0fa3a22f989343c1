/* x1(rows, N) fp32 = C + bias + residual;  h(rows, N) fp16 = (x1 - centre) scale, for LN2 in a product that knows no more of a row than its own
   tile. Centre and scale of a row are known before the product (gemm/row_facts_sm90a.cuh); of x1 - centre each block leaves sum and sum of squares
   of its columns, and the next product divides by what they say. So no block waits for another one, and both results leave box by box from the
   first on: an SM writes but 16 bytes a clock. h must not be the memory of A. */
#pragma once
#include "common/reduce.cuh"
#include "gemm/residual_boxes_sm90a.cuh"
#include "gemm/row_facts_sm90a.cuh"

struct ApartArgs {
  const float* bias;      // (N)
  const float* residual;  // (rows, N)
  const RowFacts* facts;  // (rows)
  RowPart* parts;         // (rows, ROW_PARTS)
  int rows;
};

template <class S>
struct ApartEpilogue : GemmEpilogue {
  using Boxes = ResidualBoxes<S>;
  static constexpr Prepares PREPARES = Boxes::PREPARES;
  static constexpr bool BEGINS = true;
  static constexpr int BOXES = Boxes::COUNT;
  static constexpr int FACTS = Boxes::BYTES + S::N * 4, SHARED_BYTES = FACTS + 4 * S::WARPGROUPS * 128;
  static_assert(S::N_TILES <= ROW_PARTS, "room for a row's parts");

  const CUtensorMap *x1, *h;
  ApartArgs args;
  Boxes boxes;
  uint32_t facts_at, bias_at, bias_full;

  __device__ ApartEpilogue(const CUtensorMap* x1, const CUtensorMap* h, const ApartArgs& args) : x1(x1), h(h), args(args) {}
  __device__ void at(uint32_t memory, uint32_t barriers, int) {
    boxes.lie(memory);
    facts_at = memory + FACTS + threadIdx.x / 32 * 128;
    bias_at = memory + Boxes::BYTES;
    bias_full = barriers;
  }
  __device__ void init() const {
    prefetch_tensor_map(x1);
    prefetch_tensor_map(h);
    mbarrier_init(bias_full, 1);
  }
  __device__ void load() const {
    mbarrier_expect(bias_full, S::N * 4);
    bulk_load(bias_at, args.bias, S::N * 4, bias_full);
  }
  // The facts are of the first kernel of the chain.
  __device__ void prepare(int row, int n) {
    boxes.fetch(args.residual, row, n, args.rows);
    const int lane = threadIdx.x % 32;
    if (lane < 8) copy_async_16(facts_at + 16 * lane, args.facts + row + 2 * lane);
  }

  __device__ void begin(float (&d)[S::BN / 2], int n) const {
    mbarrier_wait_or_fault(bias_full, 0);
    begin_with<S::BN / 8>(bias_at + (n + threadIdx.x % 4 * 2) * 4, d);
  }

  __device__ void finish(float (&d)[S::BN / 2], int row, int n) {
    const int lane = threadIdx.x % 32;
    copy_async_wait();
    __syncwarp();
    float2 facts[2];  // centre and scale of rows lane / 4 and lane / 4 + 8
#pragma unroll
    for (int u = 0; u < 2; u++) facts[u] = load_shared_2(facts_at + (lane / 4 + 8 * u) * 8);
    float sum[2] = {0.f, 0.f}, squares[2] = {0.f, 0.f};
#pragma unroll
    for (int box = 0; box < BOXES; box++) {
      float* v = d + 16 * box;
      add_residual(v, box);
#pragma unroll
      for (int i = 0; i < 16; i++) {
        const int u = i / 2 % 2;
        const float c = v[i] - facts[u].x;
        sum[u] += c;
        squares[u] = fmaf(c, c, squares[u]);
        v[i] = c * facts[u].y;
      }
      if (Boxes::OWN_H) stage_h(v, box);
      fence_async_shared();
      __syncwarp();
      if (elect_one()) {
        if (Boxes::OWN_H) tma_store_2d(h, boxes.h + box * 1024, n + 32 * box, row);
        tma_store_2d(x1, boxes.at + box * 2048, n + 32 * box, row);
        bulk_commit();
      }
    }
#pragma unroll
    for (int u = 0; u < 2; u++) {
      const RowPart part = {quad_sum(sum[u]), quad_sum(squares[u])};
      if (lane % 4 == 0) args.parts[static_cast<size_t>(row + lane / 4 + 8 * u) * ROW_PARTS + n / S::BN] = part;
    }
    if (Boxes::OWN_H) return;
    boxes.make_room();
#pragma unroll
    for (int box = 0; box < BOXES; box++) {
      stage_h(d + 16 * box, box);
      Boxes::send(h, boxes.h + box * 1024, box, row, n);
    }
  }

  // All loads of a box come before its first store: one behind a store would wait for it.
  __device__ void add_residual(float* v, int box) const {
    float2 e[4][2];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int u = 0; u < 2; u++) e[i][u] = load_shared_2(boxes.place(4 * box + i) + 1024 * u);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int u = 0; u < 2; u++) {
        float* to = v + 4 * i + 2 * u;
        to[0] += e[i][u].x;
        to[1] += e[i][u].y;
        store_shared_2(boxes.place(4 * box + i) + 1024 * u, to[0], to[1]);
      }
  }

  __device__ void stage_h(const float* v, int box) const {
    const int r = threadIdx.x % 16, half = threadIdx.x % 32 / 16;
    uint32_t packed[8];
#pragma unroll
    for (int i = 0; i < 8; i++) packed[i] = pack_half2(v[2 * i], v[2 * i + 1]);
    const uint32_t to = boxes.h + box * 1024;
    stmatrix_x4(to + swizzle<64>(r, half), packed[0], packed[1], packed[2], packed[3]);
    stmatrix_x4(to + swizzle<64>(r, 2 + half), packed[4], packed[5], packed[6], packed[7]);
  }

  __device__ void end() const {
    if (elect_one()) bulk_wait_read<0>();
  }
};
