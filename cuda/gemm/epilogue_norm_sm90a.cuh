/* x1(rows, N) fp32 = C + bias + residual;  h(rows, N) fp16 = LayerNorm(x1).
   The N_TILES blocks that share 16 rows exchange, per row, the mean of their BN columns and the sum of squared deviations from it, warp by warp. A pair of
   floats is one 8-byte word, which starts as EMPTY: whoever reads something else has the whole of it, so that one trip through L2 replaces write, fence,
   count, wait and read (2.6 us that way, of which 1 is left). x1 leaves meanwhile, box by box, and h behind it in the same way, from boxes of its own: both are
   on their way for longer than the exchange takes (solve() at 256 rows -0.2, at 512 to 1025 -0.2 to -1.0, H200). Chan's formula combines the statistics, always
   in the same order.
   h may be the memory of A: a row is written after all that read it have given its statistics.
   The blocks of a row must be resident together: they are neighbours in the grid, and blocks start in order, so N_TILES free multiprocessors are enough, if
   nothing keeps the rest out (await_statistics). */
#pragma once
#include "common/reduce.cuh"
#include "dims.h"
#include "gemm/residual_boxes_sm90a.cuh"
#include "gemm/statistics_sm90a.cuh"

struct NormArgs {
  const float* bias;      // (N)
  const float* residual;  // (rows, N)
  const float* gamma;     // (N), and after it beta (N)
  unsigned long long* statistics;  // (rows rounded up to 128, N_TILES)
  int rows;
};

template <class S>
struct NormEpilogue : GemmEpilogue {
  using Boxes = ResidualBoxes<S>;
  static constexpr Prepares PREPARES = Boxes::PREPARES;
  static constexpr bool BEGINS = true;
  static constexpr int GROUPS = S::BN / 8;
  static constexpr int BOXES = Boxes::COUNT;
  static constexpr int SHARED_BYTES = Boxes::BYTES + 3 * S::N * 4;
  static constexpr int TILES = S::N_TILES;

  const CUtensorMap *x1, *h;
  NormArgs args;
  unsigned* alarms;
  Boxes boxes;
  uint32_t vectors, vectors_full;

  __device__ NormEpilogue(const CUtensorMap* x1, const CUtensorMap* h, const NormArgs& args, unsigned* alarms)
      : x1(x1), h(h), args(args), alarms(alarms) {}
  __device__ void at(uint32_t memory, uint32_t barriers, int) {
    boxes.lie(memory);
    vectors = memory + Boxes::BYTES;
    vectors_full = barriers;
  }
  __device__ void init() const {
    prefetch_tensor_map(x1);
    prefetch_tensor_map(h);
    mbarrier_init(vectors_full, 1);
  }
  __device__ void load() const {
    mbarrier_expect(vectors_full, 3 * S::N * 4);
    bulk_load(vectors, args.bias, S::N * 4, vectors_full);
    bulk_load(vectors + S::N * 4, args.gamma, 2 * S::N * 4, vectors_full);
  }
  __device__ void prepare(int row, int n) { boxes.fetch(args.residual, row, n, args.rows); }
  __device__ void begin(float (&d)[S::BN / 2], int n) const {
    mbarrier_wait_or_fault(vectors_full, 0);
    begin_with<GROUPS>(vectors + (n + 2 * (threadIdx.x % 4)) * 4, d);
  }

