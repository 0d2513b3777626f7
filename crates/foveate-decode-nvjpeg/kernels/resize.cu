// files: sm_75
//
// Resampling of decoded images, RGB8. `cargo xtask kernels` compiles this file into the PTX beside it, which is what
// ships: after a change here, run it and commit both. No header is included, so the output depends on this source
// alone.
// The emulator compiles the same file for the host.
//
// One launch runs one pass over many images: block (b, i) computes pixels 256 b to 256 b + 255 of the output of pass
// `first` + i. `tables` begins with the passes; their offsets and steps are in bytes.
//
//   resample, interpolate   (ceil(most pixels of a pass / 256), passes) | 256

// One image in one pass. The host's counterpart is `Pass` in `resample/pass.rs`.
struct Pass {
    // The address of the source's pixel (0, 0), upright: in `tables` or in `arena`. Turns are in the steps.
    long long from_tables, from;
    // From a source pixel to the one on the right, and to the one below.
    long long step_x, step_y;
    // The address of the output picture: in `out` or in `arena`; its stride in bytes.
    long long to_out, to, pitch;
    // Its size, and the part of it that is not black.
    long long width, height, left, top, place_width, place_height;
    // `resample`: whether it runs down the columns. Its taps begin at `taps`, one (first, count) of ints for each place
    // along the axis; its weights at `weights`, `window` shorts for each, with `precision` fractional bits.
    // `interpolate`: one Tap each, the columns' from `taps` on, the rows' from `weights` on.
    long long down, taps, weights, window, precision;
};

// The two source pixels around a place, and the weight of each, in 2048ths.
struct Tap {
    int first, second, weight_first, weight_second;
};

__device__ __forceinline__ unsigned char clamped(int value) {
    return static_cast<unsigned char>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Finds the pixel that this thread computes; false if there is none left. Neighbouring threads read neighbouring bytes,
// unless the image is turned.
__device__ __forceinline__ bool place(const Pass& pass, long long& x, long long& y) {
    const long long at = blockIdx.x * 256LL + threadIdx.x;
    if (at >= pass.width * pass.height) return false;
    const bool lies = pass.step_x > pass.step_y ? pass.step_x > -pass.step_y : -pass.step_x > pass.step_y;
    x = lies ? at / pass.height : at % pass.width;
    y = lies ? at % pass.height : at / pass.width;
    return true;
}

// The address of output pixel (x, y).
__device__ __forceinline__ unsigned char* target(const Pass& pass, unsigned char* arena, unsigned char* out, long long x,
                                                 long long y) {
    return (pass.to_out ? out : arena) + pass.to + y * pass.pitch + x * 3;
}

// Converts (x, y) of the picture to a place within its part that is not black; false if it is black.
__device__ __forceinline__ bool within(const Pass& pass, long long& x, long long& y) {
    x -= pass.left;
    y -= pass.top;
    return x >= 0 && y >= 0 && x < pass.place_width && y < pass.place_height;
}

__device__ __forceinline__ void put(unsigned char* to, int red, int green, int blue) {
    to[0] = clamped(red);
    to[1] = clamped(green);
    to[2] = clamped(blue);
}

// A convolution along one axis, in 16-bit fixed point, rounded to u8.
extern "C" __global__ void resample(const unsigned char* tables, unsigned char* arena, unsigned char* out, int first) {
    const Pass pass = reinterpret_cast<const Pass*>(tables)[first + blockIdx.y];
    long long x, y;
    if (!place(pass, x, y)) return;
    unsigned char* to = target(pass, arena, out, x, y);
    if (!within(pass, x, y)) return put(to, 0, 0, 0);
    const long long along = pass.down ? y : x;
    const int* taps = reinterpret_cast<const int*>(tables + pass.taps) + along * 2;
    const short* weights = reinterpret_cast<const short*>(tables + pass.weights) + along * pass.window;
    const long long step = pass.down ? pass.step_y : pass.step_x;
    const long long across = pass.down ? x * pass.step_x : y * pass.step_y;
    const unsigned char* from = (pass.from_tables ? tables : arena) + pass.from + across + taps[0] * step;
    const int half = 1 << (pass.precision - 1);
    int red = half, green = half, blue = half;
    for (int tap = 0; tap < taps[1]; ++tap) {
        const int weight = weights[tap];
        red += from[0] * weight;
        green += from[1] * weight;
        blue += from[2] * weight;
        from += step;
    }
    put(to, red >> pass.precision, green >> pass.precision, blue >> pass.precision);
}

// OpenCV's INTER_LINEAR: 11-bit weights; 4 bits of a row's 19-bit sums are dropped, then each product down the column
// keeps its high half, and two more bits are rounded away.
extern "C" __global__ void interpolate(const unsigned char* tables, unsigned char* arena, unsigned char* out, int first) {
    const Pass pass = reinterpret_cast<const Pass*>(tables)[first + blockIdx.y];
    long long x, y;
    if (!place(pass, x, y)) return;
    unsigned char* to = target(pass, arena, out, x, y);
    if (!within(pass, x, y)) return put(to, 0, 0, 0);
    const Tap column = reinterpret_cast<const Tap*>(tables + pass.taps)[x];
    const Tap row = reinterpret_cast<const Tap*>(tables + pass.weights)[y];
    const unsigned char* from = (pass.from_tables ? tables : arena) + pass.from;
    const unsigned char* upper = from + row.first * pass.step_y;
    const unsigned char* lower = from + row.second * pass.step_y;
    int samples[3];
    for (int channel = 0; channel < 3; ++channel) {
        const long long left = column.first * pass.step_x + channel, right = column.second * pass.step_x + channel;
        const int above = (upper[left] * column.weight_first + upper[right] * column.weight_second) >> 4;
        const int below = (lower[left] * column.weight_first + lower[right] * column.weight_second) >> 4;
        samples[channel] = (((above * row.weight_first) >> 16) + ((below * row.weight_second) >> 16) + 2) >> 2;
    }
    put(to, samples[0], samples[1], samples[2]);
}
