// Runs a grid of emulated threads.
#pragma once

#include <functional>

#include "registry.h"

namespace emulated {

// Calls `kernel` once per thread of the grid; returns when all have returned.
void run_grid(Dim3 grid, Dim3 block, unsigned shared_bytes, const std::function<void()>& kernel);

}  // namespace emulated
