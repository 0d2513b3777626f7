// libcuda.so.1: pinned memory, device memory, and copies.
#include <cstring>

#include "driver/machine.h"

namespace {

char* on_device(CUdeviceptr pointer, size_t bytes, const char* what) {
    return Machine::get().memory.address(pointer, bytes, running_on->ordinal, what);
}

bool host(const void* pointer, size_t bytes, const char* what) {
    return Machine::get().memory.check_host(pointer, bytes, what);
}

CUdeviceptr reserve(Machine& machine, Lock& lock, Device& device, size_t bytes) {
    CUdeviceptr pointer = machine.memory.reserve(device.ordinal, bytes);
    if (pointer != 0) return pointer;
    // Enqueued frees return memory once they have run.
    machine.complete_device(lock, device);
    pointer = machine.memory.reserve(device.ordinal, bytes);
    require(pointer != 0, CUDA_ERROR_OUT_OF_MEMORY);
    return pointer;
}

// A copy from pageable memory has read its bytes when the call returns; one from pinned memory reads them when it runs.
// So does a captured copy, each time.
Work upload(CUdeviceptr to, const void* from, size_t bytes, bool snapshot) {
    if (snapshot) {
        auto first = static_cast<const char*>(from);
        auto taken = std::make_shared<std::vector<char>>(first, first + bytes);
        return [=] { std::memcpy(on_device(to, bytes, "copy to the device"), taken->data(), bytes); };
    }
    return [=] {
        host(from, bytes, "copy to the device");
        std::memcpy(on_device(to, bytes, "copy to the device"), from, bytes);
    };
}

Work download(void* to, CUdeviceptr from, size_t bytes) {
    return [=] {
        host(to, bytes, "copy to the host");
        std::memcpy(to, on_device(from, bytes, "copy to the host"), bytes);
    };
}

Work transfer(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return [=] {
        char* target = on_device(to, bytes, "copy on the device");
        std::memmove(target, on_device(from, bytes, "copy on the device"), bytes);
    };
}

template <class T>
Work fill(CUdeviceptr to, T value, size_t count) {
    return [=] {
        char* target = on_device(to, count * sizeof(T), "memset");
        for (size_t index = 0; index < count; index++) std::memcpy(target + index * sizeof(T), &value, sizeof(T));
    };
}

CUresult enqueue(CUstream handle, size_t bytes, const Work& work) {
    return api([&](Machine& machine, Lock& lock) {
        Stream& stream = machine.stream(handle);
        if (bytes > 0) machine.submit(lock, stream, work);
    });
}

}  // namespace

EXPORTED CUresult cuMemGetInfo_v2(size_t* available, size_t* total) {
    return api([&](Machine& machine, Lock&) {
        Device& device = current_device();
        *total = machine.memory.limit();
        *available = *total - machine.memory.used(device.ordinal);
    });
}

EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
    return api([&](Machine& machine, Lock& lock) {
        Device& device = current_device();
        machine.refuse_in_capture();
        require(pointer != nullptr && bytes > 0);
        *pointer = reserve(machine, lock, device, bytes);
        machine.memory.set_live(*pointer);
    });
}

EXPORTED CUresult cuMemFree_v2(CUdeviceptr pointer) {
    return api([&](Machine& machine, Lock& lock) {
        Device& device = current_device();
        machine.refuse_in_capture();
        if (pointer == 0) return;
        machine.complete_device(lock, device);
        machine.memory.release(pointer, device.ordinal);
    });
}

EXPORTED CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream handle) {
    return api([&](Machine& machine, Lock& lock) {
        Stream& stream = machine.stream(handle);
        require(pointer != nullptr);
        // Graphs that own memory are not emulated.
        machine.refuse_in_capture_of(stream);
        *pointer = 0;
        if (bytes == 0) return;
        CUdeviceptr made = *pointer = reserve(machine, lock, *stream.device, bytes);
        machine.submit(lock, stream, [made] { Machine::get().memory.set_live(made); });
    });
}

