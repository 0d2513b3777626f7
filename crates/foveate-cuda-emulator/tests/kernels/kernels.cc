// Every kernel, launched as a driver would, compared with plain f64 arithmetic.
//
//   kernels                        runs all cases; fails if one does
//   kernels --ignore-barrier LINE  the same without the barrier of that line in the kernels' source
//   kernels --names                the kernels' names and the bytes of their parameters

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shim/registry.h"
#include "shim/shim.h"

struct f16 {
    unsigned short bits;
};
struct bf16 {
    unsigned short bits;
};

#include "shim/twins.h"

float widen(bf16 value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16); }
float widen(float value) { return value; }
void narrow(float value, float& to) { to = value; }

template <class T>
struct Type;
template <>
struct Type<float> {
    static constexpr const char* NAME = "f32";
    static constexpr double ROUNDING = 0x1p-24, SMALLEST = 0x1p-149;
};
template <>
struct Type<f16> {
    static constexpr const char* NAME = "f16";
    static constexpr double ROUNDING = 0x1p-11, SMALLEST = 0x1p-24;
};
template <>
struct Type<bf16> {
    static constexpr const char* NAME = "bf16";
    static constexpr double ROUNDING = 0x1p-8, SMALLEST = 0x1p-133;
};

// The error allowed for f32 arithmetic, relative to 1 or to the result if that is larger.
constexpr double F32_ERROR = 1e-5;

// ---- Memory that ends at a page's end, so that accesses beyond it are detected ----

template <class T>
class Array {
  public:
    explicit Array(size_t count) : count(count) {
        const size_t page = sysconf(_SC_PAGESIZE), bytes = count * sizeof(T);
        mapped = (bytes + 2 * page) / page * page + page;
        memory = static_cast<unsigned char*>(mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (memory == MAP_FAILED || mprotect(memory + mapped - page, page, PROT_NONE) != 0) abort();
        memset(memory, emulated::POISON, mapped - page);
        data = reinterpret_cast<T*>(memory + (mapped - page - bytes) / 16 * 16);
    }

    ~Array() { munmap(memory, mapped); }

    Array(const Array&) = delete;

    double operator[](size_t at) const { return widen(data[at]); }

    void set(size_t at, float value) { narrow(value, data[at]); }

    // Whether the memory before the first element is unchanged.
    bool is_clean_before() const {
        return std::all_of(memory, reinterpret_cast<unsigned char*>(data),
                           [](unsigned char byte) { return byte == emulated::POISON; });
    }

    T* data;
    size_t count;

  private:
    unsigned char* memory;
    size_t mapped;
};

// Uniform in [-1, 1).
struct Random {
    uint64_t state;

