// libnvjpeg.so.12: baseline and progressive JPEG into interleaved RGB, with the pixels of the system's libjpeg. The
// device's part of an image runs when its stream does, no sooner, and reads the attached buffers' content of that time.
// Chips of compute capability 8.0, 8.7, 9.0 and 10.0 have engines.
#include <atomic>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <vector>

#include <jpeglib.h>

#include "emulator.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

enum Status : int {
    SUCCESS = 0,
    NOT_INITIALIZED = 1,
    INVALID_PARAMETER = 2,
    BAD_JPEG = 3,
    JPEG_NOT_SUPPORTED = 4,
    ALLOCATOR_FAILURE = 5,
    EXECUTION_FAILED = 6,
    ARCH_MISMATCH = 7,
};
enum Backend : int { DEFAULT = 0, HYBRID = 1, GPU_HYBRID = 2, HARDWARE = 3 };
constexpr int OUTPUT_RGB_INTERLEAVED = 5;
constexpr unsigned UPSAMPLING_WITH_INTERPOLATION = 1 << 5;

struct Image {
    unsigned char* channel[4];
    size_t pitch[4];
};

struct Header {
    unsigned width = 0, height = 0;
    int components = 0;
    bool progressive = false;
};

struct Picture {
    unsigned width = 0, height = 0;
    std::vector<unsigned char> rgb;
};

struct Handle {
    bool engines;
    // Memory grows in steps of so many bytes.
    size_t device_padding = 1, pinned_padding = 1;
};
struct Decoder {
    Backend backend;
};
struct Params {
    int format = 0;
};
// The bytes are not copied: with `save_stream` = 0 the caller keeps them.
struct JpegStream {
    const unsigned char* data = nullptr;
    size_t length = 0;
    Header header;
};
template <class F>
F* driver(const char* name) {
    static void* library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? reinterpret_cast<F*>(dlsym(library, name)) : nullptr;
}

// Memory of the library's own, which grows to the largest picture.
struct HostMemory {
    size_t bytes = 0;
    bool take(size_t wanted) { return bytes = wanted, true; }
};
struct DeviceMemory {
    size_t bytes = 0;
    unsigned long long start = 0;
    bool take(size_t wanted) {
        driver<int(unsigned long long)>("cuMemFree_v2")(start);
        start = bytes = 0;
        if (driver<int(unsigned long long*, size_t)>("cuMemAlloc_v2")(&start, wanted) == 0) bytes = wanted;
        return bytes != 0;
    }
    ~DeviceMemory() { driver<int(unsigned long long)>("cuMemFree_v2")(start); }
};
struct PinnedBuffer {
    Picture picture;
    HostMemory memory;
};
struct DeviceBuffer {
    Picture picture;
    DeviceMemory memory;
};
struct State {
    PinnedBuffer* pinned = nullptr;
    DeviceBuffer* device = nullptr;
    int batch = 0;
    DeviceMemory memory;
};

// libjpeg's errors end the call. Its warnings are ignored, because nvJPEG also decodes what is there.
struct Errors {
    jpeg_error_mgr base;
    jmp_buf escape;
};

void fail(j_common_ptr info) { longjmp(reinterpret_cast<Errors*>(info->err)->escape, 1); }
void hush(j_common_ptr, int) {}

// Reads the header, and the picture if `picture` is given.
Status read(const unsigned char* data, size_t length, Header* header, Picture* picture) {
    if (data == nullptr || length == 0) return INVALID_PARAMETER;
    jpeg_decompress_struct info;
    Errors errors;
    info.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = fail;
    errors.base.emit_message = hush;
    if (setjmp(errors.escape) != 0) {
        jpeg_destroy_decompress(&info);
        return BAD_JPEG;
    }
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, data, static_cast<unsigned long>(length));
    jpeg_read_header(&info, TRUE);
    *header = {info.image_width, info.image_height, info.num_components, info.progressive_mode != FALSE};
    bool supported = !info.arith_code && info.data_precision == 8 && (info.num_components == 1 || info.num_components == 3);
    if (supported && picture != nullptr) {
        info.out_color_space = JCS_RGB;
        jpeg_start_decompress(&info);
        picture->width = info.output_width;
        picture->height = info.output_height;
        picture->rgb.resize(size_t(info.output_width) * info.output_height * 3);
        while (info.output_scanline < info.output_height) {
            JSAMPROW row = picture->rgb.data() + size_t(info.output_scanline) * info.output_width * 3;
            jpeg_read_scanlines(&info, &row, 1);
        }
        jpeg_finish_decompress(&info);
    }
    jpeg_destroy_decompress(&info);
    return supported ? SUCCESS : JPEG_NOT_SUPPORTED;
}

