// Blocks run in shuffled order on the machine's cores, their threads as fibers.

#include "grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <numeric>
#include <thread>
#include <vector>

#include "shim.h"
#ifndef __x86_64__
#include <ucontext.h>
#endif

constinit thread_local uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {
namespace {

// CUDA's limit on every device that the kernels support.
constexpr unsigned MAX_THREADS = 1024;
constexpr size_t STACK_BYTES = 64 << 10;

[[noreturn]] void fail(const char* what) {
    fprintf(stderr, "CUDA emulator: block (%u, %u, %u), thread (%u, %u, %u): %s\n", blockIdx.x, blockIdx.y, blockIdx.z,
            threadIdx.x, threadIdx.y, threadIdx.z, what);
    abort();
}

// ---- Switching between stacks ----

#ifdef __x86_64__
// Saves the registers that a call preserves on this stack and continues on another, by the System V calling convention.
extern "C" void emulated_switch(void** save, void* load);
asm(R"(
    .text
    .type emulated_switch, @function
    .hidden emulated_switch
    .globl emulated_switch
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulated_switch, . - emulated_switch
)");

class Context {
  public:
    // A context that starts in `entry`, which never returns.
    void start(char* stack, void (*entry)()) {
        // On entry the stack is 8 bytes off a multiple of 16, as after a call.
        void** top = reinterpret_cast<void**>(stack + STACK_BYTES) - 2;
        *top = reinterpret_cast<void*>(entry);
        stack_pointer = top - 6;
    }

    void switch_to(Context& other) { emulated_switch(&stack_pointer, other.stack_pointer); }

  private:
    void* stack_pointer = nullptr;
};
#else
class Context {
  public:
    void start(char* stack, void (*entry)()) {
        getcontext(&context);
        context.uc_stack.ss_sp = stack;
        context.uc_stack.ss_size = STACK_BYTES;
        makecontext(&context, entry, 0);
    }

    void switch_to(Context& other) { swapcontext(&context, &other.context); }

  private:
    ucontext_t context{};
};
#endif

// ---- One thread of a block ----

struct Copy {
    void* to;
    const void* from;
};

using Operation = void (*)(void* const (&lanes)[WARP]);

struct Fiber {
    enum State { READY, AT_COLLECTIVE, AT_BARRIER, DONE };

    Context context;
    State state;
    Operation operation;
    void* argument;
    // Copies in flight: those of the open group, and those of closed groups, oldest first.
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
};

// Pseudorandom numbers (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
struct SplitMix {
    uint64_t state;

    using result_type = uint64_t;
    static constexpr uint64_t min() { return 0; }
    static constexpr uint64_t max() { return UINT64_MAX; }

    uint64_t operator()() {
        uint64_t z = state += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
    }
};

// ---- A block ----

class Block {
  public:
    Block() {
        void* mapped = mmap(nullptr, MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) fail("no memory for the stacks of its threads");
        stacks = static_cast<char*>(mapped);
    }

    ~Block() { munmap(stacks, MAX_THREADS * STACK_BYTES); }

    Block(const Block&) = delete;

    void run(uint64_t seed, const std::function<void()>& body) {
        random.state = seed;
        kernel = &body;
        for (const auto& [memory, bytes] : shared) memset(memory, POISON, bytes);
        fibers.resize(blockDim.x * blockDim.y * blockDim.z);
        for (size_t at = 0; at < fibers.size(); ++at) {
            fibers[at].context.start(stacks + at * STACK_BYTES, enter);
            fibers[at].state = Fiber::READY;
            fibers[at].open.clear();
            fibers[at].groups.clear();
        }
        while (run_to_barrier()) {
        }
    }

    void wait(Fiber::State state) {
        running->state = state;
        running->context.switch_to(scheduler);
    }

    Fiber* running = nullptr;
    // Memory that is poisoned before each block.
    std::vector<std::pair<void*, unsigned>> shared;

  private:
    static void enter();

    // Runs all threads to the next barrier; returns whether work remains.
    bool run_to_barrier() {
        std::vector<unsigned> warps(fibers.size() / WARP);
        std::iota(warps.begin(), warps.end(), 0);
        std::shuffle(warps.begin(), warps.end(), random);
        for (unsigned warp : warps) run_warp(&fibers[warp * WARP]);
        const size_t done =
            std::count_if(fibers.begin(), fibers.end(), [](const Fiber& fiber) { return fiber.state == Fiber::DONE; });
        if (done == fibers.size()) return false;
        if (done > 0) fail("some threads wait at __syncthreads, others have returned");
        for (Fiber& fiber : fibers) fiber.state = Fiber::READY;
        return true;
    }

    // Runs until every lane has returned or waits for other warps.
    void run_warp(Fiber* lanes) {
        unsigned order[WARP];
        std::iota(order, order + WARP, 0);
        for (;;) {
            std::shuffle(order, order + WARP, random);
            for (unsigned lane : order) resume(lanes[lane]);
            const auto collective = std::count_if(
                lanes, lanes + WARP, [](const Fiber& fiber) { return fiber.state == Fiber::AT_COLLECTIVE; });
            if (collective == 0) return;
            if (collective != WARP) fail("a warp-wide operation was not reached by every lane");
            perform(lanes);
        }
    }

    void resume(Fiber& fiber) {
        if (fiber.state != Fiber::READY) return;
        const unsigned thread = static_cast<unsigned>(&fiber - fibers.data());
        threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
        running = &fiber;
        scheduler.switch_to(fiber.context);
    }

    static void perform(Fiber* lanes) {
        void* arguments[WARP];
        for (unsigned lane = 0; lane < WARP; ++lane) {
            if (lanes[lane].operation != lanes[0].operation) fail("the lanes of a warp met in different operations");
            arguments[lane] = lanes[lane].argument;
            lanes[lane].state = Fiber::READY;
        }
        lanes[0].operation(arguments);
    }

    char* stacks;
    std::vector<Fiber> fibers;
    Context scheduler;
    const std::function<void()>* kernel = nullptr;
    SplitMix random{};
};

// One block at a time per operating-system thread.
Block& block() {
    static thread_local Block block;
    return block;
}

void Block::enter() {
    Block& here = block();
    (*here.kernel)();
    here.wait(Fiber::DONE);
    abort();
}

void finish(const std::vector<Copy>& copies) {
    for (const Copy& copy : copies) {
        if (copy.from) {
            memcpy(copy.to, copy.from, sizeof(uint4));
        } else {
            memset(copy.to, 0, sizeof(uint4));
        }
    }
}

bool is_aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % alignof(uint4) == 0; }

}  // namespace

