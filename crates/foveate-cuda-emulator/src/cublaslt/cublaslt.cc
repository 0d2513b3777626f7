// libcublasLt.so.12: products of matrices in f32, f16 and bf16, summed in f32. Features of the real library beyond that
// are NOT_SUPPORTED here. Calls that the real library refuses are refused.
#include <algorithm>
#include <array>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <set>

#include "cublaslt/product.h"
#include "emulator.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

enum Status : int {
    SUCCESS = 0,
    NOT_INITIALIZED = 1,
    INVALID_VALUE = 7,
    EXECUTION_FAILED = 13,
    NOT_SUPPORTED = 15,
};

enum Compute : int { COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69, COMPUTE_32F_FAST_TF32 = 77 };
enum Epilogue : uint32_t { EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4 };
constexpr uint64_t HANDLE_MAGIC = 0x6c74'656d'756c'6174, ALGORITHM_MAGIC = 0x616c'676f'7269'7468;
constexpr uint64_t WORKSPACE_ALIGNMENT = 256;
// The workspace that the emulated algorithm uses if it may: large enough that sharing it shows.
constexpr uint64_t WORKSPACE = 4096;

struct Handle {
    uint64_t magic = HANDLE_MAGIC;
    std::mutex lock;
    // The kinds and shapes of products whose kernels have been loaded.
    std::set<std::array<uint64_t, 4>> loaded;
};

struct Description {
    int32_t compute, scale;
    int32_t pointer_mode = 0, transpose_a = 0, transpose_b = 0, transpose_c = 0;
    // CUBLAS_FILL_MODE_FULL
    int32_t fill = 2;
    uint32_t epilogue = EPILOGUE_DEFAULT;
    uint64_t bias = 0;
    int64_t bias_stride = 0;
    int32_t bias_type = -1;
};

struct Layout {
    int32_t type, order = 0;
    uint64_t rows, columns;
    int64_t leading;
    int32_t batch = 1;
    int64_t stride = 0;
};

struct Preference {
    uint32_t search = 0;
    uint64_t workspace = 0;
    uint32_t reductions = 0x3f;
    uint32_t alignment[4] = {256, 256, 256, 256};
    float waves = 0;
    uint64_t implementations = ~uint64_t(0);
};

// The content of the opaque algorithm.
struct Algorithm {
    uint64_t magic, kind, workspace;
    uint32_t alignment[4];
    uint64_t bias_alignment;
    uint64_t rounds_sums;
    uint64_t unused[1];
};
static_assert(sizeof(Algorithm) == 64);

struct HeuristicResult {
    Algorithm algorithm;
    size_t workspace;
    Status state;
    float waves;
    int reserved[4];
};

// Copies an attribute's value to its place if the sizes agree.
template <class T>
Status set(T& place, const void* from, size_t bytes) {
    if (from == nullptr || bytes != sizeof(T)) return INVALID_VALUE;
    std::memcpy(&place, from, bytes);
    return SUCCESS;
}

Operand operand(const Layout& layout, int32_t transposed) {
    return {static_cast<Type>(layout.type),       transposed != 0, static_cast<int64_t>(layout.rows),
            static_cast<int64_t>(layout.columns), layout.leading,  layout.stride};
}

bool is_float(int32_t type) { return type == F32 || type == F16 || type == BF16; }

Status check_types(const Description& of, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    bool compute =
        of.compute == COMPUTE_32F || of.compute == COMPUTE_32F_PEDANTIC || of.compute == COMPUTE_32F_FAST_TF32;
    if (!compute || of.scale != F32 || !is_float(a.type) || a.type != b.type) return NOT_SUPPORTED;
    if (c.type != d.type || (d.type != a.type && d.type != F32)) return NOT_SUPPORTED;
    if (of.compute == COMPUTE_32F_FAST_TF32 && a.type != F32) return NOT_SUPPORTED;
    if (of.epilogue != EPILOGUE_DEFAULT && of.epilogue != EPILOGUE_BIAS) return NOT_SUPPORTED;
    // A bias of another type than D exists only for integers and 8-bit floats.
    if (of.epilogue == EPILOGUE_BIAS && of.bias_type != -1 && of.bias_type != d.type) return NOT_SUPPORTED;
    bool plain = of.pointer_mode == 0 && of.transpose_c == 0 && of.fill == 2;
    return plain ? SUCCESS : NOT_SUPPORTED;
}

