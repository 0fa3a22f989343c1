/* What the stage templates ask of an architecture, answered by sm_80: asynchronous copies several stages deep. */
#pragma once

#include "common/copy_sm80.cuh"
#include "common/mma_sm80.cuh"

struct Sm80 : MmaSm80, CopySm80 {
  static constexpr int stages(int wanted) { return wanted; }
  static constexpr int blocks_per_sm(int wanted) { return wanted; }
};
