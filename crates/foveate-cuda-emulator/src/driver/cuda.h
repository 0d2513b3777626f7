// The part of CUDA's public driver interface that this emulator needs: types, and numbers that callers see.
#pragma once

#include <cstddef>
#include <cstdint>

using CUdevice = int;
using CUdeviceptr = unsigned long long;

struct Device;
struct Stream;
struct Event;
struct Module;
struct Function;
struct Graph;
struct GraphExec;

using CUcontext = Device*;
using CUstream = Stream*;
using CUevent = Event*;
using CUmodule = Module*;
using CUfunction = Function*;
using CUgraph = Graph*;
using CUgraphExec = GraphExec*;

enum CUresult : int {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_CAPTURED_EVENT = 907,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

// CUdevice_attribute's numbers.
enum DeviceAttribute {
    MAX_THREADS_PER_BLOCK = 1,
    MAX_BLOCK_X = 2,
    MAX_BLOCK_Y = 3,
    MAX_BLOCK_Z = 4,
    MAX_GRID_X = 5,
    MAX_GRID_Y = 6,
    MAX_GRID_Z = 7,
    SHARED_PER_BLOCK = 8,
    CONSTANT_MEMORY = 9,
    WARP = 10,
    REGISTERS_PER_BLOCK = 12,
    CLOCK_KHZ = 13,
    COPIES_OVERLAP = 15,
    PROCESSORS = 16,
    MAPS_HOST_MEMORY = 19,
    CONCURRENT_KERNELS = 31,
    L2_BYTES = 38,
    THREADS_PER_PROCESSOR = 39,
    COPY_ENGINES = 40,
    UNIFIED_ADDRESSING = 41,
    CAPABILITY_MAJOR = 75,
    CAPABILITY_MINOR = 76,
    STREAM_PRIORITIES = 78,
    SHARED_PER_PROCESSOR = 81,
    REGISTERS_PER_PROCESSOR = 82,
    SHARED_PER_BLOCK_OPTIN = 97,
    BLOCKS_PER_PROCESSOR = 106,
    // Per block, reserved by CUDA.
    SHARED_KEPT = 111,
    MEMORY_POOLS = 115,
};

enum { CU_CTX_SCHED_BLOCKING_SYNC = 4 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2, CU_EVENT_INTERPROCESS = 4 };
enum { CU_MEMHOSTALLOC_ALL = 7 };
enum CUstreamCaptureMode { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2 };
enum CUstreamCaptureStatus { CAPTURE_NONE = 0, CAPTURE_ACTIVE = 1, CAPTURE_INVALIDATED = 2 };

struct CUuuid {
    char bytes[16];
};

struct CUlaunchConfig {
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    CUstream hStream;
    void* attrs;
    unsigned numAttrs;
};

// Exports a driver function under its unmangled name.
#define EXPORTED extern "C" __attribute__((visibility("default")))
