// files: sm_75
//
// Resampling of decoded images, RGB8. `cargo xtask kernels` compiles this file into the PTX beside it, which is what
// ships: after a change here, run it and commit both. No header is included, so the output depends on this source
// alone.
// The emulator compiles the same file for the host.
//
// One launch runs one pass over many images: block (b, i) runs threads 256 b to 256 b + 255 of pass `first` + i, each
// of which computes one pixel, or four bytes of a row. `tables` begins with the passes; their offsets and steps are in
// bytes.
//
//   resample, interpolate   (ceil(most threads of a pass / 256), passes) | 256

// One image in one pass. The host's counterpart is `Pass` in `resample/pass.rs`.
struct Pass {
    // The offset of the source's pixel (0, 0), upright, in `tables` or in `arena`; that of the output picture, in `out`
    // or in `arena`.
    long long from, to;
    // `resample`: its taps begin at `taps`, one (first, count) of ints for each place along the axis; its weights at
    // `weights`, `window` shorts for each, with `precision` fractional bits. `window` is a multiple of 4, and weights
    // behind the last tap are 0. `interpolate`: one Tap each, the columns' from `taps` on, the rows' from `weights` on.
    long long taps, weights;
    // From a source pixel to the one on the right, and to the one below: turns are in these steps. From a row of the
    // output to the next.
    int step_x, step_y, pitch;
    int from_tables, to_out;
    // The output's size, and the part of it that is not black.
    int width, height, left, top, place_width, place_height;
    // `resample`: whether it runs down the columns. Whether it reads four bytes at a time: `step_x` is 3, up to
    // 15 bytes behind the source may be read, and if it runs down, `step_y` is a multiple of 4 and nothing is black.
    int down, wide;
    int window, precision;
};

// The two source pixels around a place, and the weight of each, in 2048ths.
struct Tap {
    int first, second, weight_first, weight_second;
};

#ifndef EMULATED
// Returns the bytes of `low` and `high`, numbered 0 to 7, that the four digits of `which` choose.
__device__ __forceinline__ unsigned choose_bytes(unsigned low, unsigned high, unsigned which) {
    unsigned bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(which));
    return bytes;
}

// Returns the lower half of (high, low) >> shift.
__device__ __forceinline__ unsigned funnel(unsigned low, unsigned high, unsigned shift) {
    unsigned bytes;
    asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(shift));
    return bytes;
}

