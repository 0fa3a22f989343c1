/* QKV and attention of 641 to 1024 rows as one kernel: the six, seven or eight blocks of a cluster have a head, each 128 rows of it.

   A block multiplies its rows of h by the head's 3 x 64 columns of W_qkv, as gemm_qkv_128x192 does. Its Q, K and V, rounded to fp16, are turned into its own
   shared memory, where K and V are the first tile of keys that its queries meet. For the others they go to memory, and to the one before in the
   cluster straight into its shared memory, too, so that this has a second tile by the time that the others' may be read. These come through the ring that
   the product has left.

   What a copy has stored is there for copies of other multiprocessors when the storing thread has waited for its end and then released it, 0.5 + 0.75 us; a
   warp of its own does that, under the attention of the own tile. Who waits for a block's tile is told by a barrier of its own, so that tiles come as they are
   ready. Two more warps, one for each 64 rows, tell all blocks how long the longest of the keys is, and their own how long the longest query.

   att lies where Q would in qkv (rows, 2304): other heads may still be reading h.

   Grid: qkv_attention_sm90a.cu; QkvAttentionSmem::TOTAL bytes of shared memory.
   Limiter: as of the two kernels, on 72, 84 or 96 multiprocessors; against two kernels it saves their edge, Q, K and V on their way through L2 for the most
   part, and the exchange between the halves of the keys. */
#pragma once
#include "attention/attention_output_sm90a.cuh"
#include "attention/qkv_attention_consumer_sm90a.cuh"
#include "cast/cast_sm90a.cuh"
#include "common/cluster_sm90a.cuh"
#include "gemm/longest_rows_sm90a.cuh"

struct QkvAttentionArgs {
  int seq_len, working;  // blocks that do not cast
  CastArgs cast;
};

// The squares of 16 rows of 64 halves, by a warp: each is two lanes'
__device__ __forceinline__ float squares_of_16(uint32_t rows, int lane) {
  const float half = half_row_squares<64>(rows, lane / 2, lane % 2 * 4);
  return half + __shfl_xor_sync(~0u, half, 1);
}

template <int HEAD_BLOCKS>
struct QkvAttention {
  static_assert(2 < HEAD_BLOCKS && HEAD_BLOCKS <= MOST_HEAD_BLOCKS);  // of two, none would say that a slot is taken
  using T = QkvAttentionTile;
  using S = QkvHeadShape;
  // Of `drained`, for the thread that has waited for all phases but the last
  static constexpr int ALL_DRAINED = (S::K_BLOCKS / S::STAGES - 1) % 2, TURNED_BARRIER = 6;
  static_assert(S::K_BLOCKS % S::STAGES == 0);

  const CUtensorMap *h, *weights, *qkv;
  const QkvAttentionArgs& args;
  QkvAttentionSmem smem;
  int head, rank;

  __device__ __forceinline__ void init() const {
    init_barriers<T>(smem, {T::ROW_GROUPS, T::ROW_GROUPS}, 0);
    for (int s = 0; s < S::STAGES; s++) {
      mbarrier_init(smem.full(s), 1);
      mbarrier_init(smem.drained(s), S::WARPGROUPS);
    }
    for (int g = 0; g < T::ROW_GROUPS; g++) mbarrier_init(smem.turned(g), 4);  // by warp
    mbarrier_init(smem.wanted(), 1);
    mbarrier_init(smem.taken(), 1);
    for (int i = 0; i < HEAD_BLOCKS; i++) mbarrier_init(smem.published(i), 1);
    fence_mbarrier_init();
    mbarrier_expect(smem.measured(), T::ROW_GROUPS * (HEAD_BLOCKS + 1) * sizeof(float));
    for (int i = T::ROW_GROUPS * HEAD_BLOCKS; i < T::KEY_SQUARES; i++) store_shared(smem.squares(i), 0);
    prefetch_tensor_map(h);
    prefetch_tensor_map(weights);
    prefetch_tensor_map(qkv);
  }

  __device__ __forceinline__ int column(int matrix) const { return matrix * D + head * HEAD_DIM; }

  // ---- the thread that asks for tiles

  __device__ __forceinline__ void load_stage(int stage, int k_block) const {
    const uint32_t to = smem.ring() + stage * S::STAGE_BYTES;
    tma_load_2d(to, h, k_block * S::DEPTH, rank * S::BM, smem.full(stage));
    tma_load_4d_once(to + S::A_BYTES, weights, 0, k_block * S::DEPTH, head, 0, smem.full(stage), evict_first_policy());
  }

  __device__ __forceinline__ void multiply() const {
#pragma unroll
    for (int s = 0; s < S::STAGES; s++) mbarrier_expect(smem.full(s), S::STAGE_BYTES);
    pdl_wait();
    pdl_launch();
    // Not all at once: the first of a cluster that starts late would queue behind the last of all others (H200: 900 rows -0.5, 1024 -0.1).
    constexpr uint32_t CLOCKS_A_STAGE = 500;
    const uint32_t start = clock_low();
#pragma unroll
    for (int s = 0; s < S::STAGES; s++) {
      while (s > 0 && clock_low() - start < s * CLOCKS_A_STAGE) {
      }
      load_stage(s, s);
    }
    Ring<S::STAGES> at;
    for (int k_block = S::STAGES; k_block < S::K_BLOCKS; k_block++, at.advance()) {
      mbarrier_wait_or_fault(smem.drained(at.stage), at.parity);
      mbarrier_expect(smem.full(at.stage), S::STAGE_BYTES);
      load_stage(at.stage, k_block);
    }
  }

