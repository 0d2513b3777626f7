// What the emulated driver offers to the other emulated libraries, beyond CUDA's own interface. They find these by name
// in libcuda.so.1, so that a real driver in its place is noticed.
#pragma once

#include <cstddef>

extern "C" {

// Enqueues `run(data)` on the stream, or records it where the stream is being captured. `release(data)` follows when
// nothing can run it any more. Gives a CUresult.
using CudaEmulatorSubmit = int(void* stream, void (*run)(void*), void* data, void (*release)(void*));

// For use inside such a `run`: where `bytes` bytes of device memory are in this process. Ends the process with a
// message when they are not all there, not live, or another device's. `what` names the use in that message.
using CudaEmulatorAddress = void*(unsigned long long pointer, size_t bytes, const char* what);

}  // extern "C"

constexpr const char* CUDA_EMULATOR_SUBMIT = "cuda_emulator_submit";
constexpr const char* CUDA_EMULATOR_ADDRESS = "cuda_emulator_address";