void put(const Picture& picture, const Image& to, const char* what) {
    auto* address = driver<CudaEmulatorAddress>(CUDA_EMULATOR_ADDRESS);
    size_t row = size_t(picture.width) * 3, pitch = to.pitch[0];
    size_t bytes = picture.height == 0 ? 0 : (picture.height - 1) * pitch + row;
    auto* start = static_cast<unsigned char*>(address(reinterpret_cast<uintptr_t>(to.channel[0]), bytes, what));
    for (unsigned y = 0; y < picture.height; y++) std::memcpy(start + y * pitch, picture.rgb.data() + y * row, row);
}

// Runs `work` when the stream reaches it.
template <class Work>
Status enqueue(void* stream, Work work) {
    auto* submit = driver<CudaEmulatorSubmit>(CUDA_EMULATOR_SUBMIT);
    auto run = [](void* data) { (*static_cast<Work*>(data))(); };
    auto release = [](void* data) { delete static_cast<Work*>(data); };
    return submit(stream, run, new Work(std::move(work)), release) == 0 ? SUCCESS : EXECUTION_FAILED;
}

// Runs `work` now, as engines do, in no order with any stream's work.
template <class Work>
Status at_once(Work work) {
    constexpr unsigned NON_BLOCKING = 1;
    void* stream = nullptr;
    if (driver<int(void**, unsigned)>("cuStreamCreate")(&stream, NON_BLOCKING) != 0) return EXECUTION_FAILED;
    Status status = enqueue(stream, std::move(work));
    bool done = driver<int(void*)>("cuStreamSynchronize")(stream) == 0;
    driver<int(void*)>("cuStreamDestroy_v2")(stream);
    return done ? status : EXECUTION_FAILED;
}

// Makes room for a picture's coefficients. Freeing the previous memory waits for the whole context.
template <class Memory>
bool grow(Memory& memory, const Header& header, size_t padding) {
    size_t needed = size_t(header.width) * header.height * 3 * sizeof(short);
    if (needed <= memory.bytes) return true;
    if (driver<int()>("cuCtxSynchronize")() != 0) return false;
    return memory.take((needed + padding - 1) / padding * padding);
}

// How often a batch was prepared.
std::atomic<uint64_t> prepared = 0;

// The status of a request for engines, if it is not what the chip says.
std::atomic<int> refusal = SUCCESS;

template <class T, class... Arguments>
Status make(T** made, Arguments... arguments) {
    if (made == nullptr) return INVALID_PARAMETER;
    *made = new T{arguments...};
    return SUCCESS;
}

template <class T>
Status destroy(T* object) {
    if (object == nullptr) return INVALID_PARAMETER;
    delete object;
    return SUCCESS;
}

bool chip_has_engines() {
    constexpr int CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76;
    auto* current = driver<int(int*)>("cuCtxGetDevice");
    auto* attribute = driver<int(int*, int, int)>("cuDeviceGetAttribute");
    int device = 0, major = 0, minor = 0;
    if (current(&device) != 0) return false;
    attribute(&major, CAPABILITY_MAJOR, device);
    attribute(&minor, CAPABILITY_MINOR, device);
    return (major == 8 && (minor == 0 || minor == 7)) || (major >= 9 && major <= 10 && minor == 0);
}

// 0 for yes, the library's convention.
int unsupported(bool supported) { return supported ? 0 : 1; }

}  // namespace

EXPORTED void nvjpeg_emulator_refuse_engines(int status) { refusal = status; }
EXPORTED uint64_t nvjpeg_emulator_prepared_batches() { return prepared; }

EXPORTED Status nvjpegGetProperty(int property, int* value) {
    static const int RELEASE[] = {12, 4, 0};
    if (property < 0 || property > 2 || value == nullptr) return INVALID_PARAMETER;
    *value = RELEASE[property];
    return SUCCESS;
}

