// The kernels compiled for the host, by name: the emulated driver launches them.
#pragma once

struct Dim3 {
    unsigned x, y, z;
};

struct KernelEntry {
    const char* name;
    // Runs the whole grid and returns when it is done. `params` is cuLaunchKernel's: one pointer per parameter. Ends
    // the process with a message if a block's size or a kernel's use of barriers is not allowed.
    void (*launch)(Dim3 grid, Dim3 block, unsigned shared_bytes, void** params);
    // Bytes of each parameter, for a driver that launches later and must keep them.
    const unsigned* param_bytes;
    unsigned param_count;
};

const KernelEntry* emulated_kernels(unsigned* count);
