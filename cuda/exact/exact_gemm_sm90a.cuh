/* C(rows, N) = A(rows, K) B(K, N) of hi + lo operands: hi hi + lo hi + hi lo, in fp32.

   Tiles of 128 x BN, BN 64 to 192, two warpgroups of 64 x BN. The ring brings the halves of a k-block of 64 in two
   pieces, hi then lo, so that the three products share them: 80 KB for 2304 clocks of wgmma at BN 192. A unit of work is
   a tile and a part of K; blocks take units block, block + blocks, .., columns fastest. The tensor cores cut off at
   every addition, not round, so a sum ends there with every k-block.
   Limiter: the wgmma rate at BN 192; at BN 64 L2 to shared memory, 64 bytes a clock. */
#pragma once

#include <climits>

#include "common/copy_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "common/wgmma_sm90a.cuh"
#include "exact/exact_norm_sm90a.cuh"

namespace exact90 {

template <int BN_>
struct Form {
  static constexpr int BN = BN_, BARRIERS = BN == WIDEST ? WIDE_SLOTS : NARROW_SLOTS;
  static constexpr int A_BYTES = 2 * IMAGE, B_BYTES = BN * COLUMN, SLOT_BYTES = A_BYTES + B_BYTES;
  static constexpr int SLOTS = RING_BYTES / SLOT_BYTES < BARRIERS ? RING_BYTES / SLOT_BYTES : BARRIERS;
  static constexpr int FULL = BN == WIDEST ? BAR_WIDE : BAR_NARROW, EMPTY = FULL + 8 * BARRIERS;
  static_assert(BN % STRIP == 0 && BN <= WIDEST && SLOT_BYTES % 1024 == 0, "whole strips");
};
using Wide = Form<WIDEST>;
using Narrow = Form<64>;

// How a product is cut into units; the same for both roles.
struct Cut {
  int columns, slots, splits;  // of a tile, of its ring, of K

  template <class F>
  static __device__ __forceinline__ Cut in(int splits) {
    return {F::BN, F::SLOTS, splits};
  }
  __device__ __forceinline__ bool wide() const { return columns == WIDEST; }

  // Three products of a k-block take 2304 clocks in a wide tile, 900 in a narrow one. So up to `most_narrow` narrow tiles
  // serve where wide ones would leave SMs idle; and K is split as long as there are SMs for it.
  static __device__ __forceinline__ Cut of(int rows, int columns, int sms, int most_narrow, int max_splits) {
    const int narrow = rows / ROW_TILE * (columns / 64);
    Cut cut = narrow > most_narrow ? in<Wide>(1) : in<Narrow>(1);
    int units = cut.wide() ? rows / ROW_TILE * (columns / WIDEST) : narrow;
    for (; cut.splits < max_splits && 2 * units <= sms && 2 * cut.splits * rows <= PARTIAL_ROWS; units *= 2) cut.splits *= 2;
    return cut;
  }
};

// The units of a block, in order.
template <class F>
struct Units {
  int unit, count, tiles, columns, splits, k_blocks;

  // Of those from `first` on, below `end`
  __device__ __forceinline__ Units(int rows, int n, int k_tiles, int splits, int first = 0, int end = INT_MAX)
      : unit(first + crew.rank), columns((n + F::BN - 1) / F::BN), splits(splits), k_blocks(k_tiles >> (31 - __clz(splits))) {
    tiles = rows / ROW_TILE * columns;
    count = min(tiles * splits, end);
  }
  __device__ __forceinline__ bool more() const { return unit < count; }
  __device__ __forceinline__ void advance() { unit += crew.size; }
  __device__ __forceinline__ int part() const { return splits == 1 ? 0 : static_cast<unsigned>(unit) / static_cast<unsigned>(tiles); }
  __device__ __forceinline__ int tile() const { return unit - part() * tiles; }
  __device__ __forceinline__ int row() const { return tile() / columns * ROW_TILE; }
  __device__ __forceinline__ int column() const { return tile() % columns * F::BN; }
};

// How a part of a sum is added to it. prepare() comes before the wait for the part's last products.
struct AddPart {
  __device__ __forceinline__ void prepare() const {}
  template <int N>
  __device__ __forceinline__ void operator()(float (&sum)[N], const float (&part)[N]) const {
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] += part[i];
  }
};
// Times what undoes the scales of its columns: pairs of them, 32 bytes apart from `pairs` on in shared memory, in registers where there is room, else AHEAD
// at a time. Shared memory answers late while products read it: asked for behind the wait they took longer than the other warpgroup's products.
template <int BN>
struct AddScaled {
  static constexpr int PAIRS = BN / 8, AHEAD = BN <= 128 ? PAIRS : 4;
  uint32_t pairs;
  float2 c[AHEAD];

