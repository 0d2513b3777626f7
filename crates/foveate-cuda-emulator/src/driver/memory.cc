#include "driver/memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace {

// Bits 47 to 55 of a real address are equal on every system that runs this; here they are not.
constexpr uint64_t TAG = 0x00DE'0000'0000'0000;
constexpr uint64_t TAG_MASK = 0xFFFF'0000'0000'0000;
// The start of each device's numbers. A gap follows every allocation, so that a stray pointer hits none.
constexpr int DEVICE_SHIFT = 42;
constexpr size_t GAP = 1 << 16;
constexpr size_t ALIGNMENT = 256;
constexpr int POISON = 0xFF;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t page() {
    static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

std::string hex(uint64_t number) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
    return text;
}

// Maps whole pages between two inaccessible ones; null if the system has no more memory.
char* map_guarded(size_t bytes) {
    size_t whole = bytes + 2 * page();
    void* map = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return nullptr;
    char* inside = static_cast<char*>(map) + page();
    if (mprotect(inside, bytes, PROT_READ | PROT_WRITE) != 0) {
        munmap(map, whole);
        return nullptr;
    }
    return inside;
}

}  // namespace

void die(const std::string& message) {
    std::fprintf(stderr, "CUDA emulator: %s\n", message.c_str());
    std::abort();
}

bool is_device_pointer(uint64_t pointer) { return (pointer & TAG_MASK) == TAG; }

Memory::Memory(int devices, size_t limit) : limit_(limit), used_(devices, 0) {
    for (int device = 0; device < devices; device++) next_.push_back(TAG + (uint64_t(device) << DEVICE_SHIFT) + GAP);
}

CUdeviceptr Memory::reserve(int device, size_t bytes) {
    std::lock_guard guard(lock_);
    size_t whole = round_up(bytes, ALIGNMENT);
    if (bytes > limit_ || used_[device] + whole > limit_) return 0;
    size_t mapped = round_up(whole, page());
    char* map = map_guarded(mapped);
    if (map == nullptr) return 0;
    std::memset(map, POISON, mapped);
    CUdeviceptr start = next_[device];
    next_[device] += mapped + GAP;
    used_[device] += whole;
    allocations_[start] = Allocation{start, bytes, device, State::Reserved, map, mapped, map + mapped - whole};
    return start;
}

void Memory::set_live(CUdeviceptr pointer) {
    std::lock_guard guard(lock_);
    allocations_.at(pointer).state = State::Live;
}

void Memory::release(CUdeviceptr pointer, int device) {
    std::lock_guard guard(lock_);
    auto found = allocations_.find(pointer);
    if (found == allocations_.end()) die("free of " + hex(pointer) + ", which is no allocation");
    Allocation& allocation = found->second;
    if (allocation.state == State::Freed) die("double free of " + hex(pointer));
    if (allocation.state == State::Reserved)
        die("free of " + hex(pointer) + " before its stream-ordered allocation ran");
    if (allocation.device != device) die("free of " + hex(pointer) + " on another device than its own");
    unmap(allocation);
}

void Memory::release_all(int device) {
    std::lock_guard guard(lock_);
    for (auto& [start, allocation] : allocations_) {
        if (allocation.device == device && allocation.state != State::Freed) unmap(allocation);
    }
}

void Memory::unmap(Allocation& allocation) {
    // The rest of the allocation's own pages must be unchanged.
    for (const char* at = allocation.map; at < allocation.map + allocation.mapped; at++) {
        if (at == allocation.host) at += allocation.bytes;
        if (at == allocation.map + allocation.mapped) break;
        if (static_cast<unsigned char>(*at) != POISON) {
            die("memory was written outside of allocation " + hex(allocation.start) + " of " +
                std::to_string(allocation.bytes) + " bytes, at offset " + std::to_string(at - allocation.host));
        }
    }
    munmap(allocation.map - page(), allocation.mapped + 2 * page());
    used_[allocation.device] -= round_up(allocation.bytes, ALIGNMENT);
    allocation.state = State::Freed;
    allocation.map = allocation.host = nullptr;
}

const Memory::Allocation* Memory::find(CUdeviceptr pointer) const {
    auto after = allocations_.upper_bound(pointer);
    if (after == allocations_.begin()) return nullptr;
    const Allocation& allocation = std::prev(after)->second;
    return pointer <= allocation.start + allocation.bytes ? &allocation : nullptr;
}

bool Memory::is_start_of_live(CUdeviceptr pointer) const {
    std::lock_guard guard(lock_);
    auto found = allocations_.find(pointer);
    return found != allocations_.end() && found->second.state != State::Freed;
}

size_t Memory::used(int device) const {
    std::lock_guard guard(lock_);
    return used_[device];
}

char* Memory::address(CUdeviceptr pointer, size_t bytes, int device, const char* what) const {
    std::lock_guard guard(lock_);
    std::string use = std::string(what) + ": " + hex(pointer);
    if (!is_device_pointer(pointer)) die(use + " is no device pointer");
    const Allocation* allocation = find(pointer);
    if (allocation == nullptr) die(use + " lies outside of every allocation");
    if (allocation->state == State::Freed) die(use + " was freed");
    if (allocation->state == State::Reserved) die(use + " is used before its stream-ordered allocation ran");
    if (allocation->device != device) die(use + " belongs to another device");
    size_t offset = pointer - allocation->start;
    if (bytes > allocation->bytes - offset) {
        die(use + ": " + std::to_string(bytes) + " bytes from offset " + std::to_string(offset) +
            " leave an allocation of " + std::to_string(allocation->bytes));
    }
    return allocation->host + offset;
}

void* Memory::pin(size_t bytes, unsigned flags) {
    std::lock_guard guard(lock_);
    size_t mapped = round_up(bytes, page());
    char* start = map_guarded(mapped);
    if (start == nullptr) return nullptr;
    std::memset(start, POISON, mapped);
    pinned_[start] = Pinned{bytes, mapped, flags, true};
    return start;
}

// The addresses stay reserved: a copy that still needs them is detected, and host code that does crashes.
bool Memory::unpin(void* start) {
    std::lock_guard guard(lock_);
    auto found = pinned_.find(static_cast<const char*>(start));
    if (found == pinned_.end() || !found->second.live) return false;
    madvise(start, found->second.mapped, MADV_DONTNEED);
    mprotect(start, found->second.mapped, PROT_NONE);
    found->second.live = false;
    return true;
}

bool Memory::is_pinned_start(const void* start, unsigned* flags) const {
    std::lock_guard guard(lock_);
    auto found = pinned_.find(static_cast<const char*>(start));
    if (found == pinned_.end() || !found->second.live) return false;
    *flags = found->second.flags;
    return true;
}

bool Memory::check_host(const void* start, size_t bytes, const char* what) const {
    if (is_device_pointer(reinterpret_cast<uint64_t>(start))) {
        die(std::string(what) + ": device pointer " + hex(reinterpret_cast<uint64_t>(start)) +
            " in the place of host memory");
    }
    std::lock_guard guard(lock_);
    auto after = pinned_.upper_bound(static_cast<const char*>(start));
    if (after == pinned_.begin()) return false;
    auto& [base, pinned] = *std::prev(after);
    size_t offset = static_cast<size_t>(static_cast<const char*>(start) - base);
    if (offset >= pinned.mapped) return false;
    if (!pinned.live) die(std::string(what) + ": pinned memory was freed while a copy still needed it");
    if (offset + bytes > pinned.bytes) die(std::string(what) + ": the copy leaves pinned memory");
    return true;
}
