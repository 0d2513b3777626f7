// The project's kernels, compiled for the host.

#include <utility>

#include "grid.h"
#include "registry.h"
#include "shim.h"

#include "forward.cu"

#include "../../../foveate-decode-nvjpeg/kernels/resize.cu"

namespace {

template <class... Parameters>
struct Signature {
    static constexpr unsigned COUNT = sizeof...(Parameters);
    static constexpr unsigned BYTES[] = {sizeof(Parameters)...};
};

template <auto Kernel, class... Parameters>
void launch(Dim3 grid, Dim3 block, unsigned shared_bytes, void** params) {
    const auto run = [&]<size_t... At>(std::index_sequence<At...>) {
        emulated::run_grid(grid, block, shared_bytes, [&] { Kernel(*static_cast<Parameters*>(params[At])...); });
    };
    run(std::index_sequence_for<Parameters...>());
}

template <auto Kernel, class... Parameters>
constexpr KernelEntry entry(const char* name, void (*)(Parameters...)) {
    using Its = Signature<Parameters...>;
    return {name, launch<Kernel, Parameters...>, Its::BYTES, Its::COUNT};
}

#define ENTRY(name) entry<name>(#name, name)
#define ENTRIES(T)                                                                                           \
    ENTRY(patchify_##T), ENTRY(patchify_f32_##T), ENTRY(embed_##T), ENTRY(layer_norm_##T),                   \
        ENTRY(activate_##T), ENTRY(swiglu_##T), ENTRY(rotate_##T), ENTRY(attention_##T), ENTRY(pool_##T),    \
        ENTRY(widen_rows_##T)

constexpr KernelEntry KERNELS_BY_NAME[] = {
    ENTRIES(f32),
    ENTRIES(f16),
    ENTRY(attention_mma_f16),
#if __CUDA_ARCH__ >= 800
    ENTRIES(bf16),
    ENTRY(attention_mma_bf16),
#endif
    ENTRY(resample),
    ENTRY(interpolate),
};

}  // namespace

const KernelEntry* emulated_kernels(unsigned* count) {
    *count = sizeof KERNELS_BY_NAME / sizeof *KERNELS_BY_NAME;
    return KERNELS_BY_NAME;
}
