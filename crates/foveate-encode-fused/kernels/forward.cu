// files: f32.sm_75 f16.sm_75 f32.sm_80 f16.sm_80 bf16.sm_80
//
// The kernels of a vision transformer's forward pass, other than its matrix products. `cargo xtask kernels` compiles
// this file into the PTX beside it, which is what ships. After a change here, run it and commit both. No header is
// included, so the output depends on this source alone. The emulator compiles the same file for the host.
//
// Every kernel exists as NAME_f32, NAME_f16 and NAME_bf16 (bf16 from compute capability 8.0 on), for an element type
// T. Each type has a file of its own, because the driver compiles a file as a whole. Arithmetic is in f32 whatever T is,
// and a result is rounded to T once, to nearest even. Arrays are row-major, contiguous and aligned to 16 bytes;
// `hidden`, `mlp`, `pitch` and `padded` are multiples of 8. Where a row has `width` values every `pitch` elements, zeros
// are between them. No kernel takes dynamic shared memory.
//
// An image is a sequence of `tokens` rows. Texts have different lengths and lie one behind the other: `starts` has each
// one's first row, and the end of the last one. It is null for images. `tokens` is then the longest text's at least.
// Launches, as grid | threads per block:
//
//   patchify       (rows * columns, images)          | 128
//   patchify_f32   (rows * columns, images)          | 128   pixels in f32
//   embed          (tokens, images)                  | 128
//   layer_norm     ceil(rows / 4)                    | 128
//   activate       ceil(n / 2048)                    | 256
//   swiglu         ceil(rows * mlp / 2048)           | 256
//   rotate         (tokens - prefix, images)         | 128
//   attention      (ceil(tokens / 64), heads, images)| 128
//   attention_mma  (ceil(tokens / 64), heads, images)| 128   f16 and bf16 only
//   pool           images                            | 256
//   widen_rows     rows                              | 128

struct f16 {
    unsigned short bits;
};
struct bf16 {
    unsigned short bits;
};

constexpr unsigned WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float SQRT_HALF = 0.70710678118654752440f;

// ---- PTX instructions that C++ lacks ----

#ifdef EMULATED
#include "shim/twins.h"
#else
#define SHARED_ARRAY(type, name, count) __shared__ type name[count]

__device__ __forceinline__ float widen(f16 value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
}

__device__ __forceinline__ void narrow(float value, f16& to) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
}

#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ void narrow(float value, bf16& to) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
}

__device__ __forceinline__ unsigned narrow_pair(float low, float high, f16) {
    unsigned word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

__device__ __forceinline__ unsigned narrow_pair(float low, float high, bf16) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

// sum += rows * columns, of a warp's 16 x 16 and 16 x 8 fragments (PTX ISA, "Matrix Fragments for mma.m16n8k16").
// Volatile, as every warp-wide operation: the compiler must not move it to where only some lanes execute it.
__device__ __forceinline__ void mma_k16(float (&sum)[4], const unsigned (&rows)[4], const unsigned (&columns)[2], f16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(columns[0]), "r"(columns[1]));
}

__device__ __forceinline__ void mma_k16(float (&sum)[4], const unsigned (&rows)[4], const unsigned (&columns)[2], bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(columns[0]), "r"(columns[1]));
}

// Starts a copy of 16 bytes into shared memory. If not `valid`, it writes zeros and reads nothing.
__device__ __forceinline__ void copy_async(uint4* to, const uint4* from, bool valid) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
}

// Closes the group of copies that this thread started since the previous group.
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all of this thread's groups but the last `PENDING` have arrived.
template <int PENDING>
__device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
#else
// sum += rows * columns, of a warp's 16 x 8 and 8 x 8 fragments (PTX ISA, "Matrix Fragments for mma.m16n8k8").
__device__ __forceinline__ void mma_k8(float (&sum)[4], unsigned top, unsigned bottom, unsigned columns) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(top), "r"(bottom), "r"(columns));
}
#endif

// 2 to the power of `value`, within 2 units in the last place; subnormal results are flushed to 0.
__device__ __forceinline__ float exp2_approx(float value) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
    return power;
}

// Within 1 unit in the last place; 0 for infinity.
__device__ __forceinline__ float reciprocal_approx(float value) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(value));
    return reciprocal;
}

// Loads four 8 x 8 matrices of 2-byte elements from shared memory, one fragment of each per lane. Lanes 8m..8m+8 supply
// the addresses of matrix m's rows.
__device__ __forceinline__ void load_matrices(unsigned (&fragments)[4], const uint4* row) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
                 : "r"(address)
                 : "memory");
}

// As `load_matrices`, each matrix transposed.
__device__ __forceinline__ void load_matrices_transposed(unsigned (&fragments)[4], const uint4* row) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
                 : "r"(address)
                 : "memory");
}
#endif

// ---- Elements ----

__device__ __forceinline__ float widen(float value) { return value; }

__device__ __forceinline__ void narrow(float value, float& to) { to = value; }

