/* What the stage templates ask of an architecture, answered by sm_75: the tile after the current one waits in
   registers, so two stages of shared memory are enough. */
#pragma once

#include "common/copy_sm75.cuh"
#include "common/mma_sm75.cuh"

struct Sm75 : MmaSm75, CopySm75 {
  static constexpr int stages(int) { return 2; }
  static constexpr int blocks_per_sm(int) { return 1; }  // by its 64 KB of shared memory
};