  __device__ __forceinline__ explicit AddScaled(uint32_t pairs) : pairs(pairs) {
    if (AHEAD == PAIRS) fetch();
  }
  __device__ __forceinline__ void fetch() {
#pragma unroll
    for (int i = 0; i < AHEAD; i++) c[i] = load_shared_2(pairs + i * 32);
  }
  __device__ __forceinline__ void prepare() {
    if (AHEAD < PAIRS) fetch();
  }
  __device__ __forceinline__ void operator()(float (&sum)[BN / 2], const float (&part)[BN / 2]) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      const float2 v = c[i % AHEAD];
      if (i + AHEAD < PAIRS) c[i % AHEAD] = load_shared_2(pairs + (i + AHEAD) * 32);
#pragma unroll
      for (int u = 0; u < 4; u++) sum[4 * i + u] = fmaf(part[4 * i + u], u % 2 ? v.y : v.x, sum[4 * i + u]);
    }
  }
};

/* add(sum, part) for parts of the product over `k_blocks` k-blocks, by one warpgroup: the tensor cores, which cut sums off, have none longer than the small
   products of a k-block and the large ones of the next. The warpgroups take turns, so that one multiplies while the other adds up: one hands over when its
   small products have ended, and has the large ones before it while the other begins. The first one's first products come before all. */
template <class F, class Add>
__device__ __forceinline__ void multiply(float (&sum)[F::BN / 2], Ring<F::SLOTS>& at, uint32_t shared, int k_blocks, int thread, Add add) {
  constexpr uint64_t A_FORM = wgmma_descriptor<128>(16, 1024), B_FORM = wgmma_descriptor<32>(STRIP * COLUMN, 256);
  const bool releases = thread % 128 == 0;
  const int group = uniform_group();
  const uint32_t ring = shared + S_RING + group * IMAGE;
  float d[F::BN / 2];
#pragma unroll
  for (int i = 0; i < F::BN / 2; i++) d[i] = 0.f;  // else the compiler keeps its registers from the kernel's start
  // The two places before `stage`: nothing reads them any more.
  const auto release_before = [&](int stage) {
#pragma unroll
    for (int i = 2; i > 0; i--)
      if (releases) mbarrier_arrive(shared + F::EMPTY + 8 * (stage >= i ? stage - i : stage - i + F::SLOTS));
  };
  const auto end_part = [&] {
    add.prepare();
    wgmma_wait<0>();
    add(sum, d);
  };
  const auto hand_over = [&] { named_barrier_arrive(PRODUCT_BARRIER + 1 - group, CONSUMERS); };
  const auto take_turn = [&] { named_barrier_sync(PRODUCT_BARRIER + group, CONSUMERS); };
  if (group == 1) take_turn();
  int k = 0;
  do {
    const int hi = at.stage;
    const uint32_t hi_parity = at.parity;
    at.advance();
    const uint64_t a_hi = wgmma_at(A_FORM, ring + hi * F::SLOT_BYTES),
                   b_hi = wgmma_at(B_FORM, shared + S_RING + hi * F::SLOT_BYTES + F::A_BYTES),
                   a_lo = wgmma_at(A_FORM, ring + at.stage * F::SLOT_BYTES),
                   b_lo = wgmma_at(B_FORM, shared + S_RING + at.stage * F::SLOT_BYTES + F::A_BYTES);
    mbarrier_wait_or_fault(shared + F::FULL + 8 * hi, hi_parity);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) Wgmma<F::BN>::template ss<1>(d, wgmma_further(a_hi, 32 * i), wgmma_further(b_hi, 512 * i), 1);
    wgmma_commit();
    if (k > 0)
      wgmma_wait<1>();
    else if (group == 0)
      wgmma_wait<0>();
    hand_over();
    if (k > 0) release_before(hi);  // the k-block before
    end_part();
    if (k + 1 < k_blocks || group == 0) take_turn();
    mbarrier_wait_or_fault(shared + F::FULL + 8 * at.stage, at.parity);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++)
      Wgmma<F::BN>::template ss<1>(d, wgmma_further(a_lo, 32 * i), wgmma_further(b_hi, 512 * i), i != 0);
#pragma unroll
    for (int i = 0; i < 4; i++) Wgmma<F::BN>::template ss<1>(d, wgmma_further(a_hi, 32 * i), wgmma_further(b_lo, 512 * i), 1);
    wgmma_commit();
    at.advance();
  } while (++k < k_blocks);
  end_part();
  release_before(at.stage);
}

/* Two vectors of a tile's columns: asked for before the products, put where the warpgroup reads them after. Meanwhile
   they lie in the boxes of its warps: the accumulators leave no registers for them. A warp has columns 32 w and, of a
   wide tile, 128 + 32 w and up. */
