// Device memory and pinned host memory.
//
// A device pointer is not an address of this process. It is a number in a range that no system maps, so host code that
// dereferences one crashes, and every use by the emulated device is looked up here first. Numbers are never reused.
// Each allocation ends (to 256 bytes, CUDA's alignment) at an inaccessible page.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/cuda.h"

// Ends the process, for errors that would corrupt memory or lose the context on a real device.
[[noreturn]] void die(const std::string& message);

// Whether a number looks like one of this emulator's device pointers, live or not.
bool is_device_pointer(uint64_t pointer);

class Memory {
public:
    Memory(int devices, size_t limit);

    // Makes an allocation filled with 0xFF (NaN in every float type); 0 beyond the device's limit. It may be used after
    // `set_live`.
    CUdeviceptr reserve(int device, size_t bytes);
    void set_live(CUdeviceptr pointer);
    // `pointer` must be the start of a live allocation of this device; aborts with a message otherwise.
    void release(CUdeviceptr pointer, int device);
    void release_all(int device);
    bool is_start_of_live(CUdeviceptr pointer) const;
    size_t used(int device) const;
    size_t limit() const { return limit_; }

    // The address of device memory in this process; aborts with a message if the bytes are not that device's.
    char* address(CUdeviceptr pointer, size_t bytes, int device, const char* what) const;
    // The address of a kernel's pointer argument, which may be the end of its allocation.
    char* argument(CUdeviceptr pointer, int device, const char* kernel) const {
        return address(pointer, 0, device, kernel);
    }

    void* pin(size_t bytes, unsigned flags);
    bool unpin(void* start);
    bool is_pinned_start(const void* start, unsigned* flags) const;
    // Whether a host address was ever pinned memory; aborts if such memory is freed, or the bytes leave it.
    bool check_host(const void* start, size_t bytes, const char* what) const;

private:
    enum class State { Reserved, Live, Freed };
    struct Allocation {
        CUdeviceptr start;
        size_t bytes;
        int device;
        State state;
        char* map;
        size_t mapped;
        char* host;
    };
    struct Pinned {
        size_t bytes;
        size_t mapped;
        unsigned flags;
        bool live;
    };

    const Allocation* find(CUdeviceptr pointer) const;
    void unmap(Allocation& allocation);

    mutable std::mutex lock_;
    size_t limit_;
    std::vector<size_t> used_;
    std::vector<CUdeviceptr> next_;
    std::map<CUdeviceptr, Allocation> allocations_;
    std::map<const char*, Pinned> pinned_;
};
