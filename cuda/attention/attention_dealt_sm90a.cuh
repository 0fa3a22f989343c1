/* A block of attention whose work is dealt out (attention_dealt_tile_sm90a.cuh): as attention_block, piece by piece. */
#pragma once
#include "attention/attention_dealt_tile_sm90a.cuh"
#include "attention/attention_sm90a.cuh"

struct DealtArgs {
  Dealing dealing;
  unsigned* flags;  // whether a share's part is there: zeros, to which whoever has read it resets it
  uint8_t* parts;   // of each share
  CastArgs cast;
  const float2* longest;
};

// The squares of the longest query and key of each head
__device__ __forceinline__ void tell_all_lengths(const DealtSmem& smem, const float2* longest) {
  const int head = threadIdx.x % 32;
  pdl_wait();
  if (head >= HEADS) return;
  const float2 query = __ldcg(longest + longest_at(2 * head) / 2), key = __ldcg(longest + longest_at(2 * (HEADS + head)) / 2);
  store_shared(smem.squares(head), (query.x + query.y) * (key.x + key.y));
  mbarrier_arrive(smem.measured());
}

// Keeps the ring full, and brings the parts of others into it at the end
struct DealtProducer {
  using T = DealtTile;
  const CUtensorMap* qkv;
  const DealtSmem& smem;
  const DealtArgs& args;
  DealtShare share;

  __device__ __forceinline__ void load_q(const AttentionWork& piece, int g) const {
    const AttentionWork work = share.of_group(piece, g);
    mbarrier_expect(smem.q_full(g), 64 * 128);
    load_rows<64, T::READ_ONCE>(smem.q() + g * 8192, qkv, work.head * HEAD_DIM, work.row, work.sequence, smem.q_full(g));
  }
  __device__ __forceinline__ void load_keys(const AttentionWork& piece, int stream, int matrix, uint32_t to, uint32_t barrier) const {
    asm volatile("" : "+r"(stream));  // else the heads of both are held, and spilled
    const AttentionWork work = stream == 0 ? piece : DealtShare::next_head(piece);
    mbarrier_expect(barrier, T::KV_BYTES);
    load_rows<T::KEYS, T::READ_ONCE>(to, qkv, matrix * D + work.head * HEAD_DIM, work.tiles * T::KEYS, work.sequence, barrier);
  }

  __device__ __forceinline__ void run() const {
    Ring<T::STAGES> ring;
    uint32_t q_parity = 1;  // of a barrier that nobody has arrived at yet, the phase before has ended
    int at = share.start();
    for (bool more = true; more;) {
      AttentionWork work = share.piece(at);
      at += work.tiles - work.first;
      more = at < share.end();
      bool begun = false;
      while (--work.tiles >= work.first) {
#pragma unroll 1
        for (int stream = 0; stream < work.streams; stream++, ring.advance()) {
          mbarrier_wait_or_fault(smem.empty(ring.stage), ring.parity ^ 1);
          load_keys(work, stream, 1, smem.k(ring.stage), smem.k_full(ring.stage));
          if (!begun) {
#pragma unroll 1
            for (int g = 0; g < T::ROW_GROUPS; g++) {
              mbarrier_wait_or_fault(smem.q_empty(g), q_parity);
              load_q(work, g);
            }
            // Behind the wait, so that the projection behind may rely on all weights that were cast before attention
            pdl_launch();
            begun = true;
          }
          load_keys(work, stream, 2, smem.v(ring.stage), smem.v_full(ring.stage));
        }
      }
      q_parity ^= 1;
    }
    const int parts = share.parts();
    for (int i = 1; i <= parts; i++) {
      unsigned* flag = args.flags + share.number + i;
      for (uint32_t tries = 0; load_acquire(flag) == 0;) bound<MOST_TRIES>(++tries);
      *flag = 0;             // for the next call: in this one nobody else looks at it
      fence_async_global();  // the part was written by ordinary stores, and the copy engine reads it
      mbarrier_wait_or_fault(smem.empty(ring.stage), ring.parity ^ 1);
      mbarrier_expect(smem.k_full(ring.stage), PART_BYTES);
      bulk_load(smem.k(ring.stage), args.parts + static_cast<size_t>(share.number + i) * PART_BYTES, PART_BYTES, smem.k_full(ring.stage));
      ring.advance();
    }
  }
};

struct DealtConsumer : AttentionConsumer<DealtTile> {
  using T = DealtTile;
  __device__ __forceinline__ DealtConsumer(const DealtSmem& smem, const AttentionWork& work, int group, int warp, Ring<T::STAGES> ring)
      : AttentionConsumer(smem, work, group, warp) {
    now = ring;
    if (work.stream > 0) now.advance();
    asm volatile("" : "+r"(tile));
  }

