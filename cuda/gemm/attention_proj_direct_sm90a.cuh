/* x1(rows, 768) fp32 = x + attention(qkv) W_attn + b_attn;  h(rows, 768) fp16 = LayerNorm(x1; gamma2, beta2), for rows
   that fit into one or two tiles of keys.

   So few rows that attention costs little: it is computed where it is consumed, again for every 96 columns, and needs
   no kernel and no trip through memory of its own. A cluster of four blocks has 64 rows x 96 columns, a block three
   heads of them: a warpgroup computes softmax(Q K^T) V of one head, then, over all three, 32 columns of the projection.
   The sums of the blocks meet in block `rank`, which finishes 16 rows and adds them in the order of the blocks: the
   same bits every time. LayerNorm's statistics go round as in epilogue_norm_sm90a.cuh.

   grid: ceil(rows / 64) * 8 * 4 blocks in clusters of 4, all resident at once; 384 threads; TOTAL bytes of shared
   memory. x, the vectors and weights that the predecessor has not cast are inputs: they are here before it ends. V
   comes behind Q and K, under the scores (0.4 us at 128 rows). The successors start only when all three are here, whose
   way their weights would take (1.5 us of the chain at 64 rows). Limiter: latency, of Q, K and V first, then of three
   exchanges. */
#pragma once
#include <cuda.h>
#include <cuda_fp16.h>

#include "common/cluster_sm90a.cuh"
#include "common/exp2.cuh"
#include "common/reduce.cuh"
#include "gemm/attention_proj_row_direct_sm90a.cuh"
#include "gemm/gemm_direct_sm90a.cuh"

template <int KEYS>
struct AttentionProj {
  static constexpr int BLOCKS = 4, GROUPS = HEADS / BLOCKS, THREADS = 128 * GROUPS;
  static constexpr int COLUMNS = 96, WIDE = COLUMNS / GROUPS, N_TILES = D / COLUMNS;  // WIDE: columns of a warpgroup
  // Of a head in shared memory. O takes the place of Q, what goes to other blocks that of K.
  static constexpr int Q = 0, K = 8192, V = K + KEYS * 128, HEAD_BYTES = V + KEYS * 128;
  static constexpr int DEPTH = GROUPS * HEAD_DIM, W_BYTES = DEPTH * WIDE * 2;  // a warpgroup's part of W_attn
  static constexpr int PIECE = 16 * WIDE * 4, PART = GROUPS * PIECE;           // what a warp, and a block, has of 16 rows
  static constexpr int WEIGHTS = GROUPS * HEAD_BYTES, INCOMING = WEIGHTS + GROUPS * W_BYTES, BARRIERS = INCOMING + BLOCKS * PART;
  static constexpr int TOTAL = BARRIERS + 8 * (2 * GROUPS + 2) + SHARED_ALIGNMENT;
  static_assert(TOTAL <= MOST_SHARED && GROUPS == 3 && 4 * PIECE <= KEYS * 128);

  const AttentionProjArgs& args;
  uint32_t base, mine, weights;             // `mine`: this warpgroup's head
  uint32_t loaded, received, packed_there;  // barriers; `loaded`: two, of V the second
  int group, thread, warp, lane, rank, row64, n;
  int first[2], last[2];  // keys that this thread's rows see, less its own first key

  __device__ __forceinline__ explicit AttentionProj(const AttentionProjArgs& args) : args(args) {
    base = shared_base();
    group = uniform_warp() / 4, thread = threadIdx.x % 128, warp = uniform_warp() % 4, lane = thread % 32;
    rank = static_cast<int>(cluster_rank());
    row64 = blockIdx.x / BLOCKS / N_TILES * 64, n = blockIdx.x / BLOCKS % N_TILES * COLUMNS;
    mine = base + group * HEAD_BYTES, weights = base + WEIGHTS + group * W_BYTES;
    loaded = base + BARRIERS + 16 * group, received = base + BARRIERS + 16 * GROUPS, packed_there = received + 8;
#pragma unroll
    for (int u = 0; u < 2; u++) {
      int query = row64 + 16 * warp + lane / 4 + 8 * u;
      if (query >= args.rows) query = 0;  // a row that nobody reads
      first[u] = query - query % args.seq_len, last[u] = args.causal ? query : first[u] + args.seq_len - 1;
      first[u] -= 2 * (lane % 4), last[u] -= 2 * (lane % 4);
    }
  }

  __device__ __forceinline__ void init(const CUtensorMap* qkv) const {
    prefetch_tensor_map(qkv);
    for (int i = 0; i < 2 * GROUPS; i++) mbarrier_init(base + BARRIERS + 8 * i, 1);
    mbarrier_init(received, 1 + THREADS / 4);  // this block's own warps beside the copies
    mbarrier_init(packed_there, GROUPS / LOADED);
    fence_mbarrier_init();
  }