__device__ __forceinline__ float widen(bf16 value) {
    return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

#if __CUDA_ARCH__ < 800
// One instruction each on newer chips.
__device__ __forceinline__ unsigned narrow_pair(float low, float high, f16) {
    f16 halves[2];
    narrow(low, halves[0]);
    narrow(high, halves[1]);
    return halves[0].bits | static_cast<unsigned>(halves[1].bits) << 16;
}

__device__ __forceinline__ void mma_k16(float (&sum)[4], const unsigned (&rows)[4], const unsigned (&columns)[2], f16) {
    mma_k8(sum, rows[0], rows[1], columns[0]);
    mma_k8(sum, rows[2], rows[3], columns[1]);
}

__device__ __forceinline__ void copy_async(uint4* to, const uint4* from, bool valid) {
    *to = valid ? *from : make_uint4(0, 0, 0, 0);
}

__device__ __forceinline__ void copies_commit() {}

template <int PENDING>
__device__ __forceinline__ void copies_wait() {}
#endif

// The two elements of a word.
template <class T>
__device__ __forceinline__ float2 widen_pair(unsigned word) {
    const T low = {static_cast<unsigned short>(word)}, high = {static_cast<unsigned short>(word >> 16)};
    return make_float2(widen(low), widen(high));
}

// Elements in 16 bytes: the amount that a thread loads or stores at once.
template <class T>
constexpr int PACK = 16 / sizeof(T);

template <class T>
__device__ __forceinline__ void unpack(const uint4& raw, float (&values)[PACK<T>]) {
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
        if constexpr (sizeof(T) == 4) {
            values[word] = __uint_as_float(words[word]);
        } else {
            const float2 pair = widen_pair<T>(words[word]);
            values[2 * word] = pair.x;
            values[2 * word + 1] = pair.y;
        }
    }
}

template <class T>
__device__ __forceinline__ uint4 load_raw(const T* from) {
    return *reinterpret_cast<const uint4*>(from);
}

template <class T>
__device__ __forceinline__ void load(const T* from, float (&values)[PACK<T>]) {
    unpack<T>(load_raw(from), values);
}

template <class T>
__device__ __forceinline__ void store(T* to, const float (&values)[PACK<T>]) {
    unsigned words[4];
#pragma unroll
    for (int word = 0; word < 4; ++word) {
        if constexpr (sizeof(T) == 4) {
            words[word] = __float_as_uint(values[word]);
        } else {
            words[word] = narrow_pair(values[2 * word], values[2 * word + 1], T{});
        }
    }
    *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}

// Four elements, aligned to four times an element's alignment.
template <class T>
__device__ __forceinline__ float4 load_quad(const T* from) {
    if constexpr (sizeof(T) == 4) {
        return *reinterpret_cast<const float4*>(from);
    } else {
        const uint2 raw = *reinterpret_cast<const uint2*>(from);
        const float2 low = widen_pair<T>(raw.x), high = widen_pair<T>(raw.y);
        return make_float4(low.x, low.y, high.x, high.y);
    }
}

// Two elements, aligned together.
template <class T>
__device__ __forceinline__ float2 load_pair(const T* from) {
    if constexpr (sizeof(T) == 4) {
        return *reinterpret_cast<const float2*>(from);
    } else {
        return widen_pair<T>(*reinterpret_cast<const unsigned*>(from));
    }
}

template <class T>
__device__ __forceinline__ void store_quad(T* to, const float4& values) {
    if constexpr (sizeof(T) == 4) {
        *reinterpret_cast<float4*>(to) = values;
    } else {
        *reinterpret_cast<uint2*>(to) =
            make_uint2(narrow_pair(values.x, values.y, T{}), narrow_pair(values.z, values.w, T{}));
    }
}

// ---- Reductions over the lanes that differ in the bits below `LANES`; every lane gets the same result ----

template <int LANES>
__device__ __forceinline__ float lanes_sum(float value) {
#pragma unroll
    for (int lane = LANES / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(ALL_LANES, value, lane);
    return value;
}

template <int LANES>
__device__ __forceinline__ float lanes_max(float value) {
#pragma unroll
    for (int lane = LANES / 2; lane > 0; lane /= 2) value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, lane));
    return value;
}

// ---- Pixels to tokens ----

// pixels [images, rows * patch, columns * patch, 3] -> patches [images, rows * columns, padded]. Each patch is in the
// order (y, x, channel), as pixel - 128, which every T represents exactly if pixels are bytes; zeros from
// patch * patch * 3 on.
template <class T, class Pixel>
__device__ __forceinline__ void patchify(
    const Pixel* __restrict__ pixels, T* __restrict__ patches, int rows, int columns, int patch, int padded) {
    const int run = patch * 3, used = patch * run;
    const long long line = static_cast<long long>(columns) * run;
    const int row = blockIdx.x / columns, column = blockIdx.x % columns;
    const long long first_line = (static_cast<long long>(blockIdx.y) * rows + row) * patch;
    const Pixel* from = pixels + first_line * line + column * run;
    T* to = patches + (static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x) * padded;
    for (int first = threadIdx.x * PACK<T>; first < padded; first += blockDim.x * PACK<T>) {
        int y = first / run, x = first % run;
        float values[PACK<T>];
#pragma unroll
        for (int at = 0; at < PACK<T>; ++at) {
            values[at] = first + at < used ? static_cast<float>(from[y * line + x]) - 128.0f : 0.0f;
            if (++x == run) {
                x = 0;
                ++y;
            }
        }
        store(to + first, values);
    }
}

// Rows of an image or of a text.
struct Sequence {
    long long first;
    int tokens;
};

__device__ __forceinline__ Sequence sequence_of(const int* __restrict__ starts, int number, int tokens) {
    if (starts == nullptr) return {static_cast<long long>(number) * tokens, tokens};
    return {starts[number], starts[number + 1] - starts[number]};
}

// patches [images, tokens - prefix, hidden], base [tokens, hidden] -> x [rows, hidden]: the base of a token's place, plus
// the patch for the tokens that have one. For texts, `patches` is the table of words, and ids [rows] its rows to take.
template <class T>
__device__ __forceinline__ void embed(
    const T* __restrict__ patches, const float* __restrict__ base, const int* __restrict__ ids,
    const int* __restrict__ starts, T* __restrict__ x, int tokens, int prefix, int hidden) {
    const int token = blockIdx.x, image = blockIdx.y;
    const Sequence own = sequence_of(starts, image, tokens);
    if (token >= own.tokens) return;
    const long long row = own.first + token;
    const long long taken = ids == nullptr ? row - (image + 1LL) * prefix : ids[row];
    const T* patch = patches + taken * hidden;
    const float* start = base + static_cast<long long>(token) * hidden;
    T* to = x + row * hidden;
    for (int column = threadIdx.x * PACK<T>; column < hidden; column += blockDim.x * PACK<T>) {
        float values[PACK<T>] = {};
        if (token >= prefix) load(patch + column, values);
#pragma unroll
        for (int at = 0; at < PACK<T>; at += 4) {
            const float4 four = load_quad(start + column + at);
            values[at] += four.x;
            values[at + 1] += four.y;
            values[at + 2] += four.z;
            values[at + 3] += four.w;
        }
        store(to + column, values);
    }
}

