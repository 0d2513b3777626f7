// Devices, their streams, and when enqueued work runs.
//
// All work is one graph of nodes that wait for others: the previous one of the stream, an awaited event, the legacy
// default stream. Enqueueing makes a node and runs nothing. The chosen order decides when nodes run, and every order is
// one that CUDA allows.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "driver/cuda.h"
#include "driver/memory.h"
#include "driver/ptx.h"
#include "shim/registry.h"

using Lock = std::unique_lock<std::mutex>;
using Work = std::function<void()>;

struct Node {
    enum class State { Waiting, Running, Done };
    Device* device;
    Work run;
    std::vector<std::shared_ptr<Node>> after;
    State state = State::Waiting;
};
using NodePtr = std::shared_ptr<Node>;

// A captured sequence of work: each step names the earlier ones that it waits for.
struct Graph {
    struct Step {
        Work run;
        std::vector<size_t> after;
    };
    Device* device;
    std::vector<Step> steps;
    // Of its kernels together, by which programs tell graphs of different batches apart.
    uint64_t blocks = 0;
};

struct GraphExec {
    Graph graph;
    // Launches of one executable graph run one at a time.
    NodePtr last;
    bool uploaded = false;
};

struct Capture {
    Graph graph;
    Stream* origin;
    CUstreamCaptureMode mode;
    std::thread::id thread;
    uint64_t id;
    bool invalid = false;
    bool ended = false;
    std::set<Stream*> streams;
};

struct Stream {
    Device* device;
    // Whether it is ordered with the legacy default stream, in both directions.
    bool blocking;
    bool legacy;
    int priority;
    NodePtr tail;
    std::shared_ptr<Capture> capture;
    // The steps that this stream's next captured step waits for.
    std::set<size_t> frontier;
};

struct Event {
    Device* device;
    bool timed;
    bool blocking;
    // The node that the last record waits for, and the time when the device reached it.
    NodePtr node;
    std::shared_ptr<std::chrono::steady_clock::time_point> time;
    // The last record's capture, if it was captured.
    std::shared_ptr<Capture> capture;
    std::set<size_t> frontier;
};

struct Device {
    int ordinal;
    int references = 0;
    // Of its context, as CU_CTX_SCHED_BLOCKING_SYNC.
    unsigned flags = 0;
    // The error that lost its context: no work runs any more, and every call returns it until the process ends.
    std::atomic<int> lost = CUDA_SUCCESS;
    Stream legacy;
};

// The handles of one kind that callers hold, so that a stale one gives an error instead of a crash.
template <class T>
class Handles {
public:
    T* add(std::unique_ptr<T> object) {
        T* handle = object.get();
        objects_[handle] = std::move(object);
        return handle;
    }
    T* find(T* handle) const {
        if (!objects_.contains(handle)) throw CUDA_ERROR_INVALID_HANDLE;
        return handle;
    }
    void remove(T* handle) {
        if (objects_.erase(handle) == 0) throw CUDA_ERROR_INVALID_HANDLE;
    }
    template <class F>
    void remove_if(F which) {
        std::erase_if(objects_, [&](auto& entry) { return which(*entry.second); });
    }
    auto& all() { return objects_; }

private:
    std::unordered_map<T*, std::unique_ptr<T>> objects_;
};

struct Module {
    Device* device;
    Ptx ptx;
};

struct Function {
    Module* module;
    Device* device;
    std::string name;
    Entry entry;
    const KernelEntry* kernel;
    // The most that a launch may request, until the caller raises it.
    int dynamic_shared;
    // Lazy loading: the first launch loads the code.
    bool loaded = false;
};

// What tests count, since the process began: `Counts` in `lib.rs`.
struct Counts {
    uint64_t spoilt_captures = 0;
    uint64_t context_waits = 0;
    uint64_t spinning_waits = 0;
    uint64_t blocks = 0;
    uint64_t cold_launches = 0;
    uint64_t pinnings = 0;
};

class Machine {
public:
    // The process's only machine. It is never destroyed, because unfinished work may be left in it at the end.
    static Machine& get();