// Adds the products of two i16 weights with the two lower of four u8 samples.
__device__ __forceinline__ int dot_low(unsigned weights, unsigned samples, int sum) {
    asm("dp2a.lo.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(weights), "r"(samples));
    return sum;
}

// The same with the two upper ones.
__device__ __forceinline__ int dot_high(unsigned weights, unsigned samples, int sum) {
    asm("dp2a.hi.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(weights), "r"(samples));
    return sum;
}
#endif

__device__ __forceinline__ unsigned char clamped(int value) {
    return static_cast<unsigned char>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Finds this thread's place among `columns` x `rows`; false if there is none left. Neighbouring threads read
// neighbouring bytes, unless the image is turned.
__device__ __forceinline__ bool place(const Pass& pass, unsigned columns, unsigned rows, int& x, int& y) {
    const unsigned at = blockIdx.x * 256u + threadIdx.x;
    const int right = pass.step_x < 0 ? -pass.step_x : pass.step_x, below = pass.step_y < 0 ? -pass.step_y : pass.step_y;
    const bool lies = right > below;
    const unsigned line = lies ? rows : columns, across = at / line, along = at - across * line;
    x = static_cast<int>(lies ? across : along);
    y = static_cast<int>(lies ? along : across);
    return across < (lies ? columns : rows);
}

__device__ __forceinline__ long long bytes(int count, int step) { return static_cast<long long>(count) * step; }

// The address of output pixel (x, y).
__device__ __forceinline__ unsigned char* target(const Pass& pass, unsigned char* arena, unsigned char* out, int x,
                                                 int y) {
    return (pass.to_out ? out : arena) + pass.to + bytes(y, pass.pitch) + x * 3;
}

// Converts (x, y) of the picture to a place within its part that is not black; false if it is black.
__device__ __forceinline__ bool within(const Pass& pass, int& x, int& y) {
    x -= pass.left;
    y -= pass.top;
    return x >= 0 && y >= 0 && x < pass.place_width && y < pass.place_height;
}

__device__ __forceinline__ void put(unsigned char* to, int red, int green, int blue) {
    to[0] = clamped(red);
    to[1] = clamped(green);
    to[2] = clamped(blue);
}

// The word that contains the byte at `from`.
__device__ __forceinline__ const unsigned* word_of(const unsigned char* from) {
    return reinterpret_cast<const unsigned*>(from - reinterpret_cast<unsigned long long>(from) % 4);
}

// Adds the products of two rows' words with their weights.
__device__ __forceinline__ void add_rows(unsigned upper, unsigned lower, unsigned weights, int (&sums)[4]) {
    const unsigned left = choose_bytes(upper, lower, 0x5140), right = choose_bytes(upper, lower, 0x7362);
    sums[0] = dot_low(weights, left, sums[0]);
    sums[1] = dot_high(weights, left, sums[1]);
    sums[2] = dot_low(weights, right, sums[2]);
    sums[3] = dot_high(weights, right, sums[3]);
}

// Four bytes of the output's row y, each from those above each other in the source's rows. The groups of four are words
// of the source.
__device__ __forceinline__ void resample_columns(const Pass& pass, const unsigned char* tables,
                                                 const unsigned char* from, unsigned char* to) {
    const int lead = static_cast<int>(reinterpret_cast<unsigned long long>(from) % 4), row = pass.width * 3;
    int group, y;
    if (!place(pass, static_cast<unsigned>((lead + row + 3) / 4), static_cast<unsigned>(pass.height), group, y)) return;
    const int* taps = reinterpret_cast<const int*>(tables + pass.taps) + y * 2;
    const int count = taps[1];
    const unsigned* weights = reinterpret_cast<const unsigned*>(tables + pass.weights + bytes(y, pass.window * 2));
    const unsigned char* source = from - lead + group * 4 + bytes(taps[0], pass.step_y);
    const int half = 1 << (pass.precision - 1);
    int sums[4] = {half, half, half, half};
    for (int pair = 0; pair < count / 2; ++pair) {
        const unsigned* upper = reinterpret_cast<const unsigned*>(source);
        const unsigned* lower = reinterpret_cast<const unsigned*>(source + pass.step_y);
        add_rows(*upper, *lower, weights[pair], sums);
        source += 2 * pass.step_y;
    }
    // Below the last row there may be none; its weight is 0.
    if (count % 2 == 1) add_rows(*reinterpret_cast<const unsigned*>(source), 0, weights[count / 2], sums);
    to += bytes(y, pass.pitch);
    for (int byte = 0; byte < 4; ++byte) {
        const int at = group * 4 - lead + byte;
        if (at >= 0 && at < row) to[at] = clamped(sums[byte] >> pass.precision);
    }
}

// A pixel from `count` neighbours in a row, which begin at `from`.
__device__ __forceinline__ void resample_row(const unsigned char* from, int count, const short* weights,
                                             int (&sums)[3]) {
    const unsigned* word = word_of(from);
    const unsigned shift = static_cast<unsigned>(reinterpret_cast<unsigned long long>(from) % 4) * 8;
    unsigned before = word[0];
    for (int tap = 0; tap < count; tap += 4) {
        // Twelve bytes are four pixels: rgbr gbrg brgb.
        const unsigned first = funnel(before, word[1], shift), second = funnel(word[1], word[2], shift);
        const unsigned third = funnel(word[2], word[3], shift);
        const uint2 four = *reinterpret_cast<const uint2*>(weights + tap);
        const unsigned red = choose_bytes(choose_bytes(first, second, 0x0630), third, 0x5210);
        const unsigned green = choose_bytes(choose_bytes(first, second, 0x0741), third, 0x6210);
        const unsigned blue = choose_bytes(choose_bytes(first, second, 0x0052), third, 0x7410);
        sums[0] = dot_high(four.y, red, dot_low(four.x, red, sums[0]));
        sums[1] = dot_high(four.y, green, dot_low(four.x, green, sums[1]));
        sums[2] = dot_high(four.y, blue, dot_low(four.x, blue, sums[2]));
        before = word[3];
        word += 3;
    }
}

// A convolution along one axis, in 16-bit fixed point, rounded to u8.
extern "C" __global__ void resample(const unsigned char* tables, unsigned char* arena, unsigned char* out, int first) {
    const Pass pass = reinterpret_cast<const Pass*>(tables)[first + blockIdx.y];
    const unsigned char* from = (pass.from_tables ? tables : arena) + pass.from;
    if (pass.wide && pass.down) return resample_columns(pass, tables, from, target(pass, arena, out, 0, 0));
    int x, y;
    if (!place(pass, static_cast<unsigned>(pass.width), static_cast<unsigned>(pass.height), x, y)) return;
    unsigned char* to = target(pass, arena, out, x, y);
    if (!within(pass, x, y)) return put(to, 0, 0, 0);
    const int along = pass.down ? y : x, step = pass.down ? pass.step_y : pass.step_x;
    const int* taps = reinterpret_cast<const int*>(tables + pass.taps) + along * 2;
    const short* weights = reinterpret_cast<const short*>(tables + pass.weights + bytes(along, pass.window * 2));
    from += (pass.down ? bytes(x, pass.step_x) : bytes(y, pass.step_y)) + bytes(taps[0], step);
    const int half = 1 << (pass.precision - 1), count = taps[1];
    int sums[3] = {half, half, half};
    if (pass.wide) {
        resample_row(from, count, weights, sums);
    } else {
        for (int tap = 0; tap < count; ++tap) {
            for (int channel = 0; channel < 3; ++channel) sums[channel] += from[channel] * weights[tap];
            from += step;
        }
    }
    put(to, sums[0] >> pass.precision, sums[1] >> pass.precision, sums[2] >> pass.precision);
}

// OpenCV's INTER_LINEAR: 11-bit weights; 4 bits of a row's 19-bit sums are dropped, then each product down the column
// keeps its high half, and two more bits are rounded away.
extern "C" __global__ void interpolate(const unsigned char* tables, unsigned char* arena, unsigned char* out, int first) {
    const Pass pass = reinterpret_cast<const Pass*>(tables)[first + blockIdx.y];
    int x, y;
    if (!place(pass, static_cast<unsigned>(pass.width), static_cast<unsigned>(pass.height), x, y)) return;
    unsigned char* to = target(pass, arena, out, x, y);
    if (!within(pass, x, y)) return put(to, 0, 0, 0);
    const Tap column = reinterpret_cast<const Tap*>(tables + pass.taps)[x];
    const Tap row = reinterpret_cast<const Tap*>(tables + pass.weights)[y];
    const unsigned char* from = (pass.from_tables ? tables : arena) + pass.from;
    const unsigned char* upper = from + bytes(row.first, pass.step_y);
    const unsigned char* lower = from + bytes(row.second, pass.step_y);
    int samples[3];
    for (int channel = 0; channel < 3; ++channel) {
        const long long left = bytes(column.first, pass.step_x) + channel;
        const long long right = bytes(column.second, pass.step_x) + channel;
        const int above = (upper[left] * column.weight_first + upper[right] * column.weight_second) >> 4;
        const int below = (lower[left] * column.weight_first + lower[right] * column.weight_second) >> 4;
        samples[channel] = (((above * row.weight_first) >> 16) + ((below * row.weight_second) >> 16) + 2) >> 2;
    }
    put(to, samples[0], samples[1], samples[2]);
}