Status check_layout(const Layout& layout, int32_t batch) {
    if (layout.order != 0) return NOT_SUPPORTED;
    if (layout.rows == 0 || layout.columns == 0 || layout.rows > INT32_MAX || layout.columns > INT32_MAX)
        return INVALID_VALUE;
    if (layout.leading < static_cast<int64_t>(layout.rows) || layout.batch != batch || batch < 1) return INVALID_VALUE;
    return SUCCESS;
}

// Describes the product of these descriptions and layouts, or returns why there is none.
Status describe(const Description& of, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
                Product* product) {
    for (const Layout* layout : {&a, &b, &c, &d}) {
        if (Status status = check_layout(*layout, d.batch)) return status;
    }
    if (Status status = check_types(of, a, b, c, d)) return status;
    int64_t m = static_cast<int64_t>(of.transpose_a ? a.columns : a.rows),
            k = static_cast<int64_t>(of.transpose_a ? a.rows : a.columns);
    int64_t n = static_cast<int64_t>(of.transpose_b ? b.rows : b.columns),
            k_of_b = static_cast<int64_t>(of.transpose_b ? b.columns : b.rows);
    auto is_result = [&](const Layout& layout) { return int64_t(layout.rows) == m && int64_t(layout.columns) == n; };
    if (k != k_of_b || !is_result(c) || !is_result(d)) return INVALID_VALUE;
    // Results of a batch must not overlap.
    if (d.batch > 1 && d.stride < d.leading * (n - 1) + m) return INVALID_VALUE;
    *product = Product{m,
                       n,
                       k,
                       d.batch,
                       operand(a, of.transpose_a),
                       operand(b, of.transpose_b),
                       operand(c, 0),
                       operand(d, 0),
                       of.compute == COMPUTE_32F_FAST_TF32,
                       0,
                       0,
                       of.epilogue == EPILOGUE_BIAS,
                       of.bias_stride};
    return SUCCESS;
}

// The kind of product that an algorithm was chosen for: another product of the same kind may use it.
uint64_t kind_of(const Description& of, const Product& product) {
    uint64_t kind = 0;
    for (int32_t part : {of.compute, int32_t(of.epilogue), of.transpose_a, of.transpose_b, int32_t(product.a.type),
                         int32_t(product.d.type)}) {
        kind = kind * 131 + static_cast<uint64_t>(part);
    }
    return kind;
}

uint64_t alignment_of(uint64_t pointer) { return pointer == 0 ? 256 : std::min<uint64_t>(256, pointer & -pointer); }

Status check_algorithm(const Algorithm& chosen, const Description& of, const Product& product,
                       const uint64_t (&pointers)[4], uint64_t workspace, size_t workspace_bytes) {
    if (chosen.magic != ALGORITHM_MAGIC) return INVALID_VALUE;
    if (chosen.kind != kind_of(of, product)) return NOT_SUPPORTED;
    if (workspace_bytes < chosen.workspace) return INVALID_VALUE;
    if (chosen.workspace > 0 && (workspace == 0 || workspace % WORKSPACE_ALIGNMENT != 0)) return INVALID_VALUE;
    for (int index = 0; index < 4; index++) {
        if (alignment_of(pointers[index]) < chosen.alignment[index]) return NOT_SUPPORTED;
    }
    return alignment_of(of.bias) < chosen.bias_alignment ? NOT_SUPPORTED : SUCCESS;
}

// One call of cublasLtMatmul, by value, while it is queued in a stream.
struct Call {
    Product product;
    uint64_t a, b, c, d, bias, workspace;
    size_t workspace_bytes;
};

