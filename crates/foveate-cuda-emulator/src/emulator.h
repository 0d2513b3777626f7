// The emulated driver's interface for the other emulated libraries, beyond CUDA's own. They look these functions up by
// name in libcuda.so.1, so that a real driver in its place is detected.
#pragma once

#include <cstddef>

extern "C" {

// Enqueues `run(data)` on the stream, or records it if the stream is being captured. `release(data)` follows when
// nothing can run it any more. Returns a CUresult.
using CudaEmulatorSubmit = int(void* stream, void (*run)(void*), void* data, void (*release)(void*));

// Loads code: refused while another thread captures. Returns a CUresult.
using CudaEmulatorLoad = int();

// For use inside such a `run`: the address of `bytes` bytes of device memory in this process. Ends the process with a
// message if they are not all allocated, not live, or another device's. `what` names the use in that message.
using CudaEmulatorAddress = void*(unsigned long long pointer, size_t bytes, const char* what);

}  // extern "C"

constexpr const char* CUDA_EMULATOR_SUBMIT = "cuda_emulator_submit";
constexpr const char* CUDA_EMULATOR_LOAD = "cuda_emulator_load";
constexpr const char* CUDA_EMULATOR_ADDRESS = "cuda_emulator_address";