EXPORTED Status nvjpegCreateEx(int backend, void* device_allocator, void* pinned_allocator, unsigned flags, Handle** handle) {
    bool known = backend >= DEFAULT && backend <= HARDWARE && (flags & ~UPSAMPLING_WITH_INTERPOLATION) == 0;
    if (!known || device_allocator != nullptr || pinned_allocator != nullptr) return INVALID_PARAMETER;
    // A real driver in place of the emulated one could not run this.
    if (driver<CudaEmulatorSubmit>(CUDA_EMULATOR_SUBMIT) == nullptr) return NOT_INITIALIZED;
    if (backend == HARDWARE && refusal != SUCCESS) return static_cast<Status>(refusal.load());
    if (backend == HARDWARE && !chip_has_engines()) return ARCH_MISMATCH;
    return make(handle, backend == HARDWARE);
}

EXPORTED Status nvjpegGetHardwareDecoderInfo(Handle* handle, unsigned* engines, unsigned* cores) {
    if (handle == nullptr || engines == nullptr || cores == nullptr) return INVALID_PARAMETER;
    *engines = handle->engines ? 5 : 0;
    *cores = handle->engines ? 1 : 0;
    return SUCCESS;
}

EXPORTED Status nvjpegDestroy(Handle* handle) { return destroy(handle); }

EXPORTED Status nvjpegSetDeviceMemoryPadding(size_t padding, Handle* handle) {
    if (handle == nullptr || padding == 0) return INVALID_PARAMETER;
    handle->device_padding = padding;
    return SUCCESS;
}

EXPORTED Status nvjpegSetPinnedMemoryPadding(size_t padding, Handle* handle) {
    if (handle == nullptr || padding == 0) return INVALID_PARAMETER;
    handle->pinned_padding = padding;
    return SUCCESS;
}

EXPORTED Status nvjpegJpegStateCreate(Handle*, State** state) { return make(state); }
EXPORTED Status nvjpegDecoderStateCreate(Handle*, Decoder* decoder, State** state) {
    return decoder == nullptr ? INVALID_PARAMETER : make(state);
}
EXPORTED Status nvjpegJpegStateDestroy(State* state) { return destroy(state); }
EXPORTED Status nvjpegJpegStreamCreate(Handle*, JpegStream** stream) { return make(stream); }
EXPORTED Status nvjpegJpegStreamDestroy(JpegStream* stream) { return destroy(stream); }
EXPORTED Status nvjpegDecodeParamsCreate(Handle*, Params** params) { return make(params); }
EXPORTED Status nvjpegDecodeParamsDestroy(Params* params) { return destroy(params); }
EXPORTED Status nvjpegBufferPinnedCreate(Handle*, void*, PinnedBuffer** buffer) { return make(buffer); }
EXPORTED Status nvjpegBufferPinnedDestroy(PinnedBuffer* buffer) { return destroy(buffer); }
EXPORTED Status nvjpegBufferDeviceCreate(Handle*, void*, DeviceBuffer** buffer) { return make(buffer); }
EXPORTED Status nvjpegBufferDeviceDestroy(DeviceBuffer* buffer) { return destroy(buffer); }
EXPORTED Status nvjpegDecoderDestroy(Decoder* decoder) { return destroy(decoder); }

EXPORTED Status nvjpegDecoderCreate(Handle*, int backend, Decoder** decoder) {
    if (backend < DEFAULT || backend > GPU_HYBRID) return INVALID_PARAMETER;
    return make(decoder, static_cast<Backend>(backend));
}

EXPORTED Status nvjpegDecodeParamsSetOutputFormat(Params* params, int format) {
    if (params == nullptr || format != OUTPUT_RGB_INTERLEAVED) return INVALID_PARAMETER;
    params->format = format;
    return SUCCESS;
}

EXPORTED Status nvjpegStateAttachPinnedBuffer(State* state, PinnedBuffer* buffer) {
    if (state == nullptr || buffer == nullptr) return INVALID_PARAMETER;
    state->pinned = buffer;
    return SUCCESS;
}

EXPORTED Status nvjpegStateAttachDeviceBuffer(State* state, DeviceBuffer* buffer) {
    if (state == nullptr || buffer == nullptr) return INVALID_PARAMETER;
    state->device = buffer;
    return SUCCESS;
}

EXPORTED Status nvjpegJpegStreamParseHeader(Handle*, const unsigned char* data, size_t length, JpegStream* stream) {
    if (stream == nullptr) return INVALID_PARAMETER;
    *stream = JpegStream{};
    return read(data, length, &stream->header, nullptr);
}