template <class F>
F* driver(const char* name) {
    static void* library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? reinterpret_cast<F*>(dlsym(library, name)) : nullptr;
}

size_t extent(const Operand& of, int64_t batch) {
    int64_t elements = (batch - 1) * of.stride + of.leading * (of.columns - 1) + of.rows;
    return static_cast<size_t>(elements) * bytes_of(of.type);
}

void run(void* data) {
    const Call& call = *static_cast<Call*>(data);
    const Product& product = call.product;
    auto* address = driver<CudaEmulatorAddress>(CUDA_EMULATOR_ADDRESS);
    auto of = [&](uint64_t pointer, size_t bytes, const char* what) {
        return pointer ? static_cast<char*>(address(pointer, bytes, what)) : nullptr;
    };
    auto matrix = [&](uint64_t pointer, const Operand& operand, const char* what) {
        return of(pointer, extent(operand, product.batch), what);
    };
    size_t bias_elements = static_cast<size_t>((product.batch - 1) * product.bias_stride + product.m);
    char* bias =
        product.bias ? of(call.bias, bias_elements * bytes_of(product.d.type), "cublasLtMatmul's bias") : nullptr;
    // The previous content is lost, as with a real split product, so that two streams that share a workspace show.
    char* workspace =
        call.workspace_bytes ? of(call.workspace, call.workspace_bytes, "cublasLtMatmul's workspace") : nullptr;
    if (workspace) std::memset(workspace, 0xFF, call.workspace_bytes);
    const char* a = matrix(call.a, product.a, "cublasLtMatmul's A");
    const char* b = matrix(call.b, product.b, "cublasLtMatmul's B");
    const char* c = product.beta != 0 ? matrix(call.c, product.c, "cublasLtMatmul's C") : nullptr;
    multiply(product, a, b, c, matrix(call.d, product.d, "cublasLtMatmul's D"), bias);
}

void release(void* data) { delete static_cast<Call*>(data); }

bool overlap(uint64_t first, size_t first_bytes, uint64_t second, size_t second_bytes) {
    return first < second + second_bytes && second < first + first_bytes;
}

// D must be exactly C's memory or not overlap it.
Status check_places(const Call& call) {
    const Product& product = call.product;
    size_t d = extent(product.d, product.batch);
    bool over_factor = overlap(call.a, extent(product.a, product.batch), call.d, d) ||
                       overlap(call.b, extent(product.b, product.batch), call.d, d);
    if (over_factor) return INVALID_VALUE;
    if (product.beta == 0) return SUCCESS;
    bool same = call.c == call.d && product.c.leading == product.d.leading && product.c.stride == product.d.stride;
    return same || !overlap(call.c, extent(product.c, product.batch), call.d, d) ? SUCCESS : INVALID_VALUE;
}

// Lazy loading: the first product of a shape loads its kernel.
bool load(Handle& handle, uint64_t kind, const Product& product) {
    std::array<uint64_t, 4> shape{kind, uint64_t(product.m), uint64_t(product.n), uint64_t(product.k)};
    std::lock_guard guard(handle.lock);
    if (handle.loaded.contains(shape)) return true;
    if (driver<CudaEmulatorLoad>(CUDA_EMULATOR_LOAD)() != 0) return false;
    return handle.loaded.insert(shape).second;
}

bool aligned(uint64_t pointer, const Operand& operand) { return pointer % bytes_of(operand.type) == 0; }

}  // namespace

EXPORTED size_t cublasLtGetVersion() { return 120903; }

EXPORTED size_t cublasLtGetCudartVersion() { return 12090; }

EXPORTED const char* cublasLtGetStatusName(int status) {
    switch (status) {
        case SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case 3: return "CUBLAS_STATUS_ALLOC_FAILED";
        case INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case 8: return "CUBLAS_STATUS_ARCH_MISMATCH";
        case 11: return "CUBLAS_STATUS_MAPPING_ERROR";
        case EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case 14: return "CUBLAS_STATUS_INTERNAL_ERROR";
        case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        case 16: return "CUBLAS_STATUS_LICENSE_ERROR";
        default: return "unknown error";
    }
}