// What the compiler's check of alignment says of an access; its layout is the compilers' own.
struct Access {
    struct {
        const char* file;
        unsigned line, column;
    } place;
    const struct {
        unsigned short kind, size;
        char name[1];
    }* type;
    unsigned char alignment_bits, kind;
};

// The check calls this where the compiler's library would report: on a device, such an access ends the context.
extern "C" [[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(Access* access, uintptr_t address) {
    char what[256];
    snprintf(what, sizeof what, "%s:%u: misaligned access to a %s, %llu bytes off", access->place.file,
             access->place.line, access->type->name,
             static_cast<unsigned long long>(address % (1ull << access->alignment_bits)));
    fail(what);
}

unsigned ignored_barrier = 0;

void barrier(unsigned line) {
    if (line != ignored_barrier) block().wait(Fiber::AT_BARRIER);
}

void collective(Operation operation, void* mine) {
    Fiber& fiber = *block().running;
    fiber.operation = operation;
    fiber.argument = mine;
    block().wait(Fiber::AT_COLLECTIVE);
}

void copy_start(void* to, const void* from) {
    if (!is_aligned(to) || !is_aligned(from)) fail("misaligned asynchronous copy of 16 bytes");
    memset(to, POISON, sizeof(uint4));
    block().running->open.push_back({to, from});
}

void copies_commit() {
    Fiber& fiber = *block().running;
    fiber.groups.push_back(std::move(fiber.open));
    fiber.open.clear();
}

void copies_wait(unsigned pending) {
    Fiber& fiber = *block().running;
    while (fiber.groups.size() > pending) {
        finish(fiber.groups.front());
        fiber.groups.pop_front();
    }
}

void poison_between_blocks(void* memory, unsigned bytes) { block().shared.emplace_back(memory, bytes); }

void run_grid(Dim3 grid, Dim3 block_size, unsigned shared_bytes, const std::function<void()>& kernel) {
    // Each launch has another order; a program that launches in the same order gets the same ones in every run.
    static std::atomic<uint64_t> launches{0};
    const uint64_t seed = ++launches;
    const uint64_t threads = static_cast<uint64_t>(block_size.x) * block_size.y * block_size.z;
    if (threads == 0 || threads > MAX_THREADS || threads % WARP != 0) fail("blocks are of 1 to 32 whole warps");
    if (shared_bytes != 0) fail("no kernel takes dynamic shared memory");
    std::vector<uint64_t> blocks(static_cast<uint64_t>(grid.x) * grid.y * grid.z);
    std::iota(blocks.begin(), blocks.end(), 0);
    SplitMix random{seed};
    std::shuffle(blocks.begin(), blocks.end(), random);
    // Blocks are independent, so the machine's cores share them; a block's number determines its own order.
    std::atomic<size_t> next{0};
    const auto work = [&] {
        gridDim = {grid.x, grid.y, grid.z};
        blockDim = {block_size.x, block_size.y, block_size.z};
        for (size_t turn = next++; turn < blocks.size(); turn = next++) {
            const uint64_t at = blocks[turn];
            blockIdx = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                        static_cast<unsigned>(at / grid.x / grid.y)};
            block().run(SplitMix{seed ^ (at << 20)}(), kernel);
        }
    };
    // Starting a thread takes as long as a few blocks.
    constexpr size_t BLOCKS_PER_THREAD = 16;
    const size_t cores = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> helpers(std::min(cores, 1 + blocks.size() / BLOCKS_PER_THREAD) - 1);
    for (std::thread& helper : helpers) helper = std::thread(work);
    work();
    for (std::thread& helper : helpers) helper.join();
}

}  // namespace emulated