  __device__ __forceinline__ void load_keys(int matrix, int tile, uint32_t to, uint32_t barrier) const {
    mbarrier_expect(barrier, T::KV_BYTES);
    load_rows<T::KEYS, T::READ_ONCE>(to, qkv, column(matrix), tile * T::KEYS, 0, barrier);
  }

  __device__ __forceinline__ int next() const { return (rank + 1) % HEAD_BLOCKS; }

  // No copy reads the own tile any more, and nobody speaks to this block once it may end. published(rank): the own stores have ended; taken: the neighbour
  // has its copy; published(next()): the one signal that attend() does not wait for.
  __device__ __forceinline__ void leave_own() const {
    mbarrier_wait_or_fault(smem.published(rank), 0);
    mbarrier_wait_or_fault(smem.published(next()), 0);
    mbarrier_wait_or_fault(smem.taken(), 0);
  }

  __device__ __forceinline__ void attend() const {
    mbarrier_wait_or_fault(smem.drained(0), ALL_DRAINED);
    mbarrier_expect(smem.k_full(1), T::KV_BYTES);
    mbarrier_expect(smem.v_full(1), T::KV_BYTES);
    cluster_signal(cluster_address(smem.wanted(), next()));
    for (int s = 1; s < S::STAGES; s++) mbarrier_wait_or_fault(smem.drained(s), ALL_DRAINED);
    Ring<T::STAGES> ring;
    ring.advance();
    ring.advance();
    for (int i = 2; i < HEAD_BLOCKS; i++, ring.advance()) {
      const int tile = (rank + i) % HEAD_BLOCKS;
      cluster_wait_or_fault(smem.published(tile), 0);
      fence_async_global();  // the copy engine reads what the wait has acquired
      if (i == T::STAGES) leave_own();
      if (i >= T::STAGES) mbarrier_wait_or_fault(smem.empty(ring.stage), 0);
      load_keys(1, tile, smem.k(ring.stage), smem.k_full(ring.stage));
      load_keys(2, tile, smem.v(ring.stage), smem.v_full(ring.stage));
      if (i == 2) {
        mbarrier_wait_or_fault(smem.k_full(1), 0);
        mbarrier_wait_or_fault(smem.v_full(1), 0);
        cluster_signal(cluster_address(smem.taken(), next()));
      }
    }
    if (HEAD_BLOCKS <= T::STAGES) leave_own();
  }

  // ---- the warp that hands on the own tile

  __device__ __forceinline__ void hand_on(uint32_t from, uint32_t to, uint32_t full, int before) const {
    cluster_copy(cluster_address(to, before), from, 64 * 128, cluster_address(full, before));
  }

  __device__ __forceinline__ void publish() const {
    const uint32_t lane = threadIdx.x % 32, before = (rank + HEAD_BLOCKS - 1) % HEAD_BLOCKS;
#pragma unroll
    for (int g = 0; g < T::ROW_GROUPS; g++) {
      const int at = 64 * 128 * g, row = rank * T::ROWS + 64 * g;
      mbarrier_wait_or_fault(smem.turned(g), 0);
      if (!elect_one()) continue;
      tma_store_3d(qkv, smem.k(0) + at, column(1), row, 0);
      tma_store_3d(qkv, smem.v(0) + at, column(2), row, 0);
      if (g == 0) mbarrier_wait_or_fault(smem.wanted(), 0);
      hand_on(smem.k(0) + at, smem.k(1) + at, smem.k_full(1), before);
      hand_on(smem.v(0) + at, smem.v(1) + at, smem.v_full(1), before);
      bulk_commit();
    }
    __syncwarp();
    if (elect_one()) {
      bulk_wait<0>();
      fence_async_global();
    }
    __syncwarp();
    if (lane < HEAD_BLOCKS) cluster_signal_released(cluster_address(smem.published(rank), lane));
  }

  // ---- the warps that tell all blocks how long a warpgroup's keys are, and the own how long its queries

  __device__ __forceinline__ void measure(int group) const {
    const int lane = threadIdx.x % 32, rows = 64 * 128 * group;
    mbarrier_wait_or_fault(smem.turned(group), 0);
    mbarrier_wait_or_fault(smem.q_full(group), 0);
    float key = 0, query = 0;
#pragma unroll 1
    for (int at = rows; at < rows + 64 * 128; at += 16 * 128) {
      key = larger(key, squares_of_16(smem.k(0) + at, lane));
      query = larger(query, squares_of_16(smem.q() + at, lane));
    }
    key = warp_largest(key);
    query = warp_largest(query);
    if (lane < HEAD_BLOCKS)
      cluster_store(cluster_address(smem.squares(T::ROW_GROUPS * rank + group), lane), key, cluster_address(smem.measured(), lane));
    if (lane == 0) cluster_store(cluster_address(smem.squares(T::KEY_SQUARES + group), rank), query, cluster_address(smem.measured(), rank));
  }