    float operator()() {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
    }
};

template <class T>
void fill(Array<T>& array, uint64_t seed, float spread, float middle = 0.0f) {
    Random random{seed};
    for (size_t at = 0; at < array.count; ++at) array.set(at, middle + spread * random());
}

// ---- Launching and comparing ----

const KernelEntry* find(const std::string& name) {
    unsigned count;
    const KernelEntry* entries = emulated_kernels(&count);
    for (unsigned at = 0; at < count; ++at) {
        if (name == entries[at].name) return &entries[at];
    }
    fprintf(stderr, "there is no kernel %s\n", name.c_str());
    exit(2);
}

template <class... Parameters>
void launch(const std::string& name, Dim3 grid, unsigned block, Parameters... parameters) {
    const KernelEntry* kernel = find(name);
    const unsigned bytes[] = {sizeof(Parameters)...};
    void* pointers[] = {&parameters...};
    if (kernel->param_count != sizeof...(Parameters) || memcmp(bytes, kernel->param_bytes, sizeof bytes) != 0) {
        fprintf(stderr, "%s takes other parameters\n", name.c_str());
        exit(2);
    }
    kernel->launch(grid, {block, 1, 1}, 0, pointers);
}

unsigned ceil_div(long long a, long long b) { return static_cast<unsigned>((a + b - 1) / b); }

int failures = 0;

void report(const std::string& name, bool passed, double worst) {
    printf("%s %s: worst error %.3f of what is allowed\n", passed ? "ok  " : "FAIL", name.c_str(), worst);
    if (passed) return;
    ++failures;
    exit(1);
}

struct Expected {
    double value;
    // The error allowed in addition to rounding the result to T.
    double slack;
};

template <class T>
void compare(const std::string& name, const Array<T>& got, const std::function<Expected(size_t)>& expected) {
    double worst = 0.0;
    for (size_t at = 0; at < got.count; ++at) {
        const Expected want = expected(at);
        const double allowed = Type<T>::ROUNDING * fabs(want.value) + Type<T>::SMALLEST + want.slack;
        const double error = fabs(got[at] - want.value) / allowed;
        // Not `max`, which would lose a NaN.
        if (!(error <= worst)) worst = error;
    }
    report(name, worst <= 1.0 && got.is_clean_before(), worst);
}

double f32_slack(double value) { return F32_ERROR * std::max(1.0, fabs(value)); }

template <class T>
std::string kernel(const char* base) {
    return std::string(base) + "_" + Type<T>::NAME;
}

template <class... Numbers>
std::string called(const std::string& kernel, Numbers... numbers) {
    std::string name = kernel;
    ((name += " " + std::to_string(numbers)), ...);
    return name;
}

// ---- The kernels ----

template <class T, class Pixel>
void patchify(int images, int rows, int columns, int patch, int padded) {
    const size_t line = static_cast<size_t>(columns) * patch * 3, used = static_cast<size_t>(patch) * patch * 3;
    Array<Pixel> pixels(images * rows * patch * line);
    // In f32 too, values that every T represents exactly.
    for (size_t at = 0; at < pixels.count; ++at) pixels.data[at] = static_cast<unsigned char>(at * 37 + at / 251);
    Array<T> patches(static_cast<size_t>(images) * rows * columns * padded);
    const std::string name = kernel<T>(sizeof(Pixel) == 1 ? "patchify" : "patchify_f32");
    const Dim3 grid{unsigned(rows * columns), unsigned(images), 1};
    launch(name, grid, 128, pixels.data, patches.data, rows, columns, patch, padded);
    compare<T>(called(name, images, rows, columns, patch, padded), patches, [&](size_t at) -> Expected {
        const size_t place = at % padded, which = at / padded % (rows * columns), image = at / padded / (rows * columns);
        if (place >= used) return {0.0, 0.0};
        const size_t y = which / columns * patch + place / (patch * 3);
        const size_t x = which % columns * patch * 3 + place % (patch * 3);
        return {pixels.data[(image * rows * patch + y) * line + x] - 128.0, 0.0};
    });
}

// The first row of each text or image, and the end of the last one.
std::unique_ptr<Array<int>> starts_of(const std::vector<int>& lengths) {
    auto starts = std::make_unique<Array<int>>(lengths.size() + 1);
    starts->data[0] = 0;
    for (size_t at = 0; at < lengths.size(); ++at) starts->data[at + 1] = starts->data[at] + lengths[at];
    return starts;
}

// Images, or texts if there is a `vocabulary`.
template <class T>
void embed(const std::vector<int>& lengths, int prefix, int hidden, int vocabulary = 0) {
    const auto starts = starts_of(lengths);
    const int images = lengths.size(), tokens = *std::max_element(lengths.begin(), lengths.end());
    const size_t rows = starts->data[images];
    Array<T> patches((vocabulary > 0 ? vocabulary : rows - images * prefix) * hidden), x(rows * hidden);
    Array<float> base(static_cast<size_t>(tokens) * hidden);
    Array<int> ids(rows);
    fill(patches, 1, 2.0f);
    fill(base, 2, 1.0f);
    for (size_t row = 0; row < rows && vocabulary > 0; ++row) ids.data[row] = row * 7 % vocabulary;
    const std::string name = kernel<T>("embed");
    const Dim3 grid{unsigned(tokens), unsigned(images), 1};
    launch(name, grid, 128, patches.data, base.data, vocabulary > 0 ? ids.data : nullptr,
           vocabulary > 0 ? starts->data : nullptr, x.data, tokens, prefix, hidden);
    compare<T>(called(name, images, tokens, prefix, hidden, vocabulary), x, [&](size_t at) -> Expected {
        const int column = at % hidden, row = at / hidden;
        const int image = std::upper_bound(starts->data, starts->data + images, row) - starts->data - 1;
        const int token = row - starts->data[image];
        const size_t patch = vocabulary > 0 ? ids.data[row] : row - (image + 1) * prefix;
        const double sum = base[static_cast<size_t>(token) * hidden + column] +
                           (token >= prefix ? patches[patch * hidden + column] : 0.0);
        return {sum, 0x1p-24 * fabs(sum)};
    });
}

struct Moments {
    double mean, rate;
};

template <class T>
Moments moments(const Array<T>& x, size_t row, int width, int pitch, double eps) {
    double mean = 0.0, squares = 0.0;
    for (int column = 0; column < width; ++column) mean += x[row * pitch + column] / width;
    for (int column = 0; column < width; ++column) squares += pow(x[row * pitch + column] - mean, 2) / width;
    return {mean, 1.0 / sqrt(squares + eps)};
}

int pitch_of(int width) { return (width + 7) / 8 * 8; }

// Zeros from `width` on, as all padding has them.
template <class T>
void pad(Array<T>& rows, int width, int pitch) {
    for (size_t at = 0; at < rows.count; ++at) {
        if (static_cast<int>(at % pitch) >= width) rows.set(at, 0.0f);
    }
}

// If `backwards`, the rows are taken from the last to the first.
template <class T>
void layer_norm(int rows, int width, float middle, bool backwards = false) {
    const float eps = 1e-6f;
    const int pitch = pitch_of(width);
    Array<T> x(static_cast<size_t>(rows) * pitch), y(static_cast<size_t>(rows) * pitch);
    Array<float> scale(pitch), shift(pitch);
    fill(x, 3, 2.0f, middle);
    fill(scale, 4, 1.0f);
    fill(shift, 5, 1.0f);
    pad(x, width, pitch);
    pad(scale, width, pitch);
    pad(shift, width, pitch);
    const std::string name = kernel<T>("layer_norm");
    Array<int> taken(rows);
    for (int row = 0; row < rows; ++row) taken.data[row] = backwards ? rows - 1 - row : row;
    launch(name, Dim3{ceil_div(rows, 4), 1, 1}, 128, x.data, scale.data, shift.data, y.data,
           backwards ? taken.data : nullptr, rows, width, pitch, eps);
    std::vector<Moments> of;
    for (int row = 0; row < rows; ++row) of.push_back(moments(x, taken.data[row], width, pitch, eps));
    compare<T>(called(name, rows, width, int(middle)), y, [&](size_t at) -> Expected {
        const auto [mean, rate] = of[at / pitch];
        const double from = x[static_cast<size_t>(taken.data[at / pitch]) * pitch + at % pitch];
        const double value = (from - mean) * rate * scale[at % pitch] + shift[at % pitch];
        // The mean of many values may be off by some roundings of its own size.
        return {value, f32_slack(value) + 0x1p-22 * fabs(mean) * rate};
    });
}

template <class T>
void activate(size_t n, int function) {
    Array<T> x(n), before(n);
    fill(x, 6, 6.0f);
    memcpy(before.data, x.data, n * sizeof(T));
    const std::string name = kernel<T>("activate");
    launch(name, Dim3{ceil_div(n, 2048), 1, 1}, 256, x.data, static_cast<long long>(n), function);
    compare<T>(called(name, n, function), x, [&](size_t at) -> Expected {
        const double v = before[at];
        const double tanh_of = tanh(sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v));
        const double values[] = {v * 0.5 * erfc(-v * sqrt(0.5)), v / 2.0 * (1.0 + tanh_of), v / (1.0 + exp(-1.702 * v)),
                                 std::max(v, 0.0)};
        return {values[function], f32_slack(values[function])};
    });
}

