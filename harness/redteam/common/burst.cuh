/* For cheats that behave between single calls and cheat when calls follow each other quickly: nothing can have been
 * checked in the meantime. */
#pragma once

#include <chrono>

#include "candidate.cuh"

// Did the last call return less than 300 us ago?
inline bool in_a_burst() {
  using clock = std::chrono::steady_clock;
  static clock::time_point last;
  const auto now = clock::now();
  const bool quick = now - last < std::chrono::microseconds(300);
  last = now;
  return quick;
}