// ---- LayerNorm ----

// A row as a warp sees it: its first columns stay in registers, the columns beyond are read anew in each pass.
template <class T>
struct Row {
    static constexpr int STEP = WARP * PACK<T>;
    static constexpr int KEPT = 1536 / STEP;

    const T* from;
    int width, pitch, lane_column;
    uint4 kept[KEPT];

    __device__ __forceinline__ Row(const T* from, int width, int pitch)
        : from(from), width(width), pitch(pitch), lane_column(threadIdx.x % WARP * PACK<T>) {
#pragma unroll
        for (int step = 0; step < KEPT; ++step) {
            const int column = lane_column + step * STEP;
            if (column < pitch) kept[step] = load_raw(from + column);
        }
    }

    // Calls `use(column, values)` for this lane's columns.
    template <class Use>
    __device__ __forceinline__ void each(Use use) const {
        float values[PACK<T>];
#pragma unroll
        for (int step = 0; step < KEPT; ++step) {
            const int column = lane_column + step * STEP;
            if (column < pitch) {
                unpack<T>(kept[step], values);
                use(column, values);
            }
        }
        for (int column = lane_column + KEPT * STEP; column < pitch; column += STEP) {
            load(from + column, values);
            use(column, values);
        }
    }

    // The mean, and one over the standard deviation. In two passes, because the difference of the mean square and the
    // squared mean cancels the digits that the row's values share.
    __device__ __forceinline__ float2 moments(float eps) const {
        float sum = 0.0f;
        each([&](int, const float (&values)[PACK<T>]) {
#pragma unroll
            for (int at = 0; at < PACK<T>; ++at) sum += values[at];
        });
        const float mean = lanes_sum<WARP>(sum) / width;
        float squares = 0.0f;
        each([&](int column, const float (&values)[PACK<T>]) {
#pragma unroll
            for (int at = 0; at < PACK<T>; ++at) {
                const float deviation = column + at < width ? values[at] - mean : 0.0f;
                squares += deviation * deviation;
            }
        });
        return make_float2(mean, rsqrtf(lanes_sum<WARP>(squares) / width + eps));
    }
};

// x [rows, pitch] -> y [rows, pitch]: (x - mean) / sqrt(variance + eps) * scale + shift, with the moments of `width`
// values. One warp per row. `taken` has the rows of x to take, null for all of them.
template <class T>
__device__ __forceinline__ void layer_norm(
    const T* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift, T* __restrict__ y,
    const int* __restrict__ taken, int rows, int width, int pitch, float eps) {
    const int row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (row >= rows) return;
    const long long start = static_cast<long long>(row) * pitch;
    const Row<T> in(x + (taken == nullptr ? start : static_cast<long long>(taken[row]) * pitch), width, pitch);
    const float2 moments = in.moments(eps);
    in.each([&](int column, const float (&values)[PACK<T>]) {
        float result[PACK<T>];
#pragma unroll
        for (int at = 0; at < PACK<T>; at += 4) {
            const float4 scales = load_quad(scale + column + at), shifts = load_quad(shift + column + at);
            result[at] = (values[at] - moments.x) * moments.y * scales.x + shifts.x;
            result[at + 1] = (values[at + 1] - moments.x) * moments.y * scales.y + shifts.y;
            result[at + 2] = (values[at + 2] - moments.x) * moments.y * scales.z + shifts.z;
            result[at + 3] = (values[at + 3] - moments.x) * moments.y * scales.w + shifts.w;
        }
        store(y + start + column, result);
    });
}

// ---- Activations ----

constexpr int ACTIVATIONS_PER_THREAD = 8;

// x * Phi(x), by the error function. Two-byte elements use formula 7.1.26 of Abramowitz and Stegun, "Handbook of
// Mathematical Functions": its error is below 1.5e-7, and it is fast enough that memory limits the kernel.
template <class T>
__device__ __forceinline__ float gelu_of(float x) {
    if constexpr (sizeof(T) == 4) {
        return x * (0.5f + 0.5f * erff(x * SQRT_HALF));
    } else {
        const float t = reciprocal_approx(fmaf(0.3275911f * SQRT_HALF, fabsf(x), 1.0f));
        float tail = fmaf(1.061405429f, t, -1.453152027f);
        tail = fmaf(tail, t, 1.421413741f);
        tail = fmaf(tail, t, -0.284496736f);
        tail = fmaf(tail, t, 0.254829592f) * t * exp2_approx(x * x * (-0.5f * LOG2_E));
        return fmaxf(x, 0.0f) - 0.5f * fabsf(x) * tail;
    }
}

__device__ __forceinline__ float sigmoid(float x) { return reciprocal_approx(1.0f + exp2_approx(-LOG2_E * x)); }

enum Activation { GELU, GELU_TANH, QUICK_GELU, RELU };

// GELU_TANH: x / 2 * (1 + tanh(y)) = x * sigmoid(2 y), y = sqrt(2 / pi) * (x + 0.044715 x^3).
template <class T>
__device__ __forceinline__ float activated(float x, int function) {
    if (function == GELU) return gelu_of<T>(x);
    // Unlike fmaxf, it keeps a NaN.
    if (function == RELU) return x < 0.0f ? 0.0f : x;
    return x * sigmoid(function == GELU_TANH ? 1.59576912160573f * (x + 0.044715f * x * x * x) : 1.702f * x);
}