  // This warpgroup's columns of W_attn for the block's heads, rounded and laid down as the copy engine would
  template <bool ALIGNED>
  __device__ __forceinline__ void convert() const {
    constexpr int ACROSS = WIDE / 4, DOWN = 128 / ACROSS, PIECES = DEPTH / DOWN;
    const int row = thread / ACROSS, four = thread % ACROSS;
    const float* from = args.weights + static_cast<size_t>(rank * DEPTH + row) * D + n + group * WIDE + 4 * four;
    const uint32_t to = weights + swizzle<64>(row, four / 2) + four % 2 * 8;
    float4 v[PIECES];
#pragma unroll
    for (int p = 0; p < PIECES; p++) v[p] = fetch_4<ALIGNED>(from + DOWN * p * D);
    HalfObservation<> look;
    Observation seen;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
      const uint32_t low = pack_half2(v[p].x, v[p].y), high = pack_half2(v[p].z, v[p].w);
      look.add(low, high);
      store_shared_words(to + p * DOWN * 64, low, high);
    }
    look.move_to(seen);
    fence_async_shared();
    if (args.alarms != nullptr) seen.report(args.alarms, MATRIX_ATTN, 32.f * 4 * PIECES);
  }

  // Of 128 keys one thread asks for all heads' Q and K, then V, so that they come in the order in which they are needed
  // (0.3 us, H100); of 64 each warpgroup's first one for its own.
  static constexpr int LOADED = KEYS == 64 ? 1 : GROUPS;  // heads
  __device__ __forceinline__ bool loads() const { return warp == 0 && (LOADED == 1 || group == 0); }
  __device__ __forceinline__ int loaded_group(int i) const { return LOADED == 1 ? group : i; }

  __device__ __forceinline__ void expect(bool packed) const {
    if (group == 0) mbarrier_expect(received, (BLOCKS - 1) * PART);
    if (packed) mbarrier_expect(packed_there, LOADED * W_BYTES);
#pragma unroll
    for (int i = 0; i < LOADED; i++) {
      mbarrier_expect(base + BARRIERS + 16 * loaded_group(i), 8192 + KEYS * 128);
      mbarrier_expect(base + BARRIERS + 16 * loaded_group(i) + 8, KEYS * 128);
    }
  }
  __device__ __forceinline__ void load(const CUtensorMap* qkv) const {
#pragma unroll
    for (int i = 0; i < LOADED; i++) {
      const int g = loaded_group(i), column = rank * DEPTH + g * HEAD_DIM;
      tma_load_2d(base + g * HEAD_BYTES + Q, qkv, column, row64, base + BARRIERS + 16 * g);
      for (int row = 0; row < KEYS; row += 64)
        tma_load_2d(base + g * HEAD_BYTES + K + row * 128, qkv, D + column, row, base + BARRIERS + 16 * g);
    }
#pragma unroll
    for (int i = 0; i < LOADED; i++) {
      const int g = loaded_group(i), column = rank * DEPTH + g * HEAD_DIM;
      for (int row = 0; row < KEYS; row += 64)
        tma_load_2d(base + g * HEAD_BYTES + V + row * 128, qkv, 2 * D + column, row, base + BARRIERS + 16 * g + 8);
    }
  }
  __device__ __forceinline__ void load_weights(const CUtensorMap* packed) const {
#pragma unroll
    for (int i = 0; i < LOADED; i++) {
      const int g = loaded_group(i);
      tma_load_2d(base + WEIGHTS + g * W_BYTES, packed, n + g * WIDE, rank * DEPTH, packed_there);
    }
  }

  // P, with the sums of its two rows: row lane / 4 of the warp's 16, and eight further
  __device__ __forceinline__ void scores(uint32_t (&p)[KEYS / 16][4], float (&sum)[2]) const {
    constexpr uint64_t K_MAJOR = wgmma_descriptor<128>(16, 1024);
    const uint64_t q = wgmma_at(K_MAJOR, mine + Q), keys = wgmma_at(K_MAJOR, mine + K);
    float s[KEYS / 2];
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) Wgmma<KEYS>::template ss<0>(s, wgmma_further(q, 32 * k), wgmma_further(keys, 32 * k), k != 0);
    wgmma_commit();
    wgmma_wait<0>();
    if (first[0] > 0 || first[1] > 0 || last[0] < KEYS - 1 || last[1] < KEYS - 1) {
#pragma unroll
      for (int i = 0; i < KEYS / 2; i++) {
        const int u = i / 2 % 2, key = i / 4 * 8 + i % 2;
        if (key < first[u] || key > last[u]) s[i] = -INFINITY;
      }
    }
    float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
#pragma unroll
    for (int u = 0; u < 2; u++) {
      top[u] = quad_max(top[u]);
      sum[u] = 0.f;
    }
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
      s[i] = exp2_approx((s[i] - top[i / 2 % 2]) * SCORE_SCALE);  // subtracted first: of large scores a product would leave its rounding, beyond fp16
      sum[i / 2 % 2] += s[i];
    }