EXPORTED CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
    return api([&](Machine& machine, Lock& lock) {
        Stream& stream = machine.stream(handle);
        machine.refuse_in_capture_of(stream);
        if (pointer == 0) return;
        require(machine.memory.is_start_of_live(pointer));
        machine.submit(lock, stream, [pointer] { Machine::get().memory.release(pointer, running_on->ordinal); });
    });
}

EXPORTED CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
    return api([&](Machine& machine, Lock&) {
        machine.refuse_while_capturing(current_device());
        require(pointer != nullptr && bytes > 0 && (flags & ~CU_MEMHOSTALLOC_ALL) == 0);
        *pointer = machine.memory.pin(bytes, flags);
        require(*pointer != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
        machine.counts.pinnings++;
    });
}

EXPORTED CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

// Real drivers may wait for the device here, but do not promise it: this one does not, and refuses what a wait would.
EXPORTED CUresult cuMemFreeHost(void* pointer) {
    return api([&](Machine& machine, Lock&) {
        machine.refuse_while_capturing(current_device());
        require(machine.memory.unpin(pointer));
    });
}

EXPORTED CUresult cuMemHostGetFlags(unsigned* flags, void* pointer) {
    return api([&](Machine& machine, Lock&) { require(machine.memory.is_pinned_start(pointer, flags)); });
}

EXPORTED CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream handle) {
    return api([&](Machine& machine, Lock& lock) {
        Stream& stream = machine.stream(handle);
        if (bytes == 0) return;
        bool pinned = host(from, bytes, "cuMemcpyHtoDAsync");
        machine.submit(lock, stream, upload(to, from, bytes, !pinned && !stream.capture));
    });
}

EXPORTED CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream handle) {
    return api([&](Machine& machine, Lock& lock) {
        Stream& stream = machine.stream(handle);
        if (bytes == 0) return;
        bool pinned = host(to, bytes, "cuMemcpyDtoHAsync");
        NodePtr node = machine.submit(lock, stream, download(to, from, bytes));
        // A copy into pageable memory is done when the call returns.
        if (node != nullptr && !pinned) machine.complete(lock, node);
    });
}

EXPORTED CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return enqueue(stream, bytes, transfer(to, from, bytes));
}

EXPORTED CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    return api([&](Machine& machine, Lock& lock) {
        Stream& stream = current_device().legacy;
        machine.refuse_in_capture_of(stream);
        if (bytes == 0) return;
        bool pinned = host(from, bytes, "cuMemcpyHtoD");
        // A copy from pageable memory may return when the bytes are read, before they arrive.
        machine.complete_stream(lock, stream);
        NodePtr node = machine.submit(lock, stream, upload(to, from, bytes, !pinned));
        if (pinned) machine.complete(lock, node);
    });
}

EXPORTED CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    return api([&](Machine& machine, Lock& lock) {
        Stream& stream = current_device().legacy;
        machine.refuse_in_capture_of(stream);
        if (bytes == 0) return;
        machine.complete(lock, machine.submit(lock, stream, download(to, from, bytes)));
    });
}

// Copies and fills on the device do not make the host wait, despite their names.
EXPORTED CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return enqueue(nullptr, bytes, transfer(to, from, bytes));
}

EXPORTED CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_device, CUdeviceptr from, CUcontext from_device,
                                    size_t bytes, CUstream stream) {
    return enqueue(stream, bytes, [=] {
        const Memory& memory = Machine::get().memory;
        char* target = memory.address(to, bytes, to_device->ordinal, "copy between devices");
        std::memmove(target, memory.address(from, bytes, from_device->ordinal, "copy between devices"), bytes);
    });
}

EXPORTED CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    return enqueue(stream, count, fill(to, value, count));
}

EXPORTED CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    return enqueue(stream, count, fill(to, value, count));
}

EXPORTED CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    return cuMemsetD8Async(to, value, count, nullptr);
}

EXPORTED CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    return cuMemsetD32Async(to, value, count, nullptr);
}
