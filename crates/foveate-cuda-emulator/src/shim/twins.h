// Host counterparts of the kernels' inline PTX, with the same names and the results that the PTX ISA documents.
#pragma once

inline float widen(f16 value) {
    const unsigned sign = (value.bits & 0x8000u) << 16, exponent = value.bits >> 10 & 31, fraction = value.bits & 1023;
    if (exponent == 0) {
        const float magnitude = ldexpf(static_cast<float>(fraction), -24);
        return sign ? -magnitude : magnitude;
    }
    const unsigned wide = exponent == 31 ? 255 : exponent + 112;
    return __uint_as_float(sign | wide << 23 | fraction << 13);
}

// Drops the last `count` of `bits`, rounding to nearest even.
inline unsigned drop_bits(unsigned bits, unsigned count) {
    const unsigned kept = bits >> count, rest = bits & ((1u << count) - 1), half = 1u << (count - 1);
    return kept + (rest > half || (rest == half && kept % 2 == 1));
}

// cvt.rn.f16.f32: to nearest even, overflow to infinity, NaN to 0x7fff.
inline void narrow(float value, f16& to) {
    const unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    unsigned half;
    if (magnitude > 0x7f800000u) {
        to.bits = 0x7fff;
        return;
    }
    if (magnitude >= 0x47800000u) {  // 2^16
        half = 0x7c00;
    } else if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal one
        // A fraction that rounds up to 2 carries into the exponent, and from the largest into infinity.
        half = drop_bits(magnitude - (112u << 23), 13);
    } else if (magnitude >= 0x33000000u) {  // 2^-25, half of the smallest one
        const unsigned exponent = magnitude >> 23;
        half = drop_bits((magnitude & 0x7fffffu) | 0x800000u, 126 - exponent);
    } else {
        half = 0;
    }
    to.bits = static_cast<unsigned short>(sign | half);
}

// cvt.rn.bf16.f32
inline void narrow(float value, bf16& to) {
    const unsigned bits = __float_as_uint(value);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    to.bits = static_cast<unsigned short>(nan ? 0x7fffu : drop_bits(bits, 16));
}

template <class T>
T narrowed(float value) {
    T to;
    narrow(value, to);
    return to;
}

// ex2.approx.ftz.f32
inline float exp2_approx(float value) {
    const float power = exp2f(value);
    return power < 0x1p-126f ? 0.0f : power;
}

// rcp.approx.ftz.f32
inline float reciprocal_approx(float value) { return 1.0f / value; }

// prmt.b32
inline unsigned choose_bytes(unsigned low, unsigned high, unsigned which) {
    const unsigned long long all = static_cast<unsigned long long>(high) << 32 | low;
    unsigned bytes = 0;
    for (unsigned at = 0; at < 32; at += 8, which >>= 4) {
        bytes |= static_cast<unsigned>(all >> 8 * (which & 7) & 255) << at;
    }
    return bytes;
}

// shf.r.wrap.b32
inline unsigned funnel(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> shift % 32);
}

// dp2a.lo.s32.u32
inline int dot_low(unsigned weights, unsigned samples, int sum) {
    const auto weight = [&](unsigned at) { return static_cast<int>(static_cast<short>(weights >> 16 * at)); };
    return sum + weight(0) * static_cast<int>(samples & 255) + weight(1) * static_cast<int>(samples >> 8 & 255);
}

// dp2a.hi.s32.u32
inline int dot_high(unsigned weights, unsigned samples, int sum) { return dot_low(weights, samples >> 16, sum); }

// The elements of a fragment's register.
template <class T>
void split(unsigned word, float* to) {
    to[0] = widen(T{static_cast<unsigned short>(word)});
    to[1] = widen(T{static_cast<unsigned short>(word >> 16)});
}

// sum += rows * columns for a 16 x K matrix, a K x 8 matrix and a 16 x 8 sum, K = 8 * STEPS, spread over a warp: lane l
// has, with g = l / 4 and t = l % 4, rows[2s] at (g, 8s + 2t), rows[2s + 1] at (g + 8, 8s + 2t), columns[s] at
// (8s + 2t, g) and below it, sum[0] at (g, 2t), sum[2] at (g + 8, 2t), and what is to the right of each.
template <class T, int STEPS>
struct Mma {
    unsigned rows[2 * STEPS], columns[STEPS];
    float (&sum)[4];