EXPORTED const char* cublasLtGetStatusString(int status) {
    switch (status) {
        case SUCCESS: return "success";
        case NOT_INITIALIZED: return "the library was not initialized";
        case INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
        case EXECUTION_FAILED: return "the GPU program failed to execute";
        case NOT_SUPPORTED: return "the functionality requested is not supported";
        default: return cublasLtGetStatusName(status);
    }
}

EXPORTED Status cublasLtCreate(Handle** handle) {
    if (handle == nullptr) return INVALID_VALUE;
    // A real driver in place of the emulated one could not run this.
    auto* load = driver<CudaEmulatorLoad>(CUDA_EMULATOR_LOAD);
    if (load == nullptr || load() != 0) return NOT_INITIALIZED;
    *handle = new Handle;
    return SUCCESS;
}

EXPORTED Status cublasLtDestroy(Handle* handle) {
    if (handle == nullptr || handle->magic != HANDLE_MAGIC) return NOT_INITIALIZED;
    handle->magic = 0;
    delete handle;
    return SUCCESS;
}

EXPORTED Status cublasLtMatmulDescCreate(Description** made, int compute, int scale) {
    // The numbers of cublasComputeType_t.
    if (made == nullptr || compute < 64 || compute > 78) return INVALID_VALUE;
    *made = new Description{compute, scale};
    return SUCCESS;
}

EXPORTED Status cublasLtMatmulDescDestroy(Description* of) {
    delete of;
    return SUCCESS;
}

EXPORTED Status cublasLtMatmulDescSetAttribute(Description* of, int attribute, const void* value, size_t bytes) {
    if (of == nullptr) return INVALID_VALUE;
    switch (attribute) {
        case 0: return set(of->compute, value, bytes);
        case 1: return set(of->scale, value, bytes);
        case 2: return set(of->pointer_mode, value, bytes);
        case 3: return set(of->transpose_a, value, bytes);
        case 4: return set(of->transpose_b, value, bytes);
        case 5: return set(of->transpose_c, value, bytes);
        case 6: return set(of->fill, value, bytes);
        case 7: return set(of->epilogue, value, bytes);
        case 8: return set(of->bias, value, bytes);
        case 10: return set(of->bias_stride, value, bytes);
        case 26: return set(of->bias_type, value, bytes);
        default: return NOT_SUPPORTED;
    }
}

EXPORTED Status cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    if (made == nullptr) return INVALID_VALUE;
    *made = new Layout{type, 0, rows, columns, leading};
    return SUCCESS;
}

EXPORTED Status cublasLtMatrixLayoutDestroy(Layout* layout) {
    delete layout;
    return SUCCESS;
}

EXPORTED Status cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* value, size_t bytes) {
    if (layout == nullptr) return INVALID_VALUE;
    switch (attribute) {
        case 0: return set(layout->type, value, bytes);
        case 1: return set(layout->order, value, bytes);
        case 2: return set(layout->rows, value, bytes);
        case 3: return set(layout->columns, value, bytes);
        case 4: return set(layout->leading, value, bytes);
        case 5: return set(layout->batch, value, bytes);
        case 6: return set(layout->stride, value, bytes);
        default: return NOT_SUPPORTED;
    }
}

EXPORTED Status cublasLtMatmulPreferenceCreate(Preference** made) {
    if (made == nullptr) return INVALID_VALUE;
    *made = new Preference;
    return SUCCESS;
}

EXPORTED Status cublasLtMatmulPreferenceDestroy(Preference* preference) {
    delete preference;
    return SUCCESS;
}

EXPORTED Status cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value,
                                                     size_t bytes) {
    if (preference == nullptr) return INVALID_VALUE;
    switch (attribute) {
        case 0: return set(preference->search, value, bytes);
        case 1: return set(preference->workspace, value, bytes);
        case 3: return set(preference->reductions, value, bytes);
        case 5:
        case 6:
        case 7:
        case 8: return set(preference->alignment[attribute - 5], value, bytes);
        case 9: return set(preference->waves, value, bytes);
        case 12: return set(preference->implementations, value, bytes);
        default: return NOT_SUPPORTED;
    }
}

