/* The exact block as a chain of launches with programmatic edges: seven, straight from the fp32 weights. Each kernel's arguments are those of the whole. */
#include "exact/chain_attention_sm90a.cuh"
#include "exact/chain_epilogues_sm90a.cuh"
#include "exact/chain_memory_sm90a.cuh"
#include "exact/chain_norm_sm90a.cuh"
#include "exact/chain_product_sm90a.cuh"

using namespace exact90;

// grid: rows / 2
extern "C" __global__ void __launch_bounds__(NORM_THREADS) exact_chain_norm1(const ExactArgs args) {
  const ChainMemory memory(args);
  chain_norm(args.x, memory.weights + GAMMA1, memory.h(), args.rows);
}
extern "C" __global__ void __launch_bounds__(NORM_THREADS) exact_chain_norm2(const ExactArgs args) {
  const ChainMemory memory(args);
  chain_norm(memory.x1(), memory.weights + GAMMA2, memory.h(), args.rows);
}

// grid: (HEADS, rows / 64)
extern "C" __global__ void __launch_bounds__(ChainAttention::THREADS) exact_chain_attention(const ExactArgs args) {
  const ChainMemory memory(args);
  chain_attention(args, memory.qkv(), memory.h());
}

// The products, in tiles of 64 WARPGROUPS rows and BN columns, with K in SPLITS parts. grid: (N / BN * SPLITS, rows / tile)
#define CHAIN_PRODUCT(NAME, N, K, WARPGROUPS, BN, SPLITS, LEFT, WEIGHTS, ...)                                                                      \
  extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(ChainShape<N, K, WARPGROUPS, BN, SPLITS>::THREADS, 1)                \
      exact_chain_##NAME##_##WARPGROUPS##x##BN##_k##SPLITS(const ExactArgs args) {                                                                 \
    using Shape = ChainShape<N, K, WARPGROUPS, BN, SPLITS>;                                                                                        \
    constexpr int PAIRS = BN / 8 / SPLITS;                                                                                                         \
    const ChainMemory memory(args);                                                                                                                \
    chain_product<Shape>(memory.LEFT(), memory.weights + WEIGHTS, __VA_ARGS__);                                                                    \
  }
#define CHAIN_QKV(WARPGROUPS, BN, SPLITS)                        \
  CHAIN_PRODUCT(qkv, QKV, D, WARPGROUPS, BN, SPLITS, h, W_QKV, OperandEpilogue<PAIRS, false>{memory.weights + B_QKV, memory.qkv(), args.rows})
#define CHAIN_ATTN(WARPGROUPS, BN, SPLITS) \
  CHAIN_PRODUCT(attn, D, D, WARPGROUPS, BN, SPLITS, h, W_ATTN, ResidualEpilogue<PAIRS>{memory.weights + B_ATTN, args.x, memory.x1(), args.rows})
#define CHAIN_FC(WARPGROUPS, BN, SPLITS) \
  CHAIN_PRODUCT(fc, FFN, D, WARPGROUPS, BN, SPLITS, h, W_FC, OperandEpilogue<PAIRS, true>{memory.weights + B_FC, memory.f(), args.rows})
#define CHAIN_PROJ(WARPGROUPS, BN, SPLITS) \
  CHAIN_PRODUCT(proj, D, FFN, WARPGROUPS, BN, SPLITS, f, W_PROJ, ResidualEpilogue<PAIRS>{memory.weights + B_PROJ, memory.x1(), args.output, args.rows})

CHAIN_QKV(1, 64, 2)
CHAIN_QKV(2, 64, 2)
CHAIN_QKV(2, 64, 1)

CHAIN_ATTN(1, 32, 4)
CHAIN_ATTN(2, 64, 4)

CHAIN_FC(1, 64, 2)
CHAIN_FC(2, 64, 2)
CHAIN_FC(2, 64, 1)

CHAIN_PROJ(1, 64, 8)
CHAIN_PROJ(2, 64, 8)
CHAIN_PROJ(2, 64, 4)
