/* Attention of one block on Hopper: att = softmax(Q K^T / 8) V for each head of each sequence, causal or not.

   qkv (batch, seq_len, 2304) fp16 = Q | K | V, head i at columns 64 i; att (batch, seq_len, 768) fp16. Scores,
   statistics and O stay in fp32 registers, p is rounded to fp16 for the second product; nothing of size seq_len^2
   exists.

   A block has the 64 ROW_GROUPS query rows that attention_work names. One warp keeps a ring of K and V tiles full, one
   warpgroup for each 64 rows (or, with KEY_GROUPS, for each share of the keys of the same 64 rows) does the rest. The producer sits in a warpgroup of
   its own because registers are given to warpgroups: 32 or 40 for it, what remains for the consumers.

   Grid: see the .cu files. Threads and bytes of shared memory: THREADS and SMEM_BYTES of AttentionTile, 181 to 222 KB.

   Limiter: the tensor cores and the exponentials (16 a clock) need the same 8192 clk for 128 rows x 1024 keys, sum and pack a quarter as many issue
   slots; what is measured above that is their imperfect overlap. */
#pragma once
#include "attention/attention_output_sm90a.cuh"
#include "attention/cast_beside_sm90a.cuh"
#include "attention/lengths_sm90a.cuh"

// `cast`: for the warps that attention leaves idle
template <class T>
__device__ __forceinline__ void attention_block(const CUtensorMap* qkv, const CUtensorMap* att, int seq_len, const float2* longest,
                                                const CastArgs& cast) {
  const AttentionSmem<T> smem = {shared_base()};
  const int warp = uniform_warp(), beside = warp - 4 * T::CONSUMERS;
  AttentionProducer<T> loads(qkv, smem);
  if (beside == T::PRODUCER) {
    loads.find(seq_len, NO_CLUSTERS);
  } else if (beside == T::HELPER) {
    if (elect_one()) {
      attention_init(smem, seq_len, NO_CLUSTERS);
      prefetch_tensor_map(qkv);
      prefetch_tensor_map(att);
    }
    __syncwarp();
  }
  __syncthreads();
  if (beside < 0) {
    registers_increase<T::CONSUMER_REGISTERS>();
    const int own = uniform_warp();  // `warp` anew: held from the start on it would spill
    const AttentionWork work = attention_work<T>(seq_len, NO_CLUSTERS, T::KEY_GROUPS > 1 ? 0 : own >> 2);
    AttentionConsumer<T> consumer(smem, work, own >> 2, own & 3);
    consumer.run();
    if constexpr (T::KEY_GROUPS > 1)
      combine_and_store_output(consumer, att);
    else
      store_output(consumer, att);
    return;
  }
  registers_decrease<T::PRODUCER_REGISTERS>();
  if (beside == T::PRODUCER && elect_one()) {
    loads.expect();
    pdl_wait();
    loads.run();
  }
  if (T::LENGTHS && beside == T::HELPER) tell_lengths(smem, seq_len, NO_CLUSTERS, longest);
  if (!T::CAUSAL && beside > T::PRODUCER && beside <= T::CAST_WARPS) {
    const int caster = beside - 1, blocks = gridDim.x * gridDim.y * gridDim.z, block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    cast_beside<T::CAST_PIECE, T::CAST_PLACES>(cast, smem.cast(caster), smem.cast_full(caster), caster * blocks + block, T::CAST_WARPS * blocks);
  }
}
