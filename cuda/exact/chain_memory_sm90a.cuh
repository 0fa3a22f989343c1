/* Where the chain of exact kernels keeps things between its launches. */
#pragma once

#include "exact/chain_operand_sm90a.cuh"

namespace exact90 {

struct ChainMemory {
  const float* weights;
  unsigned char* base;
  int row_tiles;

  __device__ __forceinline__ explicit ChainMemory(const ExactArgs& args) {
    const bool prepared = !(args.phases & EXACT_CAST);
    base = args.memory + AT_ROWS + (prepared ? EXACT_PREPARED : 0);
    weights = prepared ? reinterpret_cast<const float*>(args.memory + AT_ROWS) : args.weights;
    row_tiles = (args.rows + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS) * 2;  // products take two at a time
  }
  static constexpr size_t H = Operand::bytes(1, D / 64), WIDE = Operand::bytes(1, FFN / 64);  // bytes of a row tile
  __device__ __forceinline__ Operand h() const { return Operand(base, row_tiles, D / 64); }   // LN1, attention, LN2
  __device__ __forceinline__ Operand qkv() const { return Operand(base + row_tiles * H, row_tiles, QKV / 64); }
  __device__ __forceinline__ Operand f() const { return Operand(base + row_tiles * H, row_tiles, FFN / 64); }  // in the place of q, k and v
  __device__ __forceinline__ float* x1() const { return reinterpret_cast<float*>(base + row_tiles * (H + WIDE)); }  // (rows, D)
  static_assert(H + WIDE + TILE_ROWS * D * 4 <= TILE_ROWS * EXACT_PER_ROW, "fits");
};

}  // namespace exact90