// x [n], in place: function(x), one of Activation. `n` is a multiple of 8.
template <class T>
__device__ __forceinline__ void activate(T* x, long long n, int function) {
    const long long block = static_cast<long long>(blockIdx.x) * blockDim.x * ACTIVATIONS_PER_THREAD;
#pragma unroll
    for (int step = 0; step < ACTIVATIONS_PER_THREAD / PACK<T>; ++step) {
        const long long first = block + (step * blockDim.x + threadIdx.x) * PACK<T>;
        if (first >= n) return;
        float values[PACK<T>];
        load(x + first, values);
#pragma unroll
        for (int at = 0; at < PACK<T>; ++at) values[at] = activated<T>(values[at], function);
        store(x + first, values);
    }
}

// x [rows, 2 * mlp] -> y [rows, mlp]: silu(x[:, :mlp]) * x[:, mlp:]. rows * mlp is below 2^34.
template <class T>
__device__ __forceinline__ void swiglu(const T* __restrict__ x, T* __restrict__ y, long long rows, int mlp) {
    const unsigned packs_per_row = mlp / PACK<T>;
    const long long packs = rows * packs_per_row;
    const unsigned block = blockIdx.x * (blockDim.x * ACTIVATIONS_PER_THREAD / PACK<T>);
#pragma unroll
    for (int step = 0; step < ACTIVATIONS_PER_THREAD / PACK<T>; ++step) {
        const unsigned pack = block + step * blockDim.x + threadIdx.x;
        if (pack >= packs) return;
        const unsigned row = pack / packs_per_row, column = pack % packs_per_row * PACK<T>;
        const T* gates = x + static_cast<long long>(row) * 2 * mlp + column;
        float gate[PACK<T>], values[PACK<T>];
        load(gates, gate);
        load(gates + mlp, values);
#pragma unroll
        for (int at = 0; at < PACK<T>; ++at) {
            values[at] *= gate[at] * sigmoid(gate[at]);
        }
        store(y + static_cast<long long>(row) * mlp + column, values);
    }
}

// ---- Rotary positions ----

// qkv [images, tokens, 3, heads, dim], in place: in each head of the queries and keys of tokens from `prefix` on, the
// values a, b at i and i + half become a cos - b sin and b cos + a sin. cosines, sines [tokens - prefix, half].
template <class T>
__device__ __forceinline__ void rotate(
    T* qkv, const float* __restrict__ cosines, const float* __restrict__ sines, int tokens, int prefix, int heads,
    int dim, int half) {
    const long long token = static_cast<long long>(blockIdx.y) * tokens + prefix + blockIdx.x;
    T* queries_and_keys = qkv + token * 3 * heads * dim;
    for (int pair = threadIdx.x; pair < 2 * heads * half; pair += blockDim.x) {
        const int i = pair % half;
        T* at = queries_and_keys + pair / half * dim + i;
        const float a = widen(at[0]), b = widen(at[half]);
        const float cosine = cosines[blockIdx.x * half + i], sine = sines[blockIdx.x * half + i];
        narrow(a * cosine - b * sine, at[0]);
        narrow(b * cosine + a * sine, at[half]);
    }
}

// ---- Attention ----
//
// qkv [rows, 3, heads, dim] -> out [rows, heads, dim]: softmax(scale * q k^T) v per sequence and head, `scale` above 0;
// if `causal`, over no keys behind the query's. A block takes 64 queries over all keys, tile by tile, with the running
// maximum and sum of Milakov and Gimelshein ("Online normalizer calculation for softmax", 2018); scores never leave the
// chip. Every query attends to key 0, so its maximum is finite from the first tile on.

constexpr int QUERIES = 64;

// The end of the keys that `query` attends to, unless the sequence ends before it.
__device__ __forceinline__ int seen_by(int query, bool causal) { return causal ? query + 1 : 1 << 30; }

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }

// Any dim up to 256 that is a multiple of 4, in f32 without tensor cores. Threads form 8 rows of 16: a thread has
// every 8th query, every 16th key of a tile for the scores and four neighbouring columns of each 64 for the result. Row
// strides put what 8 (of 16 bytes) or 32 (of 4) threads access at once into different banks.
template <class T, int DIM, int ROWS, int KEYS>
struct Attention {
    static constexpr int THREADS = 128, STRIDE = DIM + 4, WEIGHT_STRIDE = KEYS + 16;
    static constexpr int QUERIES_EACH = ROWS / 8, KEYS_EACH = KEYS / 16, COLUMNS_EACH = DIM / 64;
    static constexpr int FLOATS = ROWS * STRIDE + KEYS * STRIDE + ROWS * WEIGHT_STRIDE;

    // Rows first..first + COUNT of one head's queries, keys or values, in f32; zeros outside the matrix.
    template <int COUNT>
    static __device__ __forceinline__ void stage(
        float* to, const T* __restrict__ from, long long pitch, int first, int tokens, int dim) {
        constexpr int QUADS = DIM / 4;
#pragma unroll 4
        for (int quad = threadIdx.x; quad < COUNT * QUADS; quad += THREADS) {
            const int row = quad / QUADS, column = quad % QUADS * 4;
            float4 values = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (first + row < tokens && column < dim) values = load_quad(from + (first + row) * pitch + column);
            *reinterpret_cast<float4*>(to + row * STRIDE + column) = values;
        }
    }