    static void run(void* const (&lanes)[emulated::WARP]) {
        float a[16][8 * STEPS], b[8][8 * STEPS];
        for (unsigned lane = 0; lane < emulated::WARP; ++lane) {
            const Mma& mine = *static_cast<Mma*>(lanes[lane]);
            const unsigned g = lane / 4, t = lane % 4;
            for (int step = 0; step < STEPS; ++step) {
                split<T>(mine.rows[2 * step], &a[g][8 * step + 2 * t]);
                split<T>(mine.rows[2 * step + 1], &a[g + 8][8 * step + 2 * t]);
                split<T>(mine.columns[step], &b[g][8 * step + 2 * t]);
            }
        }
        for (unsigned lane = 0; lane < emulated::WARP; ++lane) {
            Mma& mine = *static_cast<Mma*>(lanes[lane]);
            for (unsigned at = 0; at < 4; ++at) {
                const unsigned row = lane / 4 + at / 2 * 8, column = lane % 4 * 2 + at % 2;
                float product = 0.0f;
                for (int k = 0; k < 8 * STEPS; ++k) product += a[row][k] * b[column][k];
                mine.sum[at] += product;
            }
        }
    }
};

#if __CUDA_ARCH__ >= 800
template <class T>
unsigned narrow_pair(float low, float high, T) {
    return narrowed<T>(low).bits | static_cast<unsigned>(narrowed<T>(high).bits) << 16;
}

// mma.m16n8k16
template <class T>
void mma_k16(float (&sum)[4], const unsigned (&rows)[4], const unsigned (&columns)[2], T) {
    Mma<T, 2> mine{{rows[0], rows[1], rows[2], rows[3]}, {columns[0], columns[1]}, sum};
    emulated::collective(mine.run, &mine);
}

inline void copy_async(uint4* to, const uint4* from, bool valid) { emulated::copy_start(to, valid ? from : nullptr); }
inline void copies_commit() { emulated::copies_commit(); }
template <int PENDING>
void copies_wait() {
    emulated::copies_wait(PENDING);
}
#else
// mma.m16n8k8
inline void mma_k8(float (&sum)[4], unsigned top, unsigned bottom, unsigned columns) {
    Mma<f16, 1> mine{{top, bottom}, {columns}, sum};
    emulated::collective(mine.run, &mine);
}
#endif

// ldmatrix.m8n8.x4: lane 8m + r supplies row r of matrix m; lane l gets the elements (l / 4, l % 4 * 2) and the one to
// the right of it from each matrix, or from each matrix transposed if TRANSPOSED.
template <bool TRANSPOSED>
struct LoadMatrices {
    const uint4* row;
    unsigned (&fragments)[4];

    static void run(void* const (&lanes)[emulated::WARP]) {
        unsigned short elements[4][8][8];
        for (unsigned lane = 0; lane < emulated::WARP; ++lane) {
            const uint4 row = *static_cast<LoadMatrices*>(lanes[lane])->row;
            memcpy(elements[lane / 8][lane % 8], &row, sizeof row);
        }
        for (unsigned lane = 0; lane < emulated::WARP; ++lane) {
            const unsigned row = lane / 4, column = lane % 4 * 2;
            for (unsigned matrix = 0; matrix < 4; ++matrix) {
                const auto& m = elements[matrix];
                const unsigned low = TRANSPOSED ? m[column][row] : m[row][column];
                const unsigned high = TRANSPOSED ? m[column + 1][row] : m[row][column + 1];
                static_cast<LoadMatrices*>(lanes[lane])->fragments[matrix] = low | high << 16;
            }
        }
    }
};

inline void load_matrices(unsigned (&fragments)[4], const uint4* row) {
    LoadMatrices<false> mine{row, fragments};
    emulated::collective(mine.run, &mine);
}

inline void load_matrices_transposed(unsigned (&fragments)[4], const uint4* row) {
    LoadMatrices<true> mine{row, fragments};
    emulated::collective(mine.run, &mine);
}
