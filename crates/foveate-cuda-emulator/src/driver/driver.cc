// libcuda.so.1: initialization, devices, contexts, errors.
#include <cstring>

#include "driver/machine.h"
#include "emulator.h"

namespace {

struct ErrorText {
    CUresult error;
    const char* name;
    const char* text;
};

constexpr ErrorText ERRORS[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

const ErrorText* text_of(int error) {
    for (const ErrorText& text : ERRORS) {
        if (text.error == error) return &text;
    }
    return nullptr;
}

Device& device_of(Machine& machine, CUdevice ordinal) {
    require(ordinal >= 0 && static_cast<size_t>(ordinal) < machine.devices.size(), CUDA_ERROR_INVALID_DEVICE);
    return *machine.devices[ordinal];
}

// Limits per processor: threads, blocks, shared memory; and the shared memory that a block can opt in to. From NVIDIA's
// table of compute capabilities.
struct Limits {
    int threads, blocks, shared, shared_optin;
};

Limits limits(int capability) {
    switch (capability) {
        case 75: return {1024, 16, 64 << 10, 64 << 10};
        case 80: return {2048, 32, 164 << 10, 163 << 10};
        case 90: return {2048, 32, 228 << 10, 227 << 10};
        default: return {1536, 24, 100 << 10, 99 << 10};
    }
}

// 0 for attributes that are not emulated.
int attribute(const Machine& machine, int number) {
    Limits of = limits(machine.major * 10 + machine.minor);
    switch (number) {
        case MAX_THREADS_PER_BLOCK:
        case MAX_BLOCK_X:
        case MAX_BLOCK_Y: return 1024;
        case MAX_BLOCK_Z: return 64;
        case MAX_GRID_X: return 0x7fffffff;
        case MAX_GRID_Y:
        case MAX_GRID_Z: return 65535;
        case SHARED_PER_BLOCK: return 48 << 10;
        case CONSTANT_MEMORY: return 64 << 10;
        case WARP: return 32;
        case REGISTERS_PER_BLOCK:
        case REGISTERS_PER_PROCESSOR: return 65536;
        case CLOCK_KHZ: return 1'000'000;
        case COPIES_OVERLAP:
        case MAPS_HOST_MEMORY:
        case CONCURRENT_KERNELS:
        case UNIFIED_ADDRESSING:
        case STREAM_PRIORITIES:
        case MEMORY_POOLS: return 1;
        case PROCESSORS: return 16;
        case L2_BYTES: return 4 << 20;
        case THREADS_PER_PROCESSOR: return of.threads;
        case COPY_ENGINES: return 2;
        case CAPABILITY_MAJOR: return machine.major;
        case CAPABILITY_MINOR: return machine.minor;
        case SHARED_PER_PROCESSOR: return of.shared;
        case SHARED_PER_BLOCK_OPTIN: return of.shared_optin;
        case BLOCKS_PER_PROCESSOR: return of.blocks;
        case SHARED_KEPT: return machine.major >= 8 ? 1024 : 0;
        default: return 0;
    }
}

constexpr int LAST_ATTRIBUTE = 143;

void reset(Machine& machine, Lock& lock, Device& device) {
    machine.complete_device(lock, device);
    for (auto& [handle, stream] : machine.streams.all()) {
        if (stream->device == &device) machine.abandon_capture(*stream);
    }
    machine.streams.remove_if([&](Stream& stream) { return stream.device == &device; });
    machine.events.remove_if([&](Event& event) { return event.device == &device; });
    machine.graphs.remove_if([&](Graph& graph) { return graph.device == &device; });
    machine.execs.remove_if([&](GraphExec& exec) { return exec.graph.device == &device; });
    machine.functions.remove_if([&](Function& function) { return function.device == &device; });
    machine.modules.remove_if([&](Module& module) { return module.device == &device; });
    device.legacy.tail = nullptr;
    machine.memory.release_all(device.ordinal);
}

}  // namespace

int device_attribute(int number) { return attribute(Machine::get(), number); }

EXPORTED CUresult cuInit(unsigned flags) {
    Machine& machine = Machine::get();
    Lock lock(machine.lock);
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (machine.devices.empty()) return CUDA_ERROR_NO_DEVICE;
    machine.initialized = true;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDriverGetVersion(int* version) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = 12090;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetErrorName(CUresult error, const char** name) {
    const ErrorText* text = text_of(error);
    *name = text ? text->name : nullptr;
    return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORTED CUresult cuGetErrorString(CUresult error, const char** string) {
    const ErrorText* text = text_of(error);
    *string = text ? text->text : nullptr;
    return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORTED CUresult cuDeviceGetCount(int* count) {
    return api_without_context([&](Machine& machine, Lock&) { *count = static_cast<int>(machine.devices.size()); });
}

EXPORTED CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    return api_without_context([&](Machine& machine, Lock&) { *device = device_of(machine, ordinal).ordinal; });
}

EXPORTED CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
    return api_without_context([&](Machine& machine, Lock&) {
        device_of(machine, device);
        require(name != nullptr && length > 0);
        std::strncpy(name, "Emulated GPU", static_cast<size_t>(length));
        name[length - 1] = 0;
    });
}

EXPORTED CUresult cuDeviceGetAttribute(int* value, int number, CUdevice device) {
    return api_without_context([&](Machine& machine, Lock&) {
        device_of(machine, device);
        require(value != nullptr && number > 0 && number <= LAST_ATTRIBUTE);
        *value = attribute(machine, number);
    });
}

EXPORTED CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    return api_without_context([&](Machine& machine, Lock&) {
        device_of(machine, device);
        *bytes = machine.memory.limit();
    });
}

EXPORTED CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
    return api_without_context([&](Machine& machine, Lock&) {
        std::memcpy(uuid->bytes, "emulated device", 16);
        uuid->bytes[15] = static_cast<char>(device_of(machine, device).ordinal);
    });
}

