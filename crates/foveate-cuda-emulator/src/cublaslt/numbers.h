// The float types of matrices, as bits, with conversions to f32 and back: round to nearest, ties to even.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

// cudaDataType's numbers.
enum Type : int { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };

inline size_t bytes_of(Type type) { return type == F32 ? 4 : 2; }

inline float from_f16(uint16_t half) {
    uint32_t sign = uint32_t(half & 0x8000) << 16;
    uint32_t rest = uint32_t(half & 0x7fff);
    // The product moves the exponent's bias from 15 to 127 and makes subnormal numbers normal.
    uint32_t bits = std::bit_cast<uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f);
    if (rest >= 0x7c00) bits |= 0x7f800000;
    return std::bit_cast<float>(bits | sign);
}

inline uint16_t to_f16(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    uint32_t sign = (bits >> 16) & 0x8000;
    uint32_t rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return uint16_t(sign | 0x7e00);
    if (rest >= 0x47800000) return uint16_t(sign | 0x7c00);
    if (rest < 0x38800000) {
        // Below 2^-14, the spacing of halves is 2^-24, like that of floats around 0.5.
        float shifted = std::bit_cast<float>(rest) + 0.5f;
        return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
    }
    uint32_t rounded = rest + 0xfff + ((rest >> 13) & 1);
    return uint16_t(sign | ((rounded - 0x38000000) >> 13));
}

inline float from_bf16(uint16_t value) { return std::bit_cast<float>(uint32_t(value) << 16); }

inline uint16_t to_bf16(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t((bits >> 16) | 0x40);
    return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Rounds to TF32's 10 bits of mantissa.
inline float to_tf32(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7f800000) == 0x7f800000) return value;
    return std::bit_cast<float>((bits + 0xfff + ((bits >> 13) & 1)) & ~0x1fffu);
}