    static __device__ __forceinline__ void run(
        float* shared, const T* __restrict__ qkv, T* __restrict__ out, int first_query, int tokens, int heads, int dim,
        bool causal, float scale) {
        if (first_query >= tokens) return;
        float* queries = shared;
        float* tile = queries + ROWS * STRIDE;
        float* weights = tile + KEYS * STRIDE;
        const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
        const long long width = static_cast<long long>(heads) * dim, pitch = 3 * width;
        const T* q = qkv + blockIdx.y * dim;

        float sum[QUERIES_EACH] = {}, maximum[QUERIES_EACH], result[QUERIES_EACH][COLUMNS_EACH * 4] = {};
#pragma unroll
        for (int i = 0; i < QUERIES_EACH; ++i) maximum[i] = minus_infinity();
        stage<ROWS>(queries, q, pitch, first_query, tokens, dim);
        for (int first_key = 0; first_key < tokens; first_key += KEYS) {
            stage<KEYS>(tile, q + width, pitch, first_key, tokens, dim);
            __syncthreads();
            float scores[QUERIES_EACH][KEYS_EACH] = {};
            score(queries, tile, ty, tx, scores);
            mask(tokens - first_key, seen_by(first_query + ty, causal) - first_key, tx, scores);
            soften(weights, ty, tx, scale * LOG2_E, scores, maximum, sum, result);
            __syncthreads();
            stage<KEYS>(tile, q + 2 * width, pitch, first_key, tokens, dim);
            __syncthreads();
            mix(weights, tile, ty, tx, result);
            __syncthreads();
        }

        T* to = out + blockIdx.y * dim;
#pragma unroll
        for (int i = 0; i < QUERIES_EACH; ++i) {
            const int query = first_query + ty + 8 * i;
            const float norm = 1.0f / lanes_sum<16>(sum[i]);
#pragma unroll
            for (int c = 0; c < COLUMNS_EACH; ++c) {
                const int column = tx * 4 + c * 64;
                if (query >= tokens || column >= dim) continue;
                const float* r = &result[i][c * 4];
                const float4 values = make_float4(r[0] * norm, r[1] * norm, r[2] * norm, r[3] * norm);
                store_quad(to + query * width + column, values);
            }
        }
    }

    // scores = queries * keys^T
    static __device__ __forceinline__ void score(
        const float* queries, const float* keys, int ty, int tx, float (&scores)[QUERIES_EACH][KEYS_EACH]) {
#pragma unroll 2
        for (int d = 0; d < DIM; d += 4) {
            float4 k[KEYS_EACH];
#pragma unroll
            for (int j = 0; j < KEYS_EACH; ++j) {
                k[j] = *reinterpret_cast<const float4*>(keys + (tx + 16 * j) * STRIDE + d);
            }
#pragma unroll
            for (int i = 0; i < QUERIES_EACH; ++i) {
                const float4 q = *reinterpret_cast<const float4*>(queries + (ty + 8 * i) * STRIDE + d);
#pragma unroll
                for (int j = 0; j < KEYS_EACH; ++j) {
                    scores[i][j] += q.x * k[j].x + q.y * k[j].y + q.z * k[j].z + q.w * k[j].w;
                }
            }
        }
    }

    // Of a tile's `keys` keys, this thread's first query attends to the first `seen`.
    static __device__ __forceinline__ void mask(
        int keys, int seen, int tx, float (&scores)[QUERIES_EACH][KEYS_EACH]) {
#pragma unroll
        for (int i = 0; i < QUERIES_EACH; ++i) {
#pragma unroll
            for (int j = 0; j < KEYS_EACH; ++j) {
                if (tx + 16 * j >= min(keys, seen + 8 * i)) scores[i][j] = minus_infinity();
            }
        }
    }

    // Turns scores into unnormalized weights, against a maximum that may have grown; earlier sums are rescaled to it.
    static __device__ __forceinline__ void soften(
        float* weights, int ty, int tx, float factor, const float (&scores)[QUERIES_EACH][KEYS_EACH],
        float (&maximum)[QUERIES_EACH], float (&sum)[QUERIES_EACH], float (&result)[QUERIES_EACH][COLUMNS_EACH * 4]) {
#pragma unroll
        for (int i = 0; i < QUERIES_EACH; ++i) {
            float highest = maximum[i];
#pragma unroll
            for (int j = 0; j < KEYS_EACH; ++j) {
                highest = fmaxf(highest, scores[i][j]);
            }
            highest = lanes_max<16>(highest);
            const float shrink = exp2_approx((maximum[i] - highest) * factor);
            maximum[i] = highest;
            sum[i] *= shrink;
#pragma unroll
            for (int c = 0; c < COLUMNS_EACH * 4; ++c) result[i][c] *= shrink;
#pragma unroll
            for (int j = 0; j < KEYS_EACH; ++j) {
                const float weight = exp2_approx((scores[i][j] - highest) * factor);
                sum[i] += weight;
                weights[(ty + 8 * i) * WEIGHT_STRIDE + tx + 16 * j] = weight;
            }
        }
    }

    // result += weights * values
    static __device__ __forceinline__ void mix(
        const float* weights, const float* values, int ty, int tx, float (&result)[QUERIES_EACH][COLUMNS_EACH * 4]) {
#pragma unroll 1
        for (int key = 0; key < KEYS; key += 4) {
            float4 v[4][COLUMNS_EACH];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
#pragma unroll
                for (int c = 0; c < COLUMNS_EACH; ++c) {
                    v[k][c] = *reinterpret_cast<const float4*>(values + (key + k) * STRIDE + tx * 4 + c * 64);
                }
            }
#pragma unroll
            for (int i = 0; i < QUERIES_EACH; ++i) {
                const float4 w = *reinterpret_cast<const float4*>(weights + (ty + 8 * i) * WEIGHT_STRIDE + key);
#pragma unroll
                for (int c = 0; c < COLUMNS_EACH; ++c) {
                    float* r = &result[i][c * 4];
                    r[0] += w.x * v[0][c].x + w.y * v[1][c].x + w.z * v[2][c].x + w.w * v[3][c].x;
                    r[1] += w.x * v[0][c].y + w.y * v[1][c].y + w.z * v[2][c].y + w.w * v[3][c].y;
                    r[2] += w.x * v[0][c].z + w.y * v[1][c].z + w.z * v[2][c].z + w.w * v[3][c].z;
                    r[3] += w.x * v[0][c].w + w.y * v[1][c].w + w.z * v[2][c].w + w.w * v[3][c].w;
                }
            }
        }
    }
};