EXPORTED Status cublasLtMatmulAlgoGetHeuristic(Handle* handle, Description* of, Layout* a, Layout* b, Layout* c,
                                               Layout* d, Preference* preference, int requested,
                                               HeuristicResult* results, int* count) {
    if (handle == nullptr || handle->magic != HANDLE_MAGIC) return NOT_INITIALIZED;
    if (!of || !a || !b || !c || !d || !preference || !results || !count || requested < 1) return INVALID_VALUE;
    *count = 0;
    Product product;
    if (Status status = describe(*of, *a, *b, *c, *d, &product)) return status;
    // It asks for the occupancy of kernels.
    if (driver<CudaEmulatorLoad>(CUDA_EMULATOR_LOAD)() != 0) return EXECUTION_FAILED;
    HeuristicResult& result = results[0];
    std::memset(&result, 0, sizeof result);
    Algorithm& chosen = result.algorithm;
    chosen.magic = ALGORITHM_MAGIC;
    chosen.kind = kind_of(*of, product);
    chosen.workspace = result.workspace = std::min(preference->workspace, WORKSPACE);
    std::copy_n(preference->alignment, 4, chosen.alignment);
    chosen.bias_alignment = product.bias ? std::min<uint64_t>(16, alignment_of(of->bias)) : 1;
    // CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, for which a split product has a workspace.
    chosen.rounds_sums = (preference->reductions & 4) != 0 && chosen.workspace > 0;
    result.waves = 1;
    *count = 1;
    return SUCCESS;
}

EXPORTED Status cublasLtMatmul(Handle* handle, Description* of, const float* alpha, const void* a, Layout* a_layout,
                               const void* b, Layout* b_layout, const float* beta, const void* c, Layout* c_layout,
                               void* d, Layout* d_layout, const Algorithm* algorithm, void* workspace,
                               size_t workspace_bytes, void* stream) {
    if (handle == nullptr || handle->magic != HANDLE_MAGIC) return NOT_INITIALIZED;
    if (!of || !alpha || !beta || !a || !b || !d || !a_layout || !b_layout || !c_layout || !d_layout)
        return INVALID_VALUE;
    auto call = std::make_unique<Call>();
    Product& product = call->product;
    if (Status status = describe(*of, *a_layout, *b_layout, *c_layout, *d_layout, &product)) return status;
    product.alpha = *alpha;
    product.beta = *beta;
    auto number = [](const void* pointer) { return reinterpret_cast<uint64_t>(pointer); };
    call->a = number(a), call->b = number(b), call->c = number(c), call->d = number(d), call->bias = of->bias;
    if ((product.beta != 0 && !c) || (product.bias && !of->bias)) return INVALID_VALUE;
    bool elements = aligned(call->a, product.a) && aligned(call->b, product.b) && aligned(call->c, product.c) &&
                    aligned(call->d, product.d) && (!product.bias || aligned(call->bias, product.d));
    if (!elements) return INVALID_VALUE;
    if (algorithm != nullptr) {
        uint64_t pointers[4] = {call->a, call->b, product.beta != 0 ? call->c : 0, call->d};
        Status status = check_algorithm(*algorithm, *of, product, pointers, number(workspace), workspace_bytes);
        if (status != SUCCESS) return status;
        call->workspace = number(workspace);
        call->workspace_bytes = algorithm->workspace;
        product.rounds_sums = algorithm->rounds_sums != 0;
    }
    if (Status status = check_places(*call)) return status;
    if (!load(*handle, kind_of(*of, product), product)) return EXECUTION_FAILED;
    auto* submit = driver<CudaEmulatorSubmit>(CUDA_EMULATOR_SUBMIT);
    return submit(stream, run, call.release(), release) == 0 ? SUCCESS : EXECUTION_FAILED;
}
