/* Attention of many short sequences on sm_90a, causal or not: att(batch, seq_len, 768) fp16 = softmax(Q K^T / 8) V of qkv(batch, seq_len, 2304) fp16. A block
   of the other kernels has 64 queries of one sequence; here a warp has 16 queries of a head, of as many whole sequences as go into 16 rows, or of one of up
   to 32, and all their keys in registers (small/attention.cuh).
   attention_short_<rows>_f16. grid: a warp for each head and each 16 queries, four to a block. Limiter: latency, once a warp's 6 or 10 KB are asked for. */
#include "common/sync_sm90a.cuh"
#include "dims.h"
#include "small/attention.cuh"

namespace {

constexpr int BLOCK_WARPS = 4;

// Sequences of up to 16 MT rows
template <int MT>
__device__ __forceinline__ void attention_short(const __half* qkv, __half* att, int batch, int seq_len, bool causal) {
  using small::Keys;
  const int unit = blockIdx.x * BLOCK_WARPS + threadIdx.x / 32, head = unit % HEADS, tile = unit / HEADS;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int together = 16 * MT / seq_len, sequence = tile / MT * together, query = 16 * (tile % MT) + g;
  if (sequence >= batch) return;
  const int rows = min(together, batch - sequence) * seq_len;
  const Keys keys[2] = {Keys(query, rows, seq_len, causal), Keys(query + 8, rows, seq_len, causal)};
  const size_t first = static_cast<size_t>(sequence) * seq_len;
  const __half* const from = qkv + first * QKV + head * HEAD_DIM;
  const auto load = [from, rows](int row, int column) {
    return row < rows ? *reinterpret_cast<const uint4*>(from + row * QKV + column) : make_uint4(0, 0, 0, 0);
  };
  pdl_wait();
  pdl_launch();
  small::Operands<MT> in;
#pragma unroll
  for (int i = 0; i < 4; ++i) in.q[i] = load(query + i / 2 * 8, 32 * (i % 2) + 8 * t);
#pragma unroll
  for (int i = 0; i < 4 * MT; ++i) in.k[i] = load(in.key_of_k(i), D + 32 * (i % 2) + 8 * t);
#pragma unroll
  for (int i = 0; i < 4 * MT; ++i) in.v[i] = load(in.key_of_v(i), 2 * D + 8 * g);
  uint32_t a[4][4];
  small::attention<MT, 2>(in, keys, a);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (query + 8 * r >= rows) break;
    uint4* const to = reinterpret_cast<uint4*>(att + (first + query + 8 * r) * D + head * HEAD_DIM + 16 * t);
    to[0] = make_uint4(a[0][r], a[0][r + 2], a[1][r], a[1][r + 2]);
    to[1] = make_uint4(a[2][r], a[2][r + 2], a[3][r], a[3][r + 2]);
  }
}

}  // namespace

#define ATTENTION_SHORT(ROWS)                                                                             \
  extern "C" __global__ void __launch_bounds__(32 * BLOCK_WARPS)                                          \
      attention_short_##ROWS##_f16(const __half* qkv, __half* att, int batch, int seq_len, int causal) { \
    attention_short<ROWS / 16>(qkv, att, batch, seq_len, causal != 0);                                    \
  }

ATTENTION_SHORT(16)
ATTENTION_SHORT(32)