  // Leaves O, rounded, and what it is to be weighed by to the block that finishes the unit
  __device__ __forceinline__ void leave(uint8_t* part) const {
    uint8_t* const to = part + group * PART_GROUP_BYTES + (32 * warp + lane()) * 16;
    const float scale[2] = {reciprocal(sums[0]), reciprocal(sums[1])};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float* v = o + 8 * i;
      *reinterpret_cast<uint4*>(to + 2048 * i) =
          make_uint4(pack_half2(v[0] * scale[0], v[1] * scale[0]), pack_half2(v[2] * scale[1], v[3] * scale[1]),
                     pack_half2(v[4] * scale[0], v[5] * scale[0]), pack_half2(v[6] * scale[1], v[7] * scale[1]));
    }
    *reinterpret_cast<float4*>(to + PART_ROWS_BYTES) = make_float4(softmax.reference_of(0, sums[0]), softmax.reference_of(1, sums[1]), sums[0], sums[1]);
  }

  // Adds the part of another block
  __device__ __forceinline__ void add_part() {
    mbarrier_wait_or_fault(smem.k_full(now.stage), now.parity);
    const uint32_t from = smem.k(now.stage) + group * PART_GROUP_BYTES + (32 * warp + lane()) * 16;
    const float4 other = load_shared_4(from + PART_ROWS_BYTES);
    const float references[2] = {other.x, other.y}, more[2] = {other.z, other.w};
    float weight[2], others[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float own = softmax.reference_of(h, sums[h]), top = fmaxf(own, references[h]);
      weight[h] = exp2_approx((own - top) * SCORE_SCALE);
      others[h] = exp2_approx((references[h] - top) * SCORE_SCALE) * more[h];
      softmax.reference[h] = top;
      sums[h] = weight[h] * sums[h] + others[h];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint32_t v[4];
      load_shared_words(from + 2048 * i, v);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&v[j]));
        float* const to = o + 8 * i + 2 * j;
        to[0] = weight[j % 2] * to[0] + others[j % 2] * pair.x;
        to[1] = weight[j % 2] * to[1] + others[j % 2] * pair.y;
      }
    }
    fence_async_shared();  // else the arrival passes these loads (mbarrier_arrive)
    __syncwarp();
    release(now.stage);
    now.advance();
  }
};

__device__ __forceinline__ void attend_dealt(const DealtSmem& smem, const CUtensorMap* att, const DealtArgs& args, DealtShare share, int group, int warp) {
  using T = DealtTile;
  Ring<T::STAGES> ring;
  int at = share.start();
  uint32_t q_parity = 0;
#pragma unroll 1
  while (true) {
    const AttentionWork work = share.of_group(share.piece(at), group);
    AttentionWork mine = work;
    mine.tiles -= work.first;  // counted from the share's first one (first_key())
    DealtConsumer consumer(smem, mine, group, warp, ring);
    consumer.run(q_parity);
    consumer.release(consumer.now.stage);
    // Behind the last tile of the last stream, from where on all groups go together
    for (int i = mine.stream; i < mine.streams; i++) consumer.now.advance();
    mine.users = 1;  // all groups read the parts of other blocks
    ring = consumer.now;
    if (work.tiles < args.dealing.key_tiles) {
      consumer.leave(args.parts + static_cast<size_t>(share.number) * PART_BYTES);
      mbarrier_arrive(smem.parted());
    } else {
      if (work.first > 0)
        for (int parts = share.parts(); parts > 0; parts--) consumer.add_part();
      store_output(consumer, att);
    }
    at += work.tiles - work.first;
    if (at >= share.end()) return;
    q_parity ^= 1;
    __syncwarp();
    if (elect_one()) mbarrier_arrive(smem.q_empty(group));
    named_barrier_sync(1 + 2 * T::CONSUMERS, 128 * T::CONSUMERS);  // so that nobody is a turn ahead
  }
}

__device__ __forceinline__ void attention_dealt_block(const CUtensorMap* qkv, const CUtensorMap* att, const DealtArgs& args) {
  using T = DealtTile;
  const DealtSmem smem = {shared_base()};
  const int warp = uniform_warp(), beside = warp - 4 * T::CONSUMERS;
  const DealtShare share = {args.dealing, static_cast<int>(gridDim.x - 1 - blockIdx.x)};
  if (beside == T::HELPER) {
    if (elect_one()) {
#pragma unroll
      for (int g = 0; g < T::ROW_GROUPS; g++) mbarrier_init(smem.q_empty(g), 4);
      mbarrier_init(smem.parted(), 128 * T::CONSUMERS);
      init_barriers(smem, {T::ROW_GROUPS, T::ROW_GROUPS}, 0);
      prefetch_tensor_map(qkv);
      prefetch_tensor_map(att);
    }
    __syncwarp();
  }
  __syncthreads();
  if (beside < 0) {
    registers_increase<T::CONSUMER_REGISTERS>();
    const int own = uniform_warp();  // `warp` anew: held from the start on it would spill
    attend_dealt(smem, att, args, share, own >> 2, own & 3);
    return;
  }
  registers_decrease<T::PRODUCER_REGISTERS>();
  if (beside == T::PRODUCER) {
    if (elect_one()) {
      pdl_wait();
      DealtProducer{qkv, smem, args, share}.run();
    }
    return;  // `beside` held until here would spill
  }
  if (beside == T::HELPER) {
    tell_all_lengths(smem, args.longest);
    if (share.start() % args.dealing.key_tiles != 0) {
      mbarrier_wait_or_fault(smem.parted(), 0);
      if (elect_one()) {
        __threadfence();
        store_released(args.flags + share.number, 1);
      }
    }
  }
  if (beside <= T::CAST_WARPS) {
    const int caster = beside - 1;
    cast_beside<T::CAST_PIECE, T::CAST_PLACES>(args.cast, smem.cast(caster), smem.cast_full(caster), caster * gridDim.x + blockIdx.x,
                                               T::CAST_WARPS * gridDim.x);
  }
}
