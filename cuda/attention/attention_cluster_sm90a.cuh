/* Attention where the two blocks of a cluster have the same query rows and half of the keys each. Units of 64 rows and
   half of the keys are small enough to go round: at 1024 rows 384 of them on 128 multiprocessors, three on each, where
   blocks of 128 rows would leave a quarter of the chip idle.

   The row groups of a block may belong to two heads (16 groups a head at 1024 rows are not a multiple of three), or to
   three where a sequence is one group; it then loads the keys of all. At the end each warp sends the other block's warp
   what it has of eight of its 16 rows, gets the same for the other eight, and finishes those. Two warps that attention
   leaves idle cast weights for later kernels. */
#pragma once
#include "attention/attention_sm90a.cuh"
#include "attention/cast_beside_sm90a.cuh"
#include "attention/lengths_sm90a.cuh"
#include "common/cluster_sm90a.cuh"

struct ClusterArgs {
  __half* att;  // (batch, seq_len, 768)
  int seq_len;
  RowGroups groups;
  CastArgs cast;  // the weights to cast
  const float2* longest;
};

// A warp's eight rows of 128 bytes, in two of its runs of 512 bytes among the received parts; swizzled, for the banks
__device__ __forceinline__ uint32_t staged(uint32_t part, int warp, int row, int chunk) {
  return part + 2048 * (row >> 2) + 512 * warp + 128 * (row & 3) + ((chunk ^ row) << 4);
}

// The first block finishes rows 0..7 of each warp's 16 rows, the second 8..15: registers r with (r >> 1) % 2 == half.
template <class T>
__device__ __forceinline__ void exchange_and_store(const AttentionConsumer<T>& c, __half* att) {
  const int half = blockIdx.x % 2, lane = c.lane(), thread = 32 * c.warp + lane;
  const uint32_t part = c.smem.partial(c.group), mine = part + 16 * thread, statistics = part + 8192 + 8 * thread;
  const auto& softmax = c.softmax;
  const float references[2] = {softmax.reference_of(0, c.sums[0]), softmax.reference_of(1, c.sums[1])};
  cluster_wait();  // the other block has its barriers
  const uint32_t there = cluster_address(mine, half ^ 1), barrier = cluster_address(c.smem.received(c.group), half ^ 1);
  cluster_store_2(cluster_address(statistics, half ^ 1), half ? references[0] : references[1], half ? c.sums[0] : c.sums[1], barrier);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float* o = c.o + 8 * i;
    cluster_store_4(there + 2048 * i, half ? make_float4(o[0], o[1], o[4], o[5]) : make_float4(o[2], o[3], o[6], o[7]), barrier);
  }
  const float reference = half ? references[1] : references[0], sum = half ? c.sums[1] : c.sums[0];
  cluster_wait_or_fault(c.smem.received(c.group), 0);
  const float2 other = load_shared_2(statistics);
  const float top = fmaxf(reference, other.x);
  const float weight = exp2_approx((reference - top) * SCORE_SCALE), other_weight = exp2_approx((other.x - top) * SCORE_SCALE);
  const float scale = reciprocal(weight * sum + other_weight * other.y);
  uint32_t packed[8];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float* o = c.o + 8 * i;
    const float4 from = load_shared_4(mine + 2048 * i);
    const float a = weight * scale, b = other_weight * scale;
    packed[2 * i] = pack_half2(a * (half ? o[2] : o[0]) + b * from.x, a * (half ? o[3] : o[1]) + b * from.y);
    packed[2 * i + 1] = pack_half2(a * (half ? o[6] : o[4]) + b * from.z, a * (half ? o[7] : o[5]) + b * from.w);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2; i++)
    stmatrix_x4(staged(part, c.warp, lane & 7, 4 * i + (lane >> 3)), packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int r = 4 * i + (lane >> 3), chunk = lane & 7, row = c.row + 16 * c.warp + 8 * half + r;
    const float4 out = load_shared_4(staged(part, c.warp, r, chunk));
    if (row < c.work.seq_len)
      *reinterpret_cast<float4*>(att + (static_cast<size_t>(c.work.sequence) * c.work.seq_len + row) * D + c.work.head * HEAD_DIM + 8 * chunk) = out;
  }
}

template <class T>
__device__ __forceinline__ void attention_cluster_block(const CUtensorMap* qkv, const ClusterArgs& args) {
  const AttentionSmem<T> smem = {shared_base()};
  const int warp = uniform_warp(), beside = warp - 4 * T::CONSUMERS;
  AttentionProducer<T> loads(qkv, smem);
  if (beside == T::PRODUCER) {
    loads.find(args.seq_len, args.groups);
  } else if (beside == T::HELPER) {
    if (elect_one()) {
      attention_init(smem, args.seq_len, args.groups);
      prefetch_tensor_map(qkv);
    }
    __syncwarp();
  }
  __syncthreads();
  cluster_arrive();
  // So that the producer's code follows upon the kernel's start: ptxas lays the second of two branches out first, and what follows each other as it is
  if (beside < 0) {
    registers_increase<T::CONSUMER_REGISTERS>();
    const AttentionWork work = attention_work<T>(args.seq_len, args.groups, warp >> 2);
    AttentionConsumer<T> consumer(smem, work, warp >> 2, warp & 3);
    consumer.run();
    exchange_and_store(consumer, args.att);
  } else {
    registers_decrease<T::PRODUCER_REGISTERS>();
    if (beside == T::PRODUCER && elect_one()) {
      loads.expect();
      pdl_wait();
      loads.run();
    }
    if (T::LENGTHS && beside == T::HELPER) tell_lengths(smem, args.seq_len, args.groups, args.longest);
    if (beside > T::PRODUCER && beside <= T::CAST_WARPS) {
      const int caster = beside - 1;
      cast_beside<T::CAST_PIECE, T::CAST_PLACES>(args.cast, smem.cast(caster), smem.cast_full(caster), caster * gridDim.x + blockIdx.x,
                                                 T::CAST_WARPS * gridDim.x);
    }
    __syncwarp();
    cluster_wait();
  }
}
