#include "cublaslt/product.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace {

// The block of the result that fits in registers: two vectors of rows by some columns.
#if defined(__AVX512F__)
constexpr int LANES = 16, COLUMNS = 12;
#elif defined(__AVX2__)
constexpr int LANES = 8, COLUMNS = 6;
#else
constexpr int LANES = 4, COLUMNS = 4;
#endif
constexpr int ROWS = 2 * LANES;
// A packed block of A [ROW_BLOCK, DEPTH_BLOCK] stays in the second-level cache.
constexpr int64_t DEPTH_BLOCK = 256, ROW_BLOCK = 8 * ROWS;
// Below this many multiplications another thread costs more than it saves.
constexpr int64_t WORTH_A_THREAD = 1 << 21;

typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

float load(const char* at, Type type, int64_t index) {
    if (type == F32) return reinterpret_cast<const float*>(at)[index];
    uint16_t bits = reinterpret_cast<const uint16_t*>(at)[index];
    return type == F16 ? from_f16(bits) : from_bf16(bits);
}

void store(char* at, Type type, int64_t index, float value) {
    if (type == F32) {
        reinterpret_cast<float*>(at)[index] = value;
    } else {
        reinterpret_cast<uint16_t*>(at)[index] = type == F16 ? to_f16(value) : to_bf16(value);
    }
}

template <Type TYPE>
void pack_as(const char* from, int64_t across, int64_t along, int64_t count, int64_t depth, int width, bool tf32,
             float* to) {
    for (int64_t first = 0; first < count; first += width) {
        for (int lane = 0; lane < width; lane++) {
            bool inside = first + lane < count;
            for (int64_t p = 0; p < depth; p++) {
                float value = inside ? load(from, TYPE, (first + lane) * across + p * along) : 0.0f;
                to[p * width + lane] = tf32 ? to_tf32(value) : value;
            }
        }
        to += width * depth;
    }
}

// Packs `count` vectors of length `depth` into panels of `width`, in which elements of equal depth are neighbours; the
// last panel is padded with 0. `across` and `along` are the source's strides from vector to vector and in depth.
void pack(const char* from, Type type, int64_t across, int64_t along, int64_t count, int64_t depth, int width,
          bool tf32, float* to) {
    switch (type) {
        case F32: return pack_as<F32>(from, across, along, count, depth, width, tf32, to);
        case F16: return pack_as<F16>(from, across, along, count, depth, width, tf32, to);
        default: return pack_as<BF16>(from, across, along, count, depth, width, tf32, to);
    }
}

// Adds the product of one panel of A and one of B to a block of sums.
void kernel(const float* a, const float* b, int64_t depth, float* sums, int64_t leading) {
    Vector total[COLUMNS][2] = {};
    for (int64_t p = 0; p < depth; p++) {
        Vector low = *reinterpret_cast<const Vector*>(a + p * ROWS);
        Vector high = *reinterpret_cast<const Vector*>(a + p * ROWS + LANES);
#pragma GCC unroll 16
        for (int column = 0; column < COLUMNS; column++) {
            float factor = b[p * COLUMNS + column];
            total[column][0] += low * factor;
            total[column][1] += high * factor;
        }
    }
#pragma GCC unroll 16
    for (int column = 0; column < COLUMNS; column++) {
        *reinterpret_cast<Vector*>(sums + column * leading) += total[column][0];
        *reinterpret_cast<Vector*>(sums + column * leading + LANES) += total[column][1];
    }
}

struct Range {
    int64_t first, end;
    int64_t count() const { return end - first; }
};

int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

void finish(const Product& product, Range rows, Range columns, const float* sums, int64_t leading, const char* c,
            char* d, const char* bias) {
    for (int64_t column = columns.first; column < columns.end; column++) {
        const float* sum = sums + (column - columns.first) * leading;
        for (int64_t row = rows.first; row < rows.end; row++) {
            float value = product.alpha * sum[row - rows.first];
            if (product.beta != 0) value += product.beta * load(c, product.c.type, column * product.c.leading + row);
            if (product.bias) value += load(bias, product.d.type, row);
            store(d, product.d.type, column * product.d.leading + row, value);
        }
    }
}