template <class T>
void swiglu(int rows, int width) {
    Array<T> x(static_cast<size_t>(rows) * 2 * width), y(static_cast<size_t>(rows) * width);
    fill(x, 7, 9.0f);
    // Where an exponential overflows.
    x.set(0, -200.0f);
    const std::string name = kernel<T>("swiglu");
    launch(name, Dim3{ceil_div(static_cast<long long>(rows) * width, 2048), 1, 1}, 256, x.data, y.data,
           static_cast<long long>(rows), width);
    compare<T>(called(name, rows, width), y, [&](size_t at) -> Expected {
        const size_t gate = at / width * 2 * width + at % width;
        const double value = x[gate] / (1.0 + exp(-x[gate])) * x[gate + width];
        return {value, f32_slack(value)};
    });
}

template <class T>
void rotate(int images, int tokens, int prefix, int heads, int dim, int half) {
    const int width = heads * dim;
    Array<T> qkv(static_cast<size_t>(images) * tokens * 3 * width), before(qkv.count);
    Array<float> cosines((tokens - prefix) * half), sines(cosines.count);
    fill(qkv, 12, 2.0f);
    fill(cosines, 13, 1.0f);
    fill(sines, 14, 1.0f);
    memcpy(before.data, qkv.data, qkv.count * sizeof(T));
    const std::string name = kernel<T>("rotate");
    launch(name, Dim3{unsigned(tokens - prefix), unsigned(images), 1}, 128, qkv.data, cosines.data, sines.data, tokens,
           prefix, heads, dim, half);
    compare<T>(called(name, images, tokens, prefix, heads, dim, half), qkv, [&](size_t at) -> Expected {
        const int place = at % dim, which = at / width % 3, token = at / (3 * width) % tokens;
        if (which == 2 || token < prefix || place >= 2 * half) return {before[at], 0.0};
        const size_t angle = static_cast<size_t>(token - prefix) * half + place % half;
        const double other = place < half ? -before[at + half] : before[at - half];
        const double value = before[at] * cosines[angle] + other * sines[angle];
        return {value, f32_slack(value)};
    });
}

