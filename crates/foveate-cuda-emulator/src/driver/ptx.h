// The kernels' interfaces in a PTX text. The instructions are ignored, because the emulator runs the same kernel
// compiled for the host.
#pragma once

#include <map>
#include <string>
#include <vector>

struct Entry {
    // Bytes of each parameter, in order.
    std::vector<size_t> parameters;
    size_t static_shared = 0;
    // Largest number of threads per block that the kernel was compiled for; 0 if it is not specified.
    unsigned max_threads = 0;
};

struct Ptx {
    // 75 for `.version 7.5` and 80 for `.target sm_80`.
    int version = 0;
    int target = 0;
    std::map<std::string, Entry> entries;
};

// Throws std::invalid_argument with the reason if the text is not PTX.
Ptx parse_ptx(const std::string& text);