template <class T>
__device__ __forceinline__ void attention(
    const T* __restrict__ qkv, T* __restrict__ out, const int* __restrict__ starts, int tokens, int heads, int dim,
    bool causal, float scale) {
    using Usual = Attention<T, 64, QUERIES, 32>;
    // Fewer queries at a time, so that the shared memory of the usual case is enough.
    using Wide = Attention<T, 128, QUERIES / 2, 16>;
    using Widest = Attention<T, 256, QUERIES / 4, 16>;
    static_assert(Wide::FLOATS <= Usual::FLOATS && Widest::FLOATS <= Usual::FLOATS);
    SHARED_ARRAY(float4, shared, Usual::FLOATS / 4);
    float* floats = reinterpret_cast<float*>(shared);
    const int first = blockIdx.x * QUERIES;
    const Sequence own = sequence_of(starts, blockIdx.z, tokens);
    const T* from = qkv + own.first * 3 * heads * dim;
    T* to = out + own.first * heads * dim;
    if (dim <= 64) {
        Usual::run(floats, from, to, first, own.tokens, heads, dim, causal, scale);
    } else if (dim <= 128) {
#pragma unroll 1
        for (int half = 0; half < QUERIES; half += QUERIES / 2) {
            Wide::run(floats, from, to, first + half, own.tokens, heads, dim, causal, scale);
        }
    } else {
#pragma unroll 1
        for (int quarter = 0; quarter < QUERIES; quarter += QUERIES / 4) {
            Widest::run(floats, from, to, first + quarter, own.tokens, heads, dim, causal, scale);
        }
    }
}

// dim 64 on the tensor cores. A warp has 16 queries, as fragments in registers. Tiles of 64 keys and values are loaded
// into one half of shared memory while the other half is in use. A lane has the rows lane / 4 and lane / 4 + 8 of the
// products, and of each 8 columns the two from lane % 4 * 2 on.
template <class T>
struct TensorAttention {
    static constexpr int THREADS = 128, DIM = 64, KEYS = 64, CHUNKS = DIM / PACK<T>;

    // 16-byte chunks of 64 rows. All rows would start in the same bank, so the row number permutes a row's chunks.
    struct Tile {
        uint4 chunks[KEYS * CHUNKS];

        __device__ __forceinline__ uint4* at(int row, int chunk) {
            return &chunks[row * CHUNKS + (chunk ^ (row % CHUNKS))];
        }
    };

    struct Stage {
        Tile keys, values;
    };

    unsigned queries[DIM / 16][4];
    float maximum[2] = {minus_infinity(), minus_infinity()}, sum[2] = {}, result[DIM / 8][4] = {};

    // Starts copying the keys and values from `first` on, with zeros behind the last token.
    static __device__ __forceinline__ void fetch(
        Stage& stage, const T* __restrict__ keys, long long width, long long pitch, int first, int tokens) {
#pragma unroll
        for (int step = 0; step < KEYS * CHUNKS / THREADS; ++step) {
            const int at = step * THREADS + threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
            const bool valid = first + row < tokens;
            const T* from = keys + (valid ? first + row : 0) * pitch + chunk * PACK<T>;
            copy_async(stage.keys.at(row, chunk), reinterpret_cast<const uint4*>(from), valid);
            copy_async(stage.values.at(row, chunk), reinterpret_cast<const uint4*>(from + width), valid);
        }
    }

    __device__ __forceinline__ void load_queries(const T* __restrict__ from, long long pitch, int first, int tokens) {
        const int lane = threadIdx.x % WARP;
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            const int row = first + lane / 4 + part % 2 * 8, column = part / 2 * 8 + lane % 4 * 2;
#pragma unroll
            for (int step = 0; step < DIM / 16; ++step) {
                const T* pair = from + row * pitch + step * 16 + column;
                queries[step][part] = row < tokens ? *reinterpret_cast<const unsigned*>(pair) : 0;
            }
        }
    }

    // One tile of `keys` keys. All queries attend to all 64 unless it is MASKED: this lane's first query then attends
    // to the first `seen`.
    template <bool MASKED>
    __device__ __forceinline__ void step(Stage& stage, int keys, int seen, float factor) {
        float scores[KEYS / 8][4] = {};
        score<MASKED>(stage.keys, keys, scores);
        if (MASKED) mask(keys, seen, scores);
        soften(factor, scores);
        mix<MASKED>(stage.values, keys, scores);
    }

    // scores = queries * keys^T, 16 keys at a time, as many as there are.
    template <bool MASKED>
    __device__ __forceinline__ void score(Tile& tile, int keys, float (&scores)[KEYS / 8][4]) {
        const int lane = threadIdx.x % WARP;
#pragma unroll
        for (int block = 0; block < KEYS / 8; ++block) {
            if (MASKED && block / 2 * 16 >= keys) break;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                unsigned k[4];
                load_matrices(k, tile.at(block * 8 + lane % 8, half * 4 + lane / 8));
                mma_k16(scores[block], queries[half * 2], {k[0], k[1]}, T{});
                mma_k16(scores[block], queries[half * 2 + 1], {k[2], k[3]}, T{});
            }
        }
    }

    static __device__ __forceinline__ void mask(int keys, int seen, float (&scores)[KEYS / 8][4]) {
        const int column = threadIdx.x % 4 * 2;
#pragma unroll
        for (int block = 0; block < KEYS / 8; ++block) {
#pragma unroll
            for (int at = 0; at < 4; ++at) {
                const int end = min(keys, seen + at / 2 * 8);
                if (block * 8 + column + at % 2 >= end) scores[block][at] = minus_infinity();
            }
        }
    }

    // Turns scores into unnormalized weights, against a maximum that may have grown; earlier sums are rescaled to it.
    __device__ __forceinline__ void soften(float factor, float (&scores)[KEYS / 8][4]) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            float highest = maximum[row];