// For each element of the result: its value, and the same sum of the values' magnitudes.
template <class T>
std::vector<std::pair<double, double>> attend(
    const Array<T>& qkv, const Array<int>& starts, int heads, int dim, bool causal, double scale) {
    const size_t width = static_cast<size_t>(heads) * dim, texts = starts.count - 1;
    std::vector<std::pair<double, double>> results(starts.data[texts] * width);
    for (size_t text = 0; text < texts; ++text) {
        const int first = starts.data[text], tokens = starts.data[text + 1] - first;
        std::vector<double> weights(tokens);
        for (int head = 0; head < heads; ++head) {
            const auto at = [&](int token, int which, int d) {
                return qkv[(static_cast<size_t>(first + token) * 3 + which) * width + head * dim + d];
            };
            for (int query = 0; query < tokens; ++query) {
                const int keys = causal ? query + 1 : tokens;
                double highest = -INFINITY, total = 0.0;
                for (int key = 0; key < keys; ++key) {
                    weights[key] = 0.0;
                    for (int d = 0; d < dim; ++d) weights[key] += scale * at(query, 0, d) * at(key, 1, d);
                    highest = std::max(highest, weights[key]);
                }
                for (int key = 0; key < keys; ++key) total += weights[key] = exp(weights[key] - highest);
                for (int key = 0; key < keys; ++key) {
                    for (int d = 0; d < dim; ++d) {
                        auto& [value, magnitude] = results[(first + query) * width + head * dim + d];
                        value += weights[key] / total * at(key, 2, d);
                        magnitude += weights[key] / total * fabs(at(key, 2, d));
                    }
                }
            }
        }
    }
    return results;
}

// `on_tensor_cores`: the weights are rounded to T before they meet the values. Without `is_text`, the sequences are
// images, which have no starts.
template <class T>
void attention(
    const std::vector<int>& lengths, int heads, int dim, bool on_tensor_cores, bool is_text, int causal = 0) {
    const auto starts = starts_of(lengths);
    const int most = *std::max_element(lengths.begin(), lengths.end());
    const size_t width = static_cast<size_t>(heads) * dim, rows = starts->data[lengths.size()];
    Array<T> qkv(rows * width * 3), out(rows * width);
    fill(qkv, 8 + most, 2.0f);
    // Large enough that few keys dominate a query, so that one key too many or too few shows.
    const float scale = 2.0f / sqrtf(static_cast<float>(dim));
    const Dim3 grid{ceil_div(most, 64), unsigned(heads), unsigned(lengths.size())};
    const std::string name = kernel<T>(on_tensor_cores ? "attention_mma" : "attention");
    const int* given = is_text ? starts->data : nullptr;
    if (on_tensor_cores) {
        launch(name, grid, 128, qkv.data, out.data, given, most, heads, causal, scale);
    } else {
        launch(name, grid, 128, qkv.data, out.data, given, most, heads, dim, causal, scale);
    }
    const auto results = attend(qkv, *starts, heads, dim, causal, scale);
    compare<T>(called(name, lengths.size(), most, heads, dim, is_text, causal), out, [&](size_t at) -> Expected {
        const auto [value, magnitude] = results[at];
        return {value, f32_slack(value) + (on_tensor_cores ? Type<T>::ROUNDING * magnitude : 0.0)};
    });
}