template <int BN>
struct ColumnVectors {
  static constexpr int EACH = (BN + 127) / 128;

  __device__ static __forceinline__ uint32_t box(uint32_t shared, int thread) { return shared + S_BOX + thread / 32 * BOX_BYTES; }

  // A lane copies four columns of one of them.
  __device__ static __forceinline__ void fetch(uint32_t shared, const float* a, const float* b) {
    const int thread = thread_index(), lane = thread % 32, column = lane / 16 * 128 + thread % 128 / 32 * 32 + lane % 8 * 4;
    if (column < BN) copy_async_16(box(shared, thread) + 16 * lane, (lane / 8 % 2 ? b : a) + column);
  }
  // a and b times what scale(column) says of each; returns where: pairs (a, b) of a column
  template <class Scale>
  __device__ static __forceinline__ uint32_t put(uint32_t shared, Scale scale) {
    const int thread = thread_index(), group = thread / 128;
    const uint32_t to = shared + S_VECTORS + group * (2 * WIDEST * 4), from = box(shared, thread) + thread % 32 * 4;
    copy_async_wait();
    named_barrier_sync(GROUP_BARRIER + group, 128);  // nobody reads the last ones any more
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int c = i * 128 + thread % 128;
      const auto value = [&](int at) { return __uint_as_float(load_shared_word(from + at)); };
      const float2 scales = scale(c);
      if (c < BN) store_shared_2(to + 8 * c, value(256 * i) * scales.x, value(256 * i + 128) * scales.y);
    }
    named_barrier_sync(GROUP_BARRIER + group, 128);
    return to;
  }
};

// What becomes of a product of D = 768 rows of B: out images (rows, n) = act(A B / scales + bias) * scale
struct ToImages {
  const float *inverses, *biases;
  unsigned char* out;
  int half, parity;  // of Scales
};
// enter() returns when the operands are there. What can be known before is found before: instructions that run for the first time come from far away. Of the
// units from `first` on, below `end`. OVER: the last tile of a row hangs over its end, where it multiplies what lies behind, and stores nothing.
template <class F, bool OVER = false, class Enter>
__device__ __forceinline__ void product_to_images(Ring<F::SLOTS>& at, uint32_t shared, int n, const ToImages& to, int rows, Enter enter, int first = 0,
                                                  int end = INT_MAX) {
  const int thread = thread_index(), warp = thread / 32, lane = thread % 32;
  Units<F> units(rows, n, D / 64, 1, first, end);
  int column = anew(units.column()), row = anew(units.row() + warp / 4 * 64);
  enter();
#pragma unroll 1
  while (units.more()) {
    using Vectors = ColumnVectors<F::BN>;
    Vectors::fetch(shared, to.inverses + column, to.biases + column);
    float d[F::BN / 2];
#pragma unroll
    for (int i = 0; i < F::BN / 2; i++) d[i] = 0.f;
    multiply<F>(d, at, shared, D / 64, thread, AddPart());
    const Scales scales = Scales::found(shared, to.half, to.parity);
    const float a_inverse = inverse(scales.norm), out_scale = scales.product;
    const auto scale_of = [&](int c) {
      const float scale = to.half ? 1.f : scales.of_column(column + c);
      return make_float2(a_inverse * scale, scale);
    };
    uint32_t pairs = Vectors::put(shared, scale_of) + lane % 4 * 16;
    // As many columns at a time as are within an image wherever a tile begins
    constexpr int PIECE = F::BN % 64 == 0 ? 64 : F::BN % 32 == 0 ? 32 : 16;
    unsigned char* out = to.out + activation_at(n / 64, row, column / 64, 0) + warp % 4 * BOX_BYTES;
    int chunk = column % 64 / 8;
    // Rolled up, the accumulators moving down: the instructions of all pieces at once would have to come from L2.
#pragma unroll 1
    for (int piece = 0; piece < F::BN / PIECE; piece++, pairs += 8 * PIECE) {
      if (OVER && column + piece * PIECE >= n) break;
      store_split<PIECE>(shared + S_BOX + warp * BOX_BYTES, out, out + 2 * IMAGE, lane, PIECE == 64 ? 0 : chunk, [&](int i, float(&x)[4]) {
        const float4 c = load_shared_4(pairs + i * 64);
#pragma unroll
        for (int u = 0; u < 4; u++) x[u] = fmaf(d[4 * i + u], u % 2 ? c.z : c.x, u % 2 ? c.w : c.y);
        if (to.half) {
#pragma unroll
          for (int u = 0; u < 4; u++) x[u] = gelu_exact(x[u]) * out_scale;
        }
      });
#pragma unroll
      for (int j = 0; j < (F::BN - PIECE) / 2; j++) d[j] = d[j + PIECE / 2];
      chunk = (chunk + PIECE / 8) % 8;
      if (PIECE == 64 || chunk == 0) out += 4 * IMAGE;
    }
    units.advance();
    if (!units.more()) break;
    column = units.column(), row = units.row() + warp / 4 * 64;
  }
}