#pragma unroll
            for (int block = 0; block < KEYS / 8; ++block) {
                highest = fmaxf(highest, fmaxf(scores[block][row * 2], scores[block][row * 2 + 1]));
            }
            highest = lanes_max<4>(highest);
            const float shrink = exp2_approx((maximum[row] - highest) * factor), offset = highest * factor;
            maximum[row] = highest;
            sum[row] *= shrink;
#pragma unroll
            for (int block = 0; block < DIM / 8; ++block) {
                result[block][row * 2] *= shrink;
                result[block][row * 2 + 1] *= shrink;
            }
#pragma unroll
            for (int block = 0; block < KEYS / 8; ++block) {
#pragma unroll
                for (int at = row * 2; at < row * 2 + 2; ++at) {
                    scores[block][at] = exp2_approx(fmaf(scores[block][at], factor, -offset));
                    sum[row] += scores[block][at];
                }
            }
        }
    }

    // result += weights * values. A lane's scores are already the fragment that it needs of the left factor.
    template <bool MASKED>
    __device__ __forceinline__ void mix(Tile& tile, int keys, const float (&weights)[KEYS / 8][4]) {
        const int lane = threadIdx.x % WARP, row = lane % 16, side = lane / 16;
#pragma unroll
        for (int group = 0; group < KEYS / 16; ++group) {
            if (MASKED && group * 16 >= keys) break;
            const float(&left)[4] = weights[group * 2], (&right)[4] = weights[group * 2 + 1];
            const unsigned w[4] = {narrow_pair(left[0], left[1], T{}), narrow_pair(left[2], left[3], T{}),
                                   narrow_pair(right[0], right[1], T{}), narrow_pair(right[2], right[3], T{})};
#pragma unroll
            for (int pair = 0; pair < DIM / 16; ++pair) {
                unsigned v[4];
                load_matrices_transposed(v, tile.at(group * 16 + row, pair * 2 + side));
                mma_k16(result[pair * 2], w, {v[0], v[1]}, T{});
                mma_k16(result[pair * 2 + 1], w, {v[2], v[3]}, T{});
            }
        }
    }

    __device__ __forceinline__ void write(T* __restrict__ out, long long width, int first, int tokens) {
        const int lane = threadIdx.x % WARP;
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const int query = first + lane / 4 + row * 8;
            const float norm = 1.0f / lanes_sum<4>(sum[row]);
            if (query >= tokens) continue;
#pragma unroll
            for (int block = 0; block < DIM / 8; ++block) {
                const float low = result[block][row * 2] * norm, high = result[block][row * 2 + 1] * norm;
                T* to = out + query * width + block * 8 + lane % 4 * 2;
                *reinterpret_cast<unsigned*>(to) = narrow_pair(low, high, T{});
            }
        }
    }
};