template <class T>
void pool(const std::vector<int>& lengths, int prefix, int width, int mode, int one = 0) {
    const float eps = 1e-6f;
    const int pitch = pitch_of(width);
    const int wide = mode == 2 ? 2 * width : width;
    const auto starts = starts_of(lengths);
    const int images = lengths.size(), tokens = lengths[0];
    Array<T> x(static_cast<size_t>(starts->data[images]) * pitch);
    Array<float> scale(pitch), shift(pitch), out(static_cast<size_t>(images) * wide);
    fill(x, 9, 3.0f, 0.5f);
    fill(scale, 10, 1.0f);
    fill(shift, 11, 1.0f);
    pad(x, width, pitch);
    const std::string name = kernel<T>("pool");
    // Images are as long as each other, and have no starts.
    const bool is_text = std::count(lengths.begin(), lengths.end(), tokens) < images;
    launch(name, Dim3{unsigned(images), 1, 1}, 256, x.data, scale.data, shift.data, out.data,
           is_text ? starts->data : nullptr, tokens, prefix, width, pitch, one, mode, eps);
    std::vector<double> classes(images * width), means(images * width);
    for (int image = 0; image < images; ++image) {
        for (int token = 0; token < lengths[image]; ++token) {
            const size_t row = starts->data[image] + token;
            const auto [mean, rate] = moments(x, row, width, pitch, eps);
            for (int column = 0; column < width; ++column) {
                const double value = (x[row * pitch + column] - mean) * rate * scale[column] + shift[column];
                if (token == one) classes[image * width + column] = value;
                if (token >= prefix) means[image * width + column] += value / (lengths[image] - prefix);
            }
        }
    }
    compare<float>(called(name, images, tokens, prefix, width, mode, one), out, [&](size_t at) -> Expected {
        const size_t image = at / wide, column = at % wide;
        const bool is_class = mode == 0 || (mode == 2 && column < static_cast<size_t>(width));
        const double value = (is_class ? classes : means)[image * width + column % width];
        return {value, f32_slack(value)};
    });
}

template <class T>
void widen_rows(int rows, int width) {
    const int pitch = pitch_of(width);
    Array<T> x(rows * pitch);
    Array<float> out(rows * width);
    fill(x, 15, 3.0f);
    const std::string name = kernel<T>("widen_rows");
    launch(name, Dim3{unsigned(rows), 1, 1}, 128, x.data, out.data, width, pitch);
    compare<float>(called(name, rows, width), out,
                   [&](size_t at) -> Expected { return {x[at / width * pitch + at % width], 0.0}; });
}

// ---- The elements themselves ----

// Widening is checked against the format's definition. Narrowing is checked at, and one step to either side of, the
// middle between any two neighbours; ties go to the even one. `fraction_bits` of the 16 are the fraction.
template <class T>
void conversions(int fraction_bits) {
    const int exponents = 1 << (15 - fraction_bits), bias = exponents / 2 - 1;
    const auto value = [&](unsigned bits) {
        const int exponent = bits >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
        const double significand = fraction + (exponent > 0 ? 1 << fraction_bits : 0);
        return ldexp(significand, std::max(exponent, 1) - bias - fraction_bits);
    };
    const auto narrowed_to = [](float wide) {
        T to;
        narrow(wide, to);
        return to.bits;
    };
    const unsigned infinity = (exponents - 1) << fraction_bits;
    int wrong = narrowed_to(NAN) != 0x7fff;
    for (unsigned bits = 0; bits < infinity; ++bits) {
        const float low = static_cast<float>(value(bits));
        // The next value, if it were not infinity.
        const double high = value(bits + 1), middle = (low + high) / 2;
        const float tie = static_cast<float>(middle);
        const unsigned even = bits + bits % 2;
        wrong += widen(T{static_cast<unsigned short>(bits)}) != low || narrowed_to(low) != bits;
        wrong += narrowed_to(nextafterf(tie, 0.0f)) != bits || narrowed_to(tie) != even;
        wrong += narrowed_to(nextafterf(tie, INFINITY)) != bits + 1;
        wrong += narrowed_to(-tie) != (even | 0x8000u);
        wrong += widen(T{static_cast<unsigned short>(bits | 0x8000u)}) != -low;
    }
    report(std::string("conversions of ") + Type<T>::NAME, wrong == 0, wrong);
}