  // ---- the warpgroups

  // Accumulators become rows of K, V and Q. K and V first, for which others wait.
  __device__ __forceinline__ void turn(const float (&d)[S::BN / 2], int group, int warp) const {
    const int lane = threadIdx.x % 32, row = 64 * group + 16 * warp + lane % 16;
    const uint32_t places[3] = {smem.q(), smem.k(0), smem.v(0)};
#pragma unroll
    for (int i = 0; i < 3; i++) {
      const int matrix = (i + 1) % 3;
#pragma unroll
      for (int c = 0; c < 8; c += 2) {  // two groups of 8 columns make one stmatrix
        uint32_t packed[4];
#pragma unroll
        for (int u = 0; u < 2; u++) {
          const float* x = d + 4 * (8 * matrix + c + u);
          packed[2 * u] = pack_half2(x[0], x[1]);
          packed[2 * u + 1] = pack_half2(x[2], x[3]);
        }
        stmatrix_x4(places[matrix] + swizzle<128>(row, c + lane / 16), packed[0], packed[1], packed[2], packed[3]);
      }
      if (i == 0) continue;
      fence_async_shared();
      __syncwarp();
      if (i == 1 && elect_one()) mbarrier_arrive(smem.turned(group));
    }
  }

  __device__ __forceinline__ void project(int group, int warp) const {
    float d[S::BN / 2];
    // The sums begin with the caller's biases, which need no wait.
    const float* biases = args.cast.weights + B_QKV + threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < 3; m++) begin_with_input<HEAD_DIM / 8>(biases + column(m), d + HEAD_DIM / 2 * m);
    Ring<S::STAGES> at;
    multiply_tile<S, true>(d, at, smem.ring(), smem.full(0), smem.drained(0), group, group, [](int) {});
    turn(d, group, warp);
  }

  __device__ __forceinline__ void consume(int group, int warp) const {
    AttentionWork work;
    work.head = head;
    work.sequence = work.first = work.stream = 0;
    work.row = rank * T::ROWS + 64 * group;
    work.seq_len = args.seq_len;
    work.tiles = HEAD_BLOCKS;
    work.streams = 1;
    const QkvAttentionSmem same = {{__shfl_sync(~0u, smem.base, 0)}};  // in a way that ptxas knows to be so for all lanes, see uniform_warp()
    QkvAttentionConsumer consumer(same, work, group, warp);
    project(group, warp);
    named_barrier_sync(TURNED_BARRIER, 128 * T::CONSUMERS);
    if (warp == 0 && elect_one()) {
      mbarrier_arrive(smem.q_full(group));
      mbarrier_arrive(group == 0 ? smem.k_full(0) : smem.v_full(0));
    }
    consumer.run();
    store_output(consumer, qkv);
  }

  __device__ __forceinline__ void run() const {
    const int warp = uniform_warp();
    if (warp == 4 * T::CONSUMERS && elect_one()) init();
    __syncthreads();
    cluster_arrive();
    cluster_wait();  // all barriers are there
    if (warp < 4 * T::CONSUMERS) {
      registers_increase<T::CONSUMER_REGISTERS>();
      consume(warp / 4, warp % 4);
      return;
    }
    registers_decrease<T::PRODUCER_REGISTERS>();
    if (warp == 4 * T::CONSUMERS) {
      if (elect_one()) {
        multiply();
        attend();
      }
    } else if (warp == 4 * T::CONSUMERS + 1) {
      publish();
    } else {
      const int group = warp - 4 * T::CONSUMERS - 2;
      measure(group);
      if (group == 0) {  // tells who casts that W_qkv has been read: not by `drained`, whose first phase looks like its last to who has not counted them
        for (int g = 0; g < T::ROW_GROUPS; g++) mbarrier_wait_or_fault(smem.turned(g), 0);
        if (elect_one()) add_released(args.cast.alarms + ALARMS_QKV_READ, 1);
      }
    }
  }
};

template <int HEAD_BLOCKS>
__device__ __forceinline__ void qkv_attention_block(const CUtensorMap* h, const CUtensorMap* weights, const CUtensorMap* qkv, const QkvAttentionArgs& args) {
  if (blockIdx.x >= args.working) {
    constexpr int STAGES = cast_stages(QkvAttentionSmem::TOTAL);
    cast_role<QkvAttentionTile::THREADS, STAGES, 64, false, HEADS * HEAD_BLOCKS>(args.cast, shared_base(), blockIdx.x - args.working,
                                                                                 gridDim.x - args.working);
    return;
  }
  QkvAttention<HEAD_BLOCKS>{h, weights, qkv, args, {{shared_base()}}, static_cast<int>(blockIdx.x / HEAD_BLOCKS), static_cast<int>(cluster_rank())}.run();
}
