// libcuda.so.1: modules, functions, launches.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "driver/machine.h"

namespace {

// The newest PTX that a driver of CUDA 12.9 reads.
constexpr int NEWEST_PTX = 88;

// The options of cuModuleLoadDataEx: here, the buffer for messages.
struct Options {
    char* log = nullptr;
    size_t bytes = 0;

    Options(unsigned count, const int* names, void* const* values) {
        constexpr int ERROR_LOG = 5, ERROR_LOG_BYTES = 6;
        for (unsigned index = 0; index < count; index++) {
            if (names[index] == ERROR_LOG) log = static_cast<char*>(values[index]);
            if (names[index] == ERROR_LOG_BYTES) bytes = reinterpret_cast<size_t>(values[index]);
        }
    }

    void say(const std::string& complaint) const {
        if (log != nullptr && bytes > 0) std::snprintf(log, bytes, "emulated ptxas: %s", complaint.c_str());
    }
};

Ptx load_ptx(const Machine& machine, const void* image, const Options& options) {
    static const unsigned char ELF[] = {0x7f, 'E', 'L', 'F'};
    static const unsigned char FAT[] = {0x50, 0xed, 0x55, 0xba};
    require(image != nullptr);
    // Machine code is for another processor.
    bool binary = std::memcmp(image, ELF, 4) == 0 || std::memcmp(image, FAT, 4) == 0;
    require(!binary, CUDA_ERROR_NO_BINARY_FOR_GPU);
    Ptx ptx;
    try {
        ptx = parse_ptx(static_cast<const char*>(image));
    } catch (const std::invalid_argument& problem) {
        options.say(problem.what());
        throw CUDA_ERROR_INVALID_PTX;
    }
    require(ptx.version <= NEWEST_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    if (ptx.target > machine.major * 10 + machine.minor) {
        options.say("the PTX is for sm_" + std::to_string(ptx.target) + ", newer than this device");
        throw CUDA_ERROR_INVALID_PTX;
    }
    return ptx;
}

const KernelEntry* emulated(const std::string& name) {
    unsigned count = 0;
    const KernelEntry* kernels = emulated_kernels(&count);
    const KernelEntry* found =
        std::find_if(kernels, kernels + count, [&](auto& kernel) { return name == kernel.name; });
    return found == kernels + count ? nullptr : found;
}

// The PTX and the host's kernel come from one source; if they differ, one of them is stale.
void check_parameters(const Entry& entry, const KernelEntry& kernel) {
    std::vector<size_t> compiled(kernel.param_bytes, kernel.param_bytes + kernel.param_count);
    if (entry.parameters == compiled) return;
    die(std::string("the PTX of ") + kernel.name + " takes other parameters than its source: compile it anew");
}

unsigned most_threads(const Function& function) {
    unsigned most = static_cast<unsigned>(device_attribute(MAX_THREADS_PER_BLOCK));
    return function.entry.max_threads ? std::min(most, function.entry.max_threads) : most;
}

int resident_blocks(const Function& function, int threads, size_t dynamic_shared) {
    if (threads <= 0 || static_cast<unsigned>(threads) > most_threads(function)) return 0;
    size_t shared = function.entry.static_shared + dynamic_shared + device_attribute(SHARED_KEPT);
    int whole_warps = (threads + 31) / 32 * 32;
    int by_threads = device_attribute(THREADS_PER_PROCESSOR) / whole_warps;
    int by_shared = static_cast<int>(device_attribute(SHARED_PER_PROCESSOR) / std::max<size_t>(shared, 1));
    return std::min({by_threads, by_shared, device_attribute(BLOCKS_PER_PROCESSOR)});
}

// A launch's arguments, copied by value. Words that are device pointers become addresses when the kernel runs.
struct Arguments {
    std::vector<std::vector<uint64_t>> values;
    std::vector<size_t> bytes;

    Arguments(const Entry& entry, void** parameters) : bytes(entry.parameters) {
        for (size_t index = 0; index < bytes.size(); index++) {
            require(parameters[index] != nullptr);
            std::vector<uint64_t> value((bytes[index] + 7) / 8, 0);
            std::memcpy(value.data(), parameters[index], bytes[index]);
            values.push_back(std::move(value));
        }
    }

    void resolve(const Device& device, const char* kernel) {
        for (size_t index = 0; index < values.size(); index++) {
            for (size_t word = 0; word < bytes[index] / 8; word++) {
                uint64_t& value = values[index][word];
                if (!is_device_pointer(value)) continue;
                value = reinterpret_cast<uint64_t>(Machine::get().memory.argument(value, device.ordinal, kernel));
            }
        }
    }

    std::vector<void*> pointers() {
        std::vector<void*> pointers;
        for (auto& value : values) pointers.push_back(value.data());
        return pointers;
    }
};

void check_launch(const Function& function, const CUlaunchConfig& config) {
    auto within = [](unsigned value, int most) { return value >= 1 && value <= static_cast<unsigned>(most); };
    int yz = device_attribute(MAX_GRID_Y);
    require(within(config.gridDimX, device_attribute(MAX_GRID_X)) && within(config.gridDimY, yz) &&
            within(config.gridDimZ, yz));
    require(within(config.blockDimX, 1024) && within(config.blockDimY, 1024) && within(config.blockDimZ, 64));
    require(config.blockDimX * config.blockDimY * config.blockDimZ <= most_threads(function));
    require(config.sharedMemBytes <= static_cast<unsigned>(function.dynamic_shared));
    size_t shared = function.entry.static_shared + config.sharedMemBytes;
    require(shared <= static_cast<size_t>(device_attribute(SHARED_PER_BLOCK_OPTIN)));
}

}  // namespace

EXPORTED CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, int* names, void** values) {
    return api([&](Machine& machine, Lock&) {
        Device& device = current_device();
        require(module != nullptr);
        machine.refuse_while_capturing(device);
        *module = machine.modules.add(
            std::make_unique<Module>(Module{&device, load_ptx(machine, image, Options(count, names, values))}));
    });
}