EXPORTED Status nvjpegJpegStreamParse(Handle* handle, const unsigned char* data, size_t length, int, int save_stream,
                                      JpegStream* stream) {
    if (save_stream != 0) return INVALID_PARAMETER;
    if (Status status = nvjpegJpegStreamParseHeader(handle, data, length, stream)) return status;
    stream->data = data;
    stream->length = length;
    return SUCCESS;
}

EXPORTED Status nvjpegJpegStreamGetFrameDimensions(JpegStream* stream, unsigned* width, unsigned* height) {
    if (stream == nullptr || stream->header.components == 0) return INVALID_PARAMETER;
    *width = stream->header.width;
    *height = stream->header.height;
    return SUCCESS;
}

EXPORTED Status nvjpegDecoderJpegSupported(Decoder* decoder, JpegStream* stream, Params* params, int* is_unsupported) {
    if (decoder == nullptr || stream == nullptr || params == nullptr || is_unsupported == nullptr) return INVALID_PARAMETER;
    *is_unsupported = unsupported(decoder->backend != GPU_HYBRID || !stream->header.progressive);
    return SUCCESS;
}

EXPORTED Status nvjpegDecodeBatchedSupported(Handle* handle, JpegStream* stream, int* is_unsupported) {
    if (handle == nullptr || stream == nullptr || is_unsupported == nullptr) return INVALID_PARAMETER;
    *is_unsupported = unsupported(handle->engines && !stream->header.progressive);
    return SUCCESS;
}

// Writes to the pinned buffer at once, even if the device may still be reading it.
EXPORTED Status nvjpegDecodeJpegHost(Handle* handle, Decoder*, State* state, Params* params, JpegStream* stream) {
    bool ready = handle != nullptr && state != nullptr && state->pinned != nullptr && params != nullptr && stream != nullptr;
    if (!ready || params->format == 0) return INVALID_PARAMETER;
    if (!grow(state->pinned->memory, stream->header, handle->pinned_padding)) return ALLOCATOR_FAILURE;
    return read(stream->data, stream->length, &stream->header, &state->pinned->picture);
}

EXPORTED Status nvjpegDecodeJpegTransferToDevice(Handle* handle, Decoder*, State* state, JpegStream* parsed, void* stream) {
    bool ready = handle != nullptr && state != nullptr && state->pinned != nullptr && state->device != nullptr;
    if (!ready || parsed == nullptr) return INVALID_PARAMETER;
    if (!grow(state->device->memory, parsed->header, handle->device_padding)) return ALLOCATOR_FAILURE;
    return enqueue(stream, [from = state->pinned, to = state->device] { to->picture = from->picture; });
}

EXPORTED Status nvjpegDecodeJpegDevice(Handle*, Decoder*, State* state, Image* to, void* stream) {
    if (state == nullptr || state->device == nullptr || to == nullptr) return INVALID_PARAMETER;
    return enqueue(stream, [from = state->device, to = *to] { put(from->picture, to, "nvjpegDecodeJpegDevice"); });
}

EXPORTED Status nvjpegDecodeBatchedInitialize(Handle*, State* state, int batch, int threads, int format) {
    bool valid = state != nullptr && batch > 0 && threads > 0 && format == OUTPUT_RGB_INTERLEAVED;
    if (!valid) return INVALID_PARAMETER;
    if (refusal != SUCCESS) return static_cast<Status>(refusal.load());
    prepared++;
    state->batch = batch;
    return SUCCESS;
}

// Engines decode and write at once, whatever the stream's earlier work is doing: reported of real ones (H100, nvJPEG 12.3
// to 13.2).
EXPORTED Status nvjpegDecodeBatched(Handle* handle, State* state, const unsigned char* const* data, const size_t* lengths,
                                    Image* to, void* stream) {
    if (handle == nullptr || state == nullptr || state->batch == 0) return INVALID_PARAMETER;
    for (int at = 0; at < state->batch; at++) {
        Header header;
        Status status = read(data[at], lengths[at], &header, nullptr);
        if (status != SUCCESS) return status;
        if (header.progressive) return JPEG_NOT_SUPPORTED;
        if (!grow(state->memory, header, handle->device_padding)) return ALLOCATOR_FAILURE;
        auto decode = [data = data[at], length = lengths[at], to = to[at]] {
            Header header;
            Picture picture;
            if (read(data, length, &header, &picture) == SUCCESS) put(picture, to, "nvjpegDecodeBatched");
        };
        Status given = handle->engines ? at_once(decode) : enqueue(stream, decode);
        if (given != SUCCESS) return given;
    }
    return SUCCESS;
}