void multiply_part(const Product& product, Range rows, Range columns, const char* a, const char* b, const char* c,
                   char* d, const char* bias) {
    int64_t leading = round_up(rows.count(), ROWS), width = round_up(columns.count(), COLUMNS);
    std::vector<float> sums(static_cast<size_t>(leading * width));
    std::vector<float> packed_a(static_cast<size_t>(ROW_BLOCK * DEPTH_BLOCK)),
        packed_b(static_cast<size_t>(width * DEPTH_BLOCK));
    // Strides from row to row of op(A) and from column to column of op(B), and in depth.
    int64_t row_step = product.a.transposed ? product.a.leading : 1,
            a_step = product.a.transposed ? 1 : product.a.leading;
    int64_t column_step = product.b.transposed ? 1 : product.b.leading,
            b_step = product.b.transposed ? product.b.leading : 1;
    int64_t most = product.rounds_sums ? std::min(DEPTH_BLOCK, (product.k + 1) / 2) : DEPTH_BLOCK;
    for (int64_t p = 0; p < product.k; p += most) {
        int64_t depth = std::min(most, product.k - p);
        const char* from_b =
            b + (columns.first * column_step + p * b_step) * static_cast<int64_t>(bytes_of(product.b.type));
        pack(from_b, product.b.type, column_step, b_step, columns.count(), depth, COLUMNS, product.tf32,
             packed_b.data());
        for (int64_t row = rows.first; row < rows.end; row += ROW_BLOCK) {
            int64_t block = std::min(ROW_BLOCK, rows.end - row);
            const char* from_a = a + (row * row_step + p * a_step) * static_cast<int64_t>(bytes_of(product.a.type));
            pack(from_a, product.a.type, row_step, a_step, block, depth, ROWS, product.tf32, packed_a.data());
            for (int64_t j = 0; j < width; j += COLUMNS) {
                for (int64_t i = 0; i < block; i += ROWS) {
                    float* at = sums.data() + j * leading + (row - rows.first) + i;
                    kernel(packed_a.data() + i * depth, packed_b.data() + j * depth, depth, at, leading);
                }
            }
        }
        if (!product.rounds_sums) continue;
        for (float& sum : sums) {
            uint32_t bits;
            char* at = reinterpret_cast<char*>(&bits);
            store(at, product.d.type, 0, sum);
            sum = load(at, product.d.type, 0);
        }
    }
    finish(product, rows, columns, sums.data(), leading, c, d, bias);
}

// The sums of a row or column depend neither on the division of the work nor on the number of rows and columns.
void multiply_one(const Product& product, const char* a, const char* b, const char* c, char* d, const char* bias) {
    bool by_rows = product.m > product.n;
    int64_t count = by_rows ? product.m : product.n, unit = by_rows ? ROWS : COLUMNS;
    int64_t processors = std::max(1u, std::thread::hardware_concurrency());
    int64_t threads = std::clamp(product.m * product.n * product.k / WORTH_A_THREAD, int64_t(1), processors);
    int64_t share = round_up((count + threads - 1) / threads, unit);
    auto part = [&](int64_t first) {
        Range mine{first, std::min(first + share, count)};
        Range rows = by_rows ? mine : Range{0, product.m}, columns = by_rows ? Range{0, product.n} : mine;
        multiply_part(product, rows, columns, a, b, c, d, bias);
    };
    std::vector<std::thread> helpers;
    for (int64_t first = share; first < count; first += share) helpers.emplace_back(part, first);
    part(0);
    for (std::thread& helper : helpers) helper.join();
}

}  // namespace

void multiply(const Product& product, const char* a, const char* b, const char* c, char* d, const char* bias) {
    auto at = [](auto* base, const Operand& operand, int64_t index) {
        return base ? base + index * operand.stride * static_cast<int64_t>(bytes_of(operand.type)) : base;
    };
    for (int64_t index = 0; index < product.batch; index++) {
        const char* own_bias =
            bias ? bias + index * product.bias_stride * static_cast<int64_t>(bytes_of(product.d.type)) : nullptr;
        multiply_one(product, at(a, product.a, index), at(b, product.b, index), at(c, product.c, index),
                     at(d, product.d, index), own_bias);
    }
}