EXPORTED CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

EXPORTED CUresult cuModuleUnload(CUmodule handle) {
    return api([&](Machine& machine, Lock& lock) {
        Module& module = *machine.modules.find(handle);
        machine.complete_device(lock, *module.device);
        machine.functions.remove_if([&](Function& function) { return function.module == &module; });
        machine.modules.remove(handle);
    });
}

EXPORTED CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
    return api([&](Machine& machine, Lock&) {
        Module& module = *machine.modules.find(handle);
        require(function != nullptr && name != nullptr);
        machine.refuse_load(*module.device);
        auto entry = module.ptx.entries.find(name);
        require(entry != module.ptx.entries.end(), CUDA_ERROR_NOT_FOUND);
        const KernelEntry* kernel = emulated(name);
        require(kernel != nullptr, CUDA_ERROR_NOT_FOUND);
        check_parameters(entry->second, *kernel);
        int dynamic = device_attribute(SHARED_PER_BLOCK) - static_cast<int>(entry->second.static_shared);
        auto made = std::make_unique<Function>(Function{&module, module.device, name, entry->second, kernel, dynamic});
        *function = machine.functions.add(std::move(made));
    });
}

EXPORTED CUresult cuFuncGetAttribute(int* value, int number, CUfunction handle) {
    return api([&](Machine& machine, Lock&) {
        Function& function = *machine.functions.find(handle);
        require(value != nullptr && number >= 0 && number < 16);
        switch (number) {
            case 0: *value = static_cast<int>(most_threads(function)); break;
            case 1: *value = static_cast<int>(function.entry.static_shared); break;
            case 5: *value = function.module->ptx.version; break;
            case 6: *value = machine.major * 10 + machine.minor; break;
            case 8: *value = function.dynamic_shared; break;
            // Registers, local memory, clusters: not emulated.
            default: *value = 0;
        }
    });
}