// Where a unit of W_attn or W_proj lies.
template <class F>
struct Spot {
  int part, row, column;
  __device__ __forceinline__ explicit Spot(const Units<F>& units) : part(anew(units.part())), row(anew(units.row())), column(anew(units.column())) {}
};

// sum = A B without the scales of B, fp32, for a unit of W_attn or, if `proj`, of W_proj. `turn` is the caller's, 0 at first.
// ONE_CHUNK: no unit is longer than what has one set of scales, which are then undone in the sum, not in each part (1024 rows -3 us).
template <class F, bool ONE_CHUNK>
__device__ __forceinline__ void multiply_unit(float (&sum)[F::BN / 2], int& turn, Ring<F::SLOTS>& at, uint32_t shared, const ExactArgs& args,
                                              bool proj, int k_blocks, const Spot<F>& spot) {
  constexpr int CHUNK_BLOCKS = CHUNK / 64;
#pragma unroll
  for (int i = 0; i < F::BN / 2; i++) sum[i] = 0.f;
  // What undoes the scales of these columns in a part of K, in one of two places by turns
  const auto inverses = [&](int thread) { return shared + S_VECTORS + (thread / 128 * 2 + turn) * (WIDEST * 4); };
  const auto fetch_inverses = [&](int k) {
    const int chunk = (spot.part * k_blocks + k) / CHUNK_BLOCKS;
    if (const int thread = thread_index(); thread % 128 < F::BN / 4)
      copy_async_16(inverses(thread) + thread % 128 * 16,
                    Memory(args).vectors() + (proj ? V_INVERSE_PROJ : V_INVERSE_ATTN) + chunk * D + spot.column + thread % 128 * 4);
  };
  const auto await_inverses = [] {
    copy_async_wait();
    named_barrier_sync(GROUP_BARRIER + thread_index() / 128, 128);
  };
  const auto own_inverses = [&] { return inverses(thread_index()) + thread_index() % 4 * 8; };
  if constexpr (ONE_CHUNK) {
    fetch_inverses(0);
    multiply<F>(sum, at, shared, k_blocks, thread_index(), AddPart());
    await_inverses();
    const uint32_t pairs = own_inverses();
#pragma unroll
    for (int i = 0; i < F::BN / 8; i++) {
      const float2 c = load_shared_2(pairs + i * 32);
#pragma unroll
      for (int u = 0; u < 4; u++) sum[4 * i + u] *= u % 2 ? c.y : c.x;
    }
    turn ^= 1;
  } else {
#pragma unroll 1
    for (int k = 0; k < k_blocks; k += CHUNK_BLOCKS, turn ^= 1) {
      fetch_inverses(k);
      await_inverses();
      multiply<F>(sum, at, shared, min(CHUNK_BLOCKS, k_blocks), thread_index(), AddScaled<F::BN>(own_inverses()));
    }
  }
}

// partial(splits, rows, D) = A B / scales, fp32, each split its part of K: of W_attn or, if `proj`, of W_proj. enter() as above.
template <class F, class Enter>
__device__ __forceinline__ void product_to_parts(Ring<F::SLOTS>& at, uint32_t shared, const ExactArgs& args, bool proj, int splits, float a_inverse,
                                                 Enter enter) {
  int turn = 0;
  Units<F> units(padded_rows(args), D, proj ? FFN / 64 : D / 64, splits);
  Spot<F> spot(units);
  enter();
#pragma unroll 1
  while (units.more()) {
    float sum[F::BN / 2];
    multiply_unit<F, false>(sum, turn, at, shared, args, proj, units.k_blocks, spot);
    const int thread = thread_index(), row = spot.row + thread / 32 * 16 + thread % 32 / 4;
    float* to = Memory(args).partial() + (static_cast<size_t>(spot.part) * padded_rows(args) + row) * D + spot.column + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < F::BN / 8; i++)
#pragma unroll
      for (int r = 0; r < 2; r++)
        __stcg(reinterpret_cast<float2*>(to + 8 * i + 8 * r * D), make_float2(sum[4 * i + 2 * r] * a_inverse, sum[4 * i + 2 * r + 1] * a_inverse));
    units.advance();
    if (!units.more()) break;
    spot = Spot<F>(units);
  }
}

}  // namespace exact90