#pragma unroll
    for (int u = 0; u < 2; u++) sum[u] = quad_sum(sum[u]);
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) p[i / 4][i % 4] = pack_half2(s[2 * i], s[2 * i + 1]);
  }

  // This head's O, into shared memory
  __device__ __forceinline__ void attend() const {
    constexpr uint64_t N_MAJOR = wgmma_descriptor<128>(8192, 1024);
    uint32_t p[KEYS / 16][4];
    float sum[2], o[32];
    scores(p, sum);
    mbarrier_wait(loaded + 8, 0);
    if (threadIdx.x == 0) pdl_launch();
    const uint64_t values = wgmma_at(N_MAJOR, mine + V);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) Wgmma<64>::rs<1>(o, p[k], wgmma_further(values, 2048 * k), k != 0);
    wgmma_commit();
    named_barrier_sync(1 + group, 128);  // Q and K are used up
    const float inverse[2] = {1.f / sum[0], 1.f / sum[1]};
    wgmma_wait<0>();
    const int row = 16 * warp + lane % 16;
#pragma unroll
    for (int i = 0; i < 8; i += 2)
      stmatrix_x4(mine + Q + swizzle<128>(row, i + lane / 16), pack_half2(o[4 * i] * inverse[0], o[4 * i + 1] * inverse[0]),
                  pack_half2(o[4 * i + 2] * inverse[1], o[4 * i + 3] * inverse[1]), pack_half2(o[4 * i + 4] * inverse[0], o[4 * i + 5] * inverse[0]),
                  pack_half2(o[4 * i + 6] * inverse[1], o[4 * i + 7] * inverse[1]));
    fence_async_shared();
  }

  // The block's summand of this warpgroup's columns, 16 rows by a warp, to the block that finishes those
  __device__ __forceinline__ void project() const {
    constexpr uint64_t K_MAJOR = wgmma_descriptor<128>(16, 1024), N_MAJOR = wgmma_descriptor<64>(8192, 512);
    const uint64_t o = wgmma_at(K_MAJOR, base + Q), w = wgmma_at(N_MAJOR, weights);
    float d[WIDE / 2];
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++)
      Wgmma<WIDE>::template ss<1>(d, wgmma_further(o, k / 4 * HEAD_BYTES + k % 4 * 32), wgmma_further(w, 1024 * k), k != 0);
    wgmma_commit();
    const bool stays = warp == rank;
    const uint32_t to = stays ? base + INCOMING + rank * PART + group * PIECE : mine + K + warp * PIECE;
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < WIDE / 8; i++) {
      const uint32_t at = to + place(lane / 4, 2 * i + lane % 4 / 2) + lane % 2 * 8;
      store_shared_2(at, d[4 * i], d[4 * i + 1]);
      store_shared_2(at + PIECE / 2, d[4 * i + 2], d[4 * i + 3]);
    }
    if (stays)
      mbarrier_arrive(received);
    else
      fence_async_shared();
    cluster_wait();  // every block of the cluster has its barriers
    __syncwarp();    // all lanes have laid down what one sends
    if (!stays && elect_one())
      cluster_copy(cluster_address(base + INCOMING + rank * PART + group * PIECE, warp), to, PIECE, cluster_address(received, warp));
  }
  // Of 16 bytes of a row of a piece; eight rows further: + PIECE / 2
  static __device__ __forceinline__ uint32_t place(int row, int chunk) { return row * (WIDE * 4) + ((chunk ^ (row & 7)) << 4); }
};

// `packed`: W_attn in fp16, (768, 768) in boxes of 32 columns x 192 rows, PREPARED or written by the predecessor; null
// where it is to be read in fp32
template <int KEYS, bool PREPARED = false>
__device__ __forceinline__ void attention_proj(const CUtensorMap* qkv, const CUtensorMap* packed,
                                               const AttentionProjArgs& args) {
  using A = AttentionProj<KEYS>;
  static_assert(A::N_TILES == 8 && A::WIDE == 32, "eight threads a row");
  const A block(args);
  if (uniform_warp() == 0 && elect_one()) block.init(qkv);
  AttentionProjRow<A> finished;
  finished.row = block.row64 + 16 * block.rank + threadIdx.x / 8, finished.column = block.n + threadIdx.x % 8 * 4;
  const bool finishes = threadIdx.x < 128;
  if (finishes) aligned_16(args.vectors) ? finished.template load<true>(args) : finished.template load<false>(args);
  if (packed == nullptr) aligned_16(args.weights) ? block.template convert<true>() : block.template convert<false>();
  __syncthreads();
  cluster_arrive();
  if (block.loads() && elect_one()) {
    block.expect(packed != nullptr);
    if (PREPARED) block.load_weights(packed);
    pdl_wait();
    block.load(qkv);
    if (!PREPARED && packed != nullptr) block.load_weights(packed);
  }
  __syncwarp();
  mbarrier_wait(block.loaded, 0);
  block.attend();
  if (packed != nullptr) mbarrier_wait(block.packed_there, 0);
  __syncthreads();
  block.project();
  if (finishes) {
    mbarrier_wait(block.received, 0);
    finished.finish(args, block.base + A::INCOMING + A::place(threadIdx.x / 8, threadIdx.x % 8));
    __syncwarp();
  }
  cluster_arrive();
  cluster_wait();  // the peers have what this block sent
}