EXPORTED CUresult cuFuncSetAttribute(CUfunction handle, int number, int value) {
    constexpr int MAX_DYNAMIC_SHARED = 8, CARVEOUT = 9;
    return api([&](Machine& machine, Lock&) {
        Function& function = *machine.functions.find(handle);
        require(number == MAX_DYNAMIC_SHARED || number == CARVEOUT);
        if (number == CARVEOUT) return require(value >= -1 && value <= 100);
        int most = device_attribute(SHARED_PER_BLOCK_OPTIN) - static_cast<int>(function.entry.static_shared);
        require(value >= 0 && value <= most);
        function.dynamic_shared = value;
    });
}

EXPORTED CUresult cuFuncSetCacheConfig(CUfunction handle, int config) {
    return api([&](Machine& machine, Lock&) {
        machine.functions.find(handle);
        require(config >= 0 && config <= 3);
    });
}

EXPORTED CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle, int threads,
                                                                       size_t shared, unsigned flags) {
    return api([&](Machine& machine, Lock&) {
        require(blocks != nullptr && flags <= 1);
        *blocks = resident_blocks(*machine.functions.find(handle), threads, shared);
    });
}

EXPORTED CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                              size_t shared) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads, shared, 0);
}

EXPORTED CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction handle,
                                                            size_t (*shared_of)(int), size_t shared, int limit,
                                                            unsigned flags) {
    return api([&](Machine& machine, Lock&) {
        Function& function = *machine.functions.find(handle);
        require(grid != nullptr && block != nullptr && flags <= 1);
        int most = static_cast<int>(most_threads(function));
        if (limit > 0) most = std::min(most, limit);
        int best = 0;
        for (int threads = most; threads > 0; threads -= threads % 32 ? threads % 32 : 32) {
            int blocks = resident_blocks(function, threads, shared_of ? shared_of(threads) : shared);
            if (blocks * threads <= best) continue;
            best = blocks * threads;
            *block = threads;
            *grid = blocks * device_attribute(PROCESSORS);
        }
        require(best > 0);
    });
}

EXPORTED CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle, size_t (*shared_of)(int),
                                                   size_t shared, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, handle, shared_of, shared, limit, 0);
}

EXPORTED CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int threads) {
    return api([&](Machine& machine, Lock&) {
        Function& function = *machine.functions.find(handle);
        require(bytes != nullptr && blocks > 0 && threads > 0);
        size_t taken = function.entry.static_shared + device_attribute(SHARED_KEPT);
        size_t share = static_cast<size_t>(device_attribute(SHARED_PER_PROCESSOR) / blocks);
        *bytes = share > taken ? std::min<size_t>(share - taken, device_attribute(SHARED_PER_BLOCK_OPTIN)) : 0;
    });
}

EXPORTED CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** parameters, void** extra) {
    return api([&](Machine& machine, Lock& lock) {
        Function& function = *machine.functions.find(handle);
        Stream& stream = machine.stream(config->hStream);
        require(function.device == stream.device, CUDA_ERROR_INVALID_HANDLE);
        require(extra == nullptr && config->numAttrs == 0, CUDA_ERROR_NOT_SUPPORTED);
        require(parameters != nullptr || function.entry.parameters.empty());
        check_launch(function, *config);
        Arguments arguments(function.entry, parameters);
        if (!function.loaded) machine.refuse_load(*stream.device);
        function.loaded = true;
        Dim3 grid{config->gridDimX, config->gridDimY, config->gridDimZ};
        Dim3 block{config->blockDimX, config->blockDimY, config->blockDimZ};
        unsigned shared = config->sharedMemBytes;
        machine.submit(lock, stream, [arguments, grid, block, shared, kernel = function.kernel] {
            if (int fault = Machine::get().next_fault.exchange(CUDA_SUCCESS)) {
                running_on->lost = fault;
                return;
            }
            // A copy, because the pointers are looked up anew each time that a graph runs this.
            Arguments resolved = arguments;
            resolved.resolve(*running_on, kernel->name);
            kernel->launch(grid, block, shared, resolved.pointers().data());
        });
        const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
        machine.counts.blocks += blocks;
        if (stream.capture) stream.capture->graph.blocks += blocks;
    });
}

EXPORTED CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, CUstream stream,
                                 void** parameters, void** extra) {
    CUlaunchConfig config{grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, nullptr, 0};
    return cuLaunchKernelEx(&config, function, parameters, extra);
}
