/* How the blocks of a cluster, each of which has a tile's sums over its part of K, add them up: each finishes some of the tile's rows. Limiter: 16 bytes a
   clock from block to block. */
#pragma once

#include "common/cluster_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "exact/exact_memory_sm90a.cuh"

namespace exact90 {

template <int WARPS_, int BN_, int SPLITS_>
struct Exchange {
  static constexpr int WARPS = WARPS_, BN = BN_, SPLITS = SPLITS_;  // warps of 16 rows and BN columns each; blocks
  // What a warp has of a tile is one or more pieces. Of a cluster's tile each block finishes OWN pieces, a warp of it OCTETS x 8 columns.
  static constexpr int PIECES = SPLITS > WARPS ? SPLITS / WARPS : 1, PIECE = 16 * BN * 4 / PIECES, OWN = WARPS * PIECES / SPLITS;
  static constexpr int OCTETS = BN / 8 / SPLITS, EACH = SPLITS > 1 ? WARPS / OWN : 1;  // EACH: warps that finish a piece
  // Shared memory: what goes to the others, what comes from them; and who arrives at the barrier that counts what comes
  static constexpr int INCOMING = WARPS * PIECES * PIECE, BYTES = INCOMING + SPLITS * OWN * PIECE, ARRIVALS = 1 + 32 * OWN;
};

// By one thread, before all else
template <class E>
__device__ __forceinline__ void expect_sums(uint32_t received) {
  mbarrier_expect(received, (E::SPLITS - 1) * E::OWN * E::PIECE);
}

// What the blocks add up to, in the order of their ranks: of OCTETS x 8 columns of 16 rows. All threads of the cluster meet twice: when they have left what
// lies from `base` on, and when what was sent has come, where the wait is the caller's. meanwhile() comes when all is sent.
template <class E, class Meanwhile>
__device__ __forceinline__ void exchange_sums(float (&all)[4 * E::OCTETS], const float (&sum)[E::BN / 2], uint32_t base, uint32_t received, int warp,
                                              int rank, Meanwhile meanwhile) {
  constexpr int QUADS = E::BN / 8 / E::PIECES;  // accumulators by fours that a lane has of a piece
  const int lane = threadIdx.x % 32;
  const uint32_t incoming = base + E::INCOMING;
  cluster_arrive();
  cluster_wait();  // all blocks have their barriers, and all warps have left the rings
#pragma unroll
  for (int p = 0; p < E::PIECES; p++) {
    const int piece = warp * E::PIECES + p, to = piece / E::OWN;
    const uint32_t there = incoming + (rank * E::OWN + piece % E::OWN) * E::PIECE, here = to == rank ? there : base + piece * E::PIECE;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
      const float* const v = sum + 4 * (QUADS * p + i);
      store_shared_4(here + 512 * i + 16 * lane, make_float4(v[0], v[1], v[2], v[3]));
    }
    if (to == rank) {
      mbarrier_arrive(received);
    } else {
      fence_async_shared();
      __syncwarp();
      if (elect_one()) cluster_copy(cluster_address(there, to), here, E::PIECE, cluster_address(received, to));
      __syncwarp();
    }
  }
  meanwhile();
  mbarrier_wait_or_fault(received, 0);
  cluster_arrive();
  const uint32_t from = incoming + warp / E::EACH * E::PIECE + warp % E::EACH * (512 * E::OCTETS) + 16 * lane;
#pragma unroll
  for (int i = 0; i < E::OCTETS; i++) {
    float4 v = load_shared_4(from + 512 * i);
#pragma unroll
    for (int p = 1; p < E::SPLITS; p++) {
      const float4 u = load_shared_4(from + p * (E::OWN * E::PIECE) + 512 * i);
      v = make_float4(v.x + u.x, v.y + u.y, v.z + u.z, v.w + u.w);
    }
    all[4 * i] = v.x, all[4 * i + 1] = v.y, all[4 * i + 2] = v.z, all[4 * i + 3] = v.w;
  }
}
// The threads that have no sums
__device__ __forceinline__ void stand_by() {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    cluster_arrive();
    cluster_wait();
  }
}

}  // namespace exact90