template <class T>
__device__ __forceinline__ void attention_mma(
    const T* __restrict__ qkv, T* __restrict__ out, const int* __restrict__ starts, int tokens, int heads, bool causal,
    float scale) {
    using Mma = TensorAttention<T>;
    SHARED_ARRAY(typename Mma::Stage, stages, 2);
    const Sequence own = sequence_of(starts, blockIdx.z, tokens);
    tokens = own.tokens;
    if (static_cast<int>(blockIdx.x) * QUERIES >= tokens) return;
    const long long width = static_cast<long long>(heads) * Mma::DIM, pitch = 3 * width;
    const T* queries = qkv + own.first * pitch + blockIdx.y * Mma::DIM;
    const T* keys = queries + width;
    const int first_query = blockIdx.x * QUERIES + threadIdx.x / WARP * 16;
    const bool has_queries = first_query < tokens;
    const float factor = scale * LOG2_E;

    Mma::fetch(stages[0], keys, width, pitch, 0, tokens);
    copies_commit();
    Mma attention;
    attention.load_queries(queries, pitch, first_query, tokens);
    for (int first = 0, now = 0; first < tokens; first += Mma::KEYS, now ^= 1) {
        const int left = tokens - first;
        if (left > Mma::KEYS) {
            Mma::fetch(stages[now ^ 1], keys, width, pitch, first + Mma::KEYS, tokens);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        const bool is_whole = left >= Mma::KEYS && !causal;
        const int seen = seen_by(first_query + threadIdx.x % WARP / 4, causal) - first;
        if (has_queries && is_whole) attention.template step<false>(stages[now], left, seen, factor);
        if (has_queries && !is_whole) attention.template step<true>(stages[now], left, seen, factor);
        __syncthreads();
    }
    if (has_queries) {
        attention.write(out + own.first * width + blockIdx.y * Mma::DIM, width, first_query, tokens);
    }
}

// ---- Tokens to one row ----

enum Pooling { TOKEN, MEAN, TOKEN_AND_MEAN };

// x [rows, pitch] -> out [sequences, width] (f32), or [sequences, 2 * width] for TOKEN_AND_MEAN: after LayerNorm, one
// `token`, the mean of the tokens from `prefix` on, or both side by side. `width` is even.
template <class T>
__device__ __forceinline__ void pool(
    const T* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift, float* __restrict__ out,
    const int* __restrict__ starts, int tokens, int prefix, int width, int pitch, int token, int mode, float eps) {
    constexpr int SPAN = 256;
    SHARED_ARRAY(float2, moments, SPAN);
    const Sequence own = sequence_of(starts, blockIdx.x, tokens);
    const T* from = x + own.first * pitch;
    float* of_token = out + static_cast<long long>(blockIdx.x) * width * (mode == TOKEN_AND_MEAN ? 2 : 1);
    float* of_mean = of_token + (mode == TOKEN_AND_MEAN ? width : 0);
    const int patches = own.tokens - prefix, spans = mode == TOKEN ? 0 : (patches + SPAN - 1) / SPAN;
    // Span -1, before the first, is the one token.
    for (int span = mode == MEAN ? 0 : -1; span < spans; ++span) {
        const bool is_token = span < 0;
        const int done = is_token ? 0 : span * SPAN, count = is_token ? 1 : min(SPAN, patches - done);
        const bool is_last = is_token || done + count == patches;
        const float share = is_token ? 1.0f : 1.0f / patches;
        const T* rows = from + static_cast<long long>(is_token ? token : prefix + done) * pitch;
        float* to = is_token ? of_token : of_mean;
        __syncthreads();
        for (int row = threadIdx.x / WARP; row < count; row += blockDim.x / WARP) {
            const float2 found = Row<T>(rows + static_cast<long long>(row) * pitch, width, pitch).moments(eps);
            if (threadIdx.x % WARP == 0) moments[row] = found;
        }
        __syncthreads();
        for (int column = threadIdx.x * 2; column < width; column += blockDim.x * 2) {
            // A thread has the same columns in every span, so the output holds the sums so far.
            float2 sums = done > 0 ? make_float2(to[column], to[column + 1]) : make_float2(0.0f, 0.0f);
#pragma unroll 8
            for (int row = 0; row < count; ++row) {
                const float2 values = load_pair(rows + static_cast<long long>(row) * pitch + column);
                sums.x += (values.x - moments[row].x) * moments[row].y;
                sums.y += (values.y - moments[row].x) * moments[row].y;
            }
            to[column] = is_last ? sums.x * share * scale[column] + shift[column] : sums.x;
            to[column + 1] = is_last ? sums.y * share * scale[column + 1] + shift[column + 1] : sums.y;
        }
    }
}

// x [rows, pitch] -> out [rows, width] (f32).
template <class T>
__device__ __forceinline__ void widen_rows(const T* __restrict__ x, float* __restrict__ out, int width, int pitch) {
    const T* from = x + static_cast<long long>(blockIdx.x) * pitch;
    float* to = out + static_cast<long long>(blockIdx.x) * width;
    for (int column = threadIdx.x; column < width; column += blockDim.x) to[column] = widen(from[column]);
}

// ---- Exported kernels ----
//
// pool is bounded to one block per multiprocessor, which keeps the compiler from spilling a row to fit more of them.

#define KERNELS(T)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(128) patchify_##T(                                                    \
        const unsigned char* pixels, T* patches, int rows, int columns, int patch, int padded) {                       \
        patchify<T>(pixels, patches, rows, columns, patch, padded);                                                    \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) patchify_f32_##T(                                                \
        const float* pixels, T* patches, int rows, int columns, int patch, int padded) {                               \
        patchify<T>(pixels, patches, rows, columns, patch, padded);                                                    \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) embed_##T(                                                       \
        const T* patches, const float* base, const int* ids, const int* starts, T* x, int tokens, int prefix,          \
        int hidden) {                                                                                                  \
        embed<T>(patches, base, ids, starts, x, tokens, prefix, hidden);                                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) layer_norm_##T(                                                  \
        const T* x, const float* scale, const float* shift, T* y, const int* taken, int rows, int width, int pitch,    \
        float eps) {                                                                                                   \
        layer_norm<T>(x, scale, shift, y, taken, rows, width, pitch, eps);                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) activate_##T(T* x, long long n, int function) {                  \
        activate<T>(x, n, function);                                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) swiglu_##T(const T* x, T* y, long long rows, int mlp) {          \
        swiglu<T>(x, y, rows, mlp);                                                                                    \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) rotate_##T(                                                      \
        T* qkv, const float* cosines, const float* sines, int tokens, int prefix, int heads, int dim, int half) {      \
        rotate<T>(qkv, cosines, sines, tokens, prefix, heads, dim, half);                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) attention_##T(                                                   \
        const T* qkv, T* out, const int* starts, int tokens, int heads, int dim, int causal, float scale) {            \
        attention<T>(qkv, out, starts, tokens, heads, dim, causal != 0, scale);                                        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 1) pool_##T(                                                     \
        const T* x, const float* scale, const float* shift, float* out, const int* starts, int tokens, int prefix,     \
        int width, int pitch, int token, int mode, float eps) {                                                        \
        pool<T>(x, scale, shift, out, starts, tokens, prefix, width, pitch, token, mode, eps);                         \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) widen_rows_##T(const T* x, float* out, int width, int pitch) {   \
        widen_rows<T>(x, out, width, pitch);                                                                           \
    }

#define TENSOR_KERNELS(T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(128) attention_mma_##T(                                               \
        const T* qkv, T* out, const int* starts, int tokens, int heads, int causal, float scale) {                     \
        attention_mma<T>(qkv, out, starts, tokens, heads, causal != 0, scale);                                         \
    }

using f32 = float;
#if defined FILE_f32 || defined EMULATED
KERNELS(f32)
#endif
#if defined FILE_f16 || defined EMULATED
KERNELS(f16)
TENSOR_KERNELS(f16)
#endif
#if defined FILE_bf16 || (defined EMULATED && __CUDA_ARCH__ >= 800)
KERNELS(bf16)
TENSOR_KERNELS(bf16)
#endif