EXPORTED CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }

EXPORTED CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
    return api_without_context([&](Machine& machine, Lock&) {
        Device& device = device_of(machine, ordinal);
        *flags = device.flags;
        *active = device.references > 0;
    });
}

EXPORTED CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
    return api_without_context([&](Machine& machine, Lock&) { device_of(machine, ordinal).flags = flags; });
}

EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
    return api_without_context([&](Machine& machine, Lock&) {
        Device& device = device_of(machine, ordinal);
        device.references++;
        *context = &device;
    });
}

EXPORTED CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    return api_without_context([&](Machine& machine, Lock& lock) {
        Device& device = device_of(machine, ordinal);
        require(device.references > 0, CUDA_ERROR_INVALID_CONTEXT);
        if (--device.references == 0) reset(machine, lock, device);
    });
}

EXPORTED CUresult cuCtxSetCurrent(CUcontext context) {
    return api_without_context([&](Machine& machine, Lock&) {
        bool known = context == nullptr;
        for (auto& device : machine.devices) known |= device.get() == context && device->references > 0;
        require(known, CUDA_ERROR_INVALID_CONTEXT);
        current = context;
    });
}

EXPORTED CUresult cuCtxGetCurrent(CUcontext* context) {
    return api([&](Machine&, Lock&) {
        require(context != nullptr);
        *context = current;
    });
}

EXPORTED CUresult cuCtxGetDevice(CUdevice* device) {
    return api([&](Machine&, Lock&) { *device = current_device().ordinal; });
}

EXPORTED CUresult cuCtxSynchronize() {
    return api([&](Machine& machine, Lock& lock) {
        Device& device = current_device();
        machine.refuse_while_capturing(device);
        machine.counts.context_waits++;
        machine.counts.spinning_waits += (device.flags & CU_CTX_SCHED_BLOCKING_SYNC) == 0;
        machine.complete_device(lock, device);
    });
}

EXPORTED CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    return api([&](Machine&, Lock&) {
        current_device();
        if (least != nullptr) *least = 0;
        if (greatest != nullptr) *greatest = -5;
    });
}

EXPORTED int cuda_emulator_set_order(const char* name) {
    Machine& machine = Machine::get();
    Lock lock(machine.lock);
    return machine.set_order(name) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORTED void cuda_emulator_counts(Counts* counts) {
    Machine& machine = Machine::get();
    Lock lock(machine.lock);
    *counts = machine.counts;
}

EXPORTED void cuda_emulator_fail_next_kernel(int status) { Machine::get().next_fault = status; }

EXPORTED CudaEmulatorLoad cuda_emulator_load;
int cuda_emulator_load() {
    return api([&](Machine& machine, Lock&) { machine.refuse_load(current_device()); });
}

EXPORTED CudaEmulatorSubmit cuda_emulator_submit;
int cuda_emulator_submit(void* stream, void (*run)(void*), void* data, void (*release)(void*)) {
    // Copies of the work share the data: a graph's steps and each of its launches.
    std::shared_ptr<void> shared(data, release);
    return api([&](Machine& machine, Lock& lock) {
        machine.submit(lock, machine.stream(static_cast<CUstream>(stream)), [shared, run] { run(shared.get()); });
    });
}

EXPORTED CudaEmulatorAddress cuda_emulator_address;
void* cuda_emulator_address(unsigned long long pointer, size_t bytes, const char* what) {
    if (running_on == nullptr) die(std::string(what) + ": device memory outside of the device's work");
    return Machine::get().memory.address(pointer, bytes, running_on->ordinal, what);
}
