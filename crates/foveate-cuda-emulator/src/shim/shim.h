// The CUDA compiler's built-ins, for a .cu file that is compiled as C++: included before it.
//
// A block runs on one operating-system thread, its threads as fibers that run one at a time until they wait. A missing
// barrier therefore shows: in every seed's order, a thread runs far ahead of the others until a barrier stops it.
#pragma once

#define EMULATED
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 800
#endif

#include <math.h>
#include <string.h>

#include <algorithm>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

using std::max;
using std::min;

inline float rsqrtf(float value) { return 1.0f / sqrtf(value); }

inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

extern constinit thread_local uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

constexpr unsigned WARP = 32;
// NaN in every floating-point type: the content of uninitialized memory.
constexpr unsigned char POISON = 0xff;

// Waits for every thread of the block, unless `line` is to be ignored.
void barrier(unsigned line);

// The line of a barrier to ignore, or 0: shows that a test needs it.
extern unsigned ignored_barrier;

// Waits for every lane of the warp. Then `operation` is called once, with every lane's `mine`.
void collective(void (*operation)(void* const (&lanes)[WARP]), void* mine);

// Asynchronous copies of 16 bytes, of this thread. They run when they are waited for, no sooner; the destination's
// previous content is lost from the start. `from` is null for zeros.
void copy_start(void* to, const void* from);
void copies_commit();
void copies_wait(unsigned pending);

// Poisons `bytes` at `memory` before each block that runs on this operating-system thread.
void poison_between_blocks(void* memory, unsigned bytes);

template <class Type>
struct Shared {
    alignas(128) Type value;

    Shared() {
        memset(static_cast<void*>(&value), POISON, sizeof value);
        poison_between_blocks(&value, sizeof value);
    }
};

}  // namespace emulated

// `__shared__ type name[count];`
#define SHARED_ARRAY(type, name, count)                                   \
    static thread_local emulated::Shared<type[count]> name##_in_shared; \
    auto& name = name##_in_shared.value

inline void __syncthreads(unsigned line = __builtin_LINE()) { emulated::barrier(line); }

inline float __shfl_xor_sync(unsigned lanes, float value, int mask) {
    struct Lane {
        float value;
        unsigned lanes;
        int mask;
    } mine{value, lanes, mask};
    emulated::collective(
        [](void* const(&all)[emulated::WARP]) {
            float before[emulated::WARP];
            for (unsigned lane = 0; lane < emulated::WARP; ++lane) before[lane] = static_cast<Lane*>(all[lane])->value;
            for (unsigned lane = 0; lane < emulated::WARP; ++lane) {
                Lane* at = static_cast<Lane*>(all[lane]);
                at->value = before[(lane ^ at->mask) % emulated::WARP];
            }
        },
        &mine);
    return mine.value;
}
