// Devices, their streams, and when what was enqueued really runs.
//
// All work is one graph of nodes that wait for others: the previous one of the stream, an awaited event, the legacy
// default stream. Enqueueing makes a node and runs nothing; what runs when is the order's business, and every order is
// one that CUDA allows.
#pragma once

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

// A captured sequence of work: each step names earlier ones that it waits for.
struct Graph {
    struct Step {
        Work run;
        std::vector<size_t> after;
    };
    Device* device;
    std::vector<Step> steps;
};

struct GraphExec {
    Graph graph;
    // Launches of one executable graph follow each other.
    NodePtr last;
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
    // Waits for the legacy default stream, and that for it.
    bool blocking;
    bool legacy;
    int priority;
    NodePtr tail;
    std::shared_ptr<Capture> capture;
    // The steps that this stream's next captured one waits for.
    std::set<size_t> frontier;
};

struct Event {
    Device* device;
    bool timed;
    // What the last record waits for, and when the device came by.
    NodePtr node;
    std::shared_ptr<std::chrono::steady_clock::time_point> time;
    // The last record, where it was a captured one.
    std::shared_ptr<Capture> capture;
    std::set<size_t> frontier;
};

struct Device {
    int ordinal;
    int references = 0;
    Stream legacy;
};

// The handles of one kind that callers hold, so that a stale one is an error and not a crash.
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
    // The most that a launch may ask for, until the caller sets more.
    int dynamic_shared;
};

class Machine {
public:
    // The process's one machine. It is never taken down: work may be left in it at the end.
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

    bool set_order(const std::string& name);

    // The stream behind a handle: CUDA's own names for default streams, or one that was made.
    Stream& stream(CUstream handle);
    // Enqueues work behind the stream's, and behind `more` where that is not null. Null when it was captured.
    NodePtr submit(Lock& lock, Stream& stream, Work run, NodePtr more = nullptr);
    void launch(Lock& lock, GraphExec& exec, Stream& stream);

    // Runs what it takes for this node to be done, and the node.
    void complete(Lock& lock, NodePtr node);
    void complete_stream(Lock& lock, Stream& stream);
    void complete_device(Lock& lock, Device& device);
    // An answer to "is it done?", after which time has passed.
    bool poll(Lock& lock, NodePtr node);
    // Time passes: in random order, some work that is free to run runs.
    void wander(Lock& lock);

    void begin_capture(Stream& stream, CUstreamCaptureMode mode);
    std::unique_ptr<Graph> end_capture(Stream& stream);
    // A stream that waits for a captured event becomes part of that capture.
    void join_capture(Stream& stream, Event& event);
    // Calls that a capture under way forbids.
    void refuse_in_capture();
    void refuse_in_capture_of(Stream& stream);
    // Forgets a capture's part of a stream that goes, and all of it where the capture began there.
    void abandon_capture(Stream& stream);

private:
    Machine();
    void run(Lock& lock, const NodePtr& node);
    std::vector<NodePtr> before(Stream& stream);
    void refuse_implicit_capture(Stream& stream);
    void leave_capture(Stream& stream);
    void end(const std::shared_ptr<Capture>& capture);
    void add_pending(NodePtr node);

    enum class Order { Late, Eager, Random };
    Order order_ = Order::Late;
    std::mt19937_64 random_;
    std::condition_variable finished_;
    // Everything not done, in the order of submission; done nodes are dropped now and then.
    std::deque<NodePtr> pending_;
    size_t prune_at_ = 1024;
    std::vector<std::shared_ptr<Capture>> captures_;
    uint64_t next_capture_ = 1;
};

// Of every emulated device: they are all alike.
int device_attribute(int number);

// The device whose work this thread runs at the moment.
extern thread_local Device* running_on;
// Whether this thread is inside a host function of a stream, which may not call CUDA.
extern thread_local bool in_host_function;
// The device whose context is current.
extern thread_local Device* current;

// The body of a driver function: checks what all of them check, and turns what it throws into its answer.
template <class Body>
CUresult api(Body body) {
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

inline Device& current_device() {
    require(current != nullptr && current->references > 0, CUDA_ERROR_INVALID_CONTEXT);
    return *current;
}
