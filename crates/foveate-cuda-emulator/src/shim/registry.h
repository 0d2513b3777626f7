// The kernels that were compiled for the host, by name: what the emulated driver launches.
#pragma once

struct Dim3 {
    unsigned x, y, z;
};

struct KernelEntry {
    const char* name;
    // Runs the whole grid and returns when it is done. `params` is what cuLaunchKernel takes: one pointer per parameter.
    // Ends the process with a message when a block's size or a kernel's use of barriers is not allowed.
    void (*launch)(Dim3 grid, Dim3 block, unsigned shared_bytes, void** params);
    // Bytes of each parameter, for a driver that launches later and has to keep them.
    const unsigned* param_bytes;
    unsigned param_count;
};

const KernelEntry* emulated_kernels(unsigned* count);