// ---- All cases ----

template <class T>
void check(bool tensor_cores) {
    patchify<T, unsigned char>(2, 3, 5, 14, 592);
    patchify<T, unsigned char>(1, 2, 2, 16, 768);
    patchify<T, unsigned char>(2, 4, 1, 4, 64);
    patchify<T, unsigned char>(1, 1, 1, 14, 1664);
    patchify<T, float>(2, 3, 5, 14, 592);
    embed<T>({5, 5}, 1, 64);
    embed<T>({9}, 5, 1536);
    embed<T>({4, 4, 4}, 0, 8);
    embed<T>({3, 1, 77, 5}, 0, 72, 11);
    for (int width : {6, 8, 64, 66, 72, 192, 384, 768, 1024, 1536, 2048}) layer_norm<T>(5, width, 0.0f);
    layer_norm<T>(1, 384, 0.0f);
    layer_norm<T>(257, 384, 0.0f);
    layer_norm<T>(8, 768, 1000.0f);
    layer_norm<T>(7, 72, 0.0f, true);
    for (size_t n : {8, 2048, 2056, 10000}) activate<T>(n, 0);
    for (int function : {1, 2, 3}) activate<T>(2056, function);
    swiglu<T>(1, 8);
    swiglu<T>(5, 64);
    swiglu<T>(65, 1536);
    swiglu<T>(3, 4096);
    rotate<T>(2, 7, 5, 3, 64, 32);
    rotate<T>(2, 4, 0, 2, 24, 11);
    const std::vector<int> texts{3, 77, 1, 64, 65, 130};
    for (int tokens : {1, 5, 64, 65, 257}) {
        attention<T>(std::vector<int>(tokens < 64 ? 2 : 1, tokens), 3, 64, false, false);
    }
    for (int dim : {4, 32, 60, 68, 80, 128, 132, 256}) attention<T>({65, 65}, 2, dim, false, false);
    for (int causal : {0, 1}) {
        for (int dim : {32, 80, 132}) attention<T>(texts, 2, dim, false, true, causal);
        if (tensor_cores) attention<T>(texts, 3, 64, true, true, causal);
    }
    if (tensor_cores) {
        for (int tokens : {1, 5, 16, 17, 63, 64, 65, 128, 130, 257}) attention<T>({tokens, tokens}, 3, 64, true, false);
    }
    for (int mode : {0, 1, 2}) {
        pool<T>({5, 5}, 1, 64, mode);
        pool<T>({261}, 5, 384, mode);
        pool<T>({600}, 1, 192, mode);
        pool<T>({3}, 1, 2048, mode);
    }
    pool<T>({1, 1}, 1, 64, 0);
    pool<T>({5, 5}, 2, 66, 0, 1);
    pool<T>({5, 5}, 0, 66, 1);
    pool<T>(texts, 0, 66, 1);
    widen_rows<T>(3, 40);
    widen_rows<T>(2, 261);
}

int main(int argc, char** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--names") == 0) {
        unsigned count;
        const KernelEntry* entries = emulated_kernels(&count);
        for (unsigned at = 0; at < count; ++at) {
            printf("%s", entries[at].name);
            for (unsigned p = 0; p < entries[at].param_count; ++p) printf(" %u", entries[at].param_bytes[p]);
            printf("\n");
        }
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--ignore-barrier") == 0) emulated::ignored_barrier = atoi(argv[2]);
    conversions<f16>(10);
    conversions<bf16>(7);
    check<float>(false);
    check<f16>(true);
#if __CUDA_ARCH__ >= 800
    check<bf16>(true);
#endif
    return 0;
}