  __device__ void finish(float (&d)[S::BN / 2], int row, int n) {
    const int lane = threadIdx.x % 32, tile = n / S::BN;
    copy_async_wait();
    __syncwarp();
    float mean[2] = {0.f, 0.f}, spread[2] = {0.f, 0.f};  // of rows lane / 4 and lane / 4 + 8
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
#pragma unroll
      for (int u = 0; u < 2; u++) {
        const float2 e = load_shared_2(boxes.place(g) + 1024 * u);
        d[4 * g + 2 * u] += e.x;
        d[4 * g + 2 * u + 1] += e.y;
        mean[u] += d[4 * g + 2 * u] + d[4 * g + 2 * u + 1];
      }
    }
#pragma unroll
    for (int u = 0; u < 2; u++) {
      mean[u] = quad_sum(mean[u]) * (1.f / S::BN);
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
        const float a = d[4 * g + 2 * u] - mean[u], b = d[4 * g + 2 * u + 1] - mean[u];
        spread[u] = fmaf(a, a, fmaf(b, b, spread[u]));
      }
      spread[u] = quad_sum(spread[u]);
      if (lane % 4 == 0)
        publish_statistics(args.statistics + static_cast<size_t>(row + lane / 4 + 8 * u) * TILES + tile, mean[u],
                           spread[u]);
    }
    store_x1(d, row, n);
    float scale[2], shift[2];  // h = (x1 scale + shift) gamma + beta
    combine(row + lane / 4, scale, shift);
    if (!Boxes::OWN_H) boxes.make_room();
    store_h(d, row, n, scale, shift);
  }

  __device__ void store_x1(const float (&d)[S::BN / 2], int row, int n) const {
#pragma unroll
    for (int box = 0; box < BOXES; box++) {
#pragma unroll
      for (int g = 4 * box; g < 4 * box + 4; g++) {
        const uint32_t to = boxes.place(g);
        store_shared_2(to, d[4 * g], d[4 * g + 1]);
        store_shared_2(to + 1024, d[4 * g + 2], d[4 * g + 3]);
      }
      Boxes::send(x1, boxes.at + box * 2048, box, row, n);
    }
  }

  // Of rows `row` and `row` + 8; the four lanes of a quad read a quarter of their statistics each.
  __device__ void combine(int row, float (&scale)[2], float (&shift)[2]) const {
    constexpr int PART = (TILES + 3) / 4;
    static_assert(TILES % PART == 0, "each lane of a quad has its part, or none");
    const int first = threadIdx.x % 4 * PART;
    const bool mine = first < TILES;
    float2 s[2][PART];
    await_statistics(args.statistics + static_cast<size_t>(row) * TILES + (mine ? first : 0), 8 * TILES, s, alarms);
#pragma unroll
    for (int u = 0; u < 2; u++) {
      float mean = 0.f, spread = 0.f;
#pragma unroll
      for (int i = 0; i < PART; i++) mean += s[u][i].x;
      mean = quad_sum(mine ? mean : 0.f) * (1.f / TILES);
#pragma unroll
      for (int i = 0; i < PART; i++) spread += fmaf(S::BN * (s[u][i].x - mean), s[u][i].x - mean, s[u][i].y);
      scale[u] = rsqrtf(quad_sum(mine ? spread : 0.f) * (1.f / S::N) + LN_EPS);
      shift[u] = -mean * scale[u];
    }
  }

  __device__ void store_h(const float (&d)[S::BN / 2], int row, int n, const float (&scale)[2],
                          const float (&shift)[2]) const {
    const int lane = threadIdx.x % 32, r = lane % 16;
    float2 w[2][4], b[2][4];  // gamma and beta of two boxes: the next one's are fetched before the stores of one, behind which they would wait
    const auto fetch = [&](int box) {
      const uint32_t gamma = vectors + (S::N + n + 32 * box + 2 * (lane % 4)) * 4;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        w[box % 2][i] = load_shared_2(gamma + 32 * i);
        b[box % 2][i] = load_shared_2(gamma + S::N * 4 + 32 * i);
      }
    };
    fetch(0);
#pragma unroll
    for (int box = 0; box < BOXES; box++) {
      if (box + 1 < BOXES) fetch(box + 1);
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        uint32_t packed[4];
#pragma unroll
        for (int u = 0; u < 2; u++) {
          const float* v = d + 4 * (4 * box + i + u);
          const float2 gamma = w[box % 2][i + u], beta = b[box % 2][i + u];
          packed[2 * u] = pack_half2(fmaf(fmaf(v[0], scale[0], shift[0]), gamma.x, beta.x), fmaf(fmaf(v[1], scale[0], shift[0]), gamma.y, beta.y));
          packed[2 * u + 1] = pack_half2(fmaf(fmaf(v[2], scale[1], shift[1]), gamma.x, beta.x), fmaf(fmaf(v[3], scale[1], shift[1]), gamma.y, beta.y));
        }
        stmatrix_x4(boxes.h + box * 1024 + swizzle<64>(r, i + lane / 16), packed[0], packed[1], packed[2], packed[3]);
      }
      Boxes::send(h, boxes.h + box * 1024, box, row, n);
    }
  }
  __device__ void end() const {
    if (elect_one()) bulk_wait_read<0>();
  }
};