    std::mutex lock;
    bool initialized = false;
    int major, minor;
    std::vector<std::unique_ptr<Device>> devices;
    Memory memory;
    Handles<Stream> streams;
    Handles<Event> events;
    Handles<Graph> graphs;
    Handles<GraphExec> execs;
    Handles<Module> modules;
    Handles<Function> functions;
    Counts counts;
    // The error of the next kernel that runs.
    std::atomic<int> next_fault = CUDA_SUCCESS;

    bool set_order(const std::string& name);

    // The stream behind a handle: one of CUDA's names for default streams, or a created stream.
    Stream& stream(CUstream handle);
    // Enqueues work behind the stream's, and behind `more` if that is not null. Null if the work was captured.
    NodePtr submit(Lock& lock, Stream& stream, Work run, NodePtr more = nullptr);
    void launch(Lock& lock, GraphExec& exec, Stream& stream);

    // Runs the node, and everything that it waits for.
    void complete(Lock& lock, NodePtr node);
    void complete_stream(Lock& lock, Stream& stream);
    void complete_device(Lock& lock, Device& device);
    // Whether the node is done; time passes after each query.
    bool poll(Lock& lock, NodePtr node);
    // Lets time pass: in random order, runs some of the work that is free to run.
    void wander(Lock& lock);

    void begin_capture(Stream& stream, CUstreamCaptureMode mode);
    std::unique_ptr<Graph> end_capture(Stream& stream);
    // Adds a stream that waits for a captured event to that capture.
    void join_capture(Stream& stream, Event& event);
    // Refuses a call that a capture in progress forbids.
    void refuse_in_capture();
    void refuse_in_capture_of(Stream& stream);
    // Refuses a call that involves all of the context's streams, whichever thread captures one of them in which mode.
    void refuse_while_capturing(Device& device);
    // Refuses to load code lazily while another thread captures.
    void refuse_load(Device& device);
    // Drops a destroyed stream's part of a capture, or all of the capture if it began there.
    void abandon_capture(Stream& stream);

private:
    Machine();
    void run(Lock& lock, const NodePtr& node);
    std::vector<NodePtr> before(Stream& stream);
    void refuse_implicit_capture(Stream& stream);
    void leave_capture(Stream& stream);
    void refuse_beside(Device& device, std::thread::id except);
    void end(const std::shared_ptr<Capture>& capture);
    void add_pending(NodePtr node);

    enum class Order { Late, Eager, Random };
    Order order_ = Order::Late;
    std::mt19937_64 random_;
    std::condition_variable finished_;
    // All unfinished work, in the order of submission; done nodes are dropped now and then.
    std::deque<NodePtr> pending_;
    size_t prune_at_ = 1024;
    std::vector<std::shared_ptr<Capture>> captures_;
    uint64_t next_capture_ = 1;
};

// An attribute of every emulated device: they are all alike.
int device_attribute(int number);

// The device whose work this thread is running.
extern thread_local Device* running_on;
// Whether this thread is inside a stream's host function, which must not call CUDA.
extern thread_local bool in_host_function;
// The device whose context is current.
extern thread_local Device* current;

// The body of a driver function that needs no context: runs the common checks, and converts exceptions into the status.
template <class Body>
CUresult api_without_context(Body body) {
    Machine& machine = Machine::get();
    if (in_host_function) return CUDA_ERROR_NOT_PERMITTED;
    Lock lock(machine.lock);
    if (!machine.initialized) return CUDA_ERROR_NOT_INITIALIZED;
    try {
        machine.wander(lock);
        body(machine, lock);
        return CUDA_SUCCESS;
    } catch (CUresult error) {
        return error;
    }
}

inline void require(bool condition, CUresult otherwise = CUDA_ERROR_INVALID_VALUE) {
    if (!condition) throw otherwise;
}

// The body of any other driver function, which also returns the errors of earlier work.
template <class Body>
CUresult api(Body body) {
    auto check = [] {
        if (current != nullptr && current->lost != CUDA_SUCCESS) throw static_cast<CUresult>(current->lost.load());
    };
    return api_without_context([&](Machine& machine, Lock& lock) {
        check();
        body(machine, lock);
        check();
    });
}

inline Device& current_device() {
    require(current != nullptr && current->references > 0, CUDA_ERROR_INVALID_CONTEXT);
    return *current;
}
