#include "driver/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

thread_local Device* running_on = nullptr;
thread_local bool in_host_function = false;
thread_local Device* current = nullptr;

namespace {

long long setting(const char* name, long long otherwise, long long least, long long most) {
    const char* text = std::getenv(name);
    if (text == nullptr) return otherwise;
    char* end = nullptr;
    long long value = std::strtoll(text, &end, 10);
    if (end == text || *end != 0 || value < least || value > most)
        die(std::string(name) + "=" + text + " is no such number");
    return value;
}

bool is_done(const NodePtr& node) { return node == nullptr || node->state == Node::State::Done; }

bool is_ready(const NodePtr& node) {
    return node->state == Node::State::Waiting && std::all_of(node->after.begin(), node->after.end(), is_done);
}

// These steps, and every step that they wait for, directly or not.
std::vector<bool> reachable(const Graph& graph, const std::set<size_t>& from) {
    std::vector<bool> seen(graph.steps.size(), false);
    for (size_t step : from) seen[step] = true;
    // Steps name only earlier ones, so one pass from the end is enough.
    for (size_t step = graph.steps.size(); step-- > 0;) {
        if (!seen[step]) continue;
        for (size_t earlier : graph.steps[step].after) seen[earlier] = true;
    }
    return seen;
}

// The steps that no other step waits for.
std::set<size_t> last_steps(const Graph& graph) {
    std::set<size_t> last;
    for (size_t step = 0; step < graph.steps.size(); step++) {
        for (size_t earlier : graph.steps[step].after) last.erase(earlier);
        last.insert(step);
    }
    return last;
}

void capture_step(Stream& stream, Work run) {
    auto& steps = stream.capture->graph.steps;
    steps.push_back({std::move(run), {stream.frontier.begin(), stream.frontier.end()}});
    stream.frontier = {steps.size() - 1};
}

void capture_graph(Stream& stream, const Graph& graph) {
    auto& steps = stream.capture->graph.steps;
    size_t first = steps.size();
    for (const Graph::Step& step : graph.steps) {
        std::vector<size_t> after;
        for (size_t earlier : step.after) after.push_back(first + earlier);
        if (after.empty()) after.assign(stream.frontier.begin(), stream.frontier.end());
        steps.push_back({step.run, std::move(after)});
    }
    if (graph.steps.empty()) return;
    stream.frontier.clear();
    for (size_t step : last_steps(graph)) stream.frontier.insert(first + step);
}

}  // namespace

Machine& Machine::get() {
    static Machine& machine = *new Machine();
    return machine;
}

Machine::Machine()
    : memory(static_cast<int>(setting("CUDA_EMULATOR_DEVICES", 1, 0, 64)),
             static_cast<size_t>(setting("CUDA_EMULATOR_MEMORY", 4LL << 30, 1, 1LL << 40))) {
    const char* capability = std::getenv("CUDA_EMULATOR_CC");
    char end = 0;
    if (std::sscanf(capability ? capability : "8.0", "%d.%d%c", &major, &minor, &end) != 2) {
        die(std::string("CUDA_EMULATOR_CC=") + capability + " is no compute capability");
    }
    const char* order = std::getenv("CUDA_EMULATOR_ORDER");
    if (order != nullptr && !set_order(order)) die(std::string("CUDA_EMULATOR_ORDER=") + order + " is no order");
    for (int ordinal = 0; ordinal < setting("CUDA_EMULATOR_DEVICES", 1, 0, 64); ordinal++) {
        devices.push_back(std::make_unique<Device>());
        Device& device = *devices.back();
        device.ordinal = ordinal;
        device.legacy = Stream{&device, false, true, 0, nullptr, nullptr, {}};
    }
}

bool Machine::set_order(const std::string& name) {
    unsigned long long seed = 0;
    char end = 0;
    if (name == "late") {
        order_ = Order::Late;
    } else if (name == "eager") {
        order_ = Order::Eager;
    } else if (std::sscanf(name.c_str(), "random:%llu%c", &seed, &end) == 1) {
        order_ = Order::Random;
        random_.seed(seed);
    } else {
        return false;
    }
    return true;
}

Stream& Machine::stream(CUstream handle) {
    Device& device = current_device();
    // 0 and 1 are the legacy default stream. 2, each thread's own, is a blocking stream like any other.
    auto number = reinterpret_cast<uintptr_t>(handle);
    if (number <= 1) return device.legacy;
    if (number != 2) return *streams.find(handle);
    thread_local std::map<Device*, Stream*> own;
    Stream*& mine = own[&device];
    if (mine == nullptr || !streams.all().contains(mine)) {
        mine = streams.add(std::make_unique<Stream>(Stream{&device, true, false, 0, nullptr, nullptr, {}}));
    }
    return *mine;
}

std::vector<NodePtr> Machine::before(Stream& stream) {
    std::vector<NodePtr> nodes{stream.tail};
    if (stream.blocking) nodes.push_back(stream.device->legacy.tail);
    if (stream.legacy) {
        for (auto& [handle, other] : streams.all()) {
            if (other->blocking && other->device == stream.device) nodes.push_back(other->tail);
        }
    }
    std::erase_if(nodes, is_done);
    return nodes;
}

void Machine::add_pending(NodePtr node) {
    pending_.push_back(std::move(node));
    if (pending_.size() < prune_at_) return;
    std::erase_if(pending_, is_done);
    prune_at_ = 1024 + 2 * pending_.size();
}

NodePtr Machine::submit(Lock& lock, Stream& stream, Work run, NodePtr more) {
    refuse_implicit_capture(stream);
    if (stream.capture) {
        require(!stream.capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        capture_step(stream, std::move(run));
        return nullptr;
    }
    auto node = std::make_shared<Node>(Node{stream.device, std::move(run), before(stream)});
    if (!is_done(more)) node->after.push_back(std::move(more));
    stream.tail = node;
    add_pending(node);
    if (order_ == Order::Eager) complete(lock, node);
    return node;
}

void Machine::launch(Lock& lock, GraphExec& exec, Stream& stream) {
    refuse_implicit_capture(stream);
    if (stream.capture) {
        require(!stream.capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        return capture_graph(stream, exec.graph);
    }
    counts.cold_launches += !exec.uploaded;
    exec.uploaded = true;
    std::vector<NodePtr> first = before(stream);
    if (!is_done(exec.last)) first.push_back(exec.last);
    std::vector<NodePtr> nodes;
    for (const Graph::Step& step : exec.graph.steps) {
        auto node = std::make_shared<Node>(Node{stream.device, step.run, {}});
        for (size_t earlier : step.after) node->after.push_back(nodes[earlier]);
        if (step.after.empty()) node->after = first;
        add_pending(node);
        nodes.push_back(std::move(node));
    }
    auto end = std::make_shared<Node>(Node{stream.device, nullptr, first});
    for (size_t step : last_steps(exec.graph)) end->after.push_back(nodes[step]);
    stream.tail = exec.last = end;
    add_pending(end);
    if (order_ == Order::Eager) complete(lock, end);
}

void Machine::complete(Lock& lock, NodePtr target) {
    // Depth first without recursion: a stream may hold more work than this thread has stack.
    std::vector<NodePtr> path{std::move(target)};
    while (!path.empty()) {
        NodePtr node = path.back();
        if (is_done(node)) {
            path.pop_back();
        } else if (node->state == Node::State::Running) {
            finished_.wait(lock);
        } else if (is_ready(node)) {
            run(lock, node);
        } else {
            for (const NodePtr& earlier : node->after) {
                if (!is_done(earlier)) path.push_back(earlier);
            }
        }
    }
}

void Machine::run(Lock& lock, const NodePtr& node) {
    node->state = Node::State::Running;
    Device* outer = std::exchange(running_on, node->device);
    if (node->run && node->device->lost == 0) {
        lock.unlock();
        node->run();
        lock.lock();
    }
    running_on = outer;
    node->state = Node::State::Done;
    node->after.clear();
    node->run = nullptr;
    finished_.notify_all();
}

void Machine::complete_stream(Lock& lock, Stream& stream) {
    if (stream.tail != nullptr && !stream.legacy) return complete(lock, stream.tail);
    // The legacy stream's end includes the blocking streams' work so far.
    if (stream.legacy) {
        for (NodePtr node : before(stream)) complete(lock, node);
    }
}

void Machine::complete_device(Lock& lock, Device& device) {
    std::vector<NodePtr> nodes;
    for (const NodePtr& node : pending_) {
        if (node->device == &device && !is_done(node)) nodes.push_back(node);
    }
    // Last first, so that streams without mutual waits run against the order in which they were filled.
    for (size_t index = nodes.size(); index-- > 0;) complete(lock, nodes[index]);
}

bool Machine::poll(Lock& lock, NodePtr node) {
    if (is_done(node)) return true;
    // Not yet; but the next query finds it done, so that polling ends.
    complete(lock, std::move(node));
    return false;
}

void Machine::wander(Lock& lock) {
    // Seldom, because a program makes many calls between two that should be ordered.
    if (order_ != Order::Random || random_() % 8 != 0) return;
    for (uint64_t steps = 1 + random_() % 4; steps > 0; steps--) {
        std::vector<NodePtr> ready;
        std::copy_if(pending_.begin(), pending_.end(), std::back_inserter(ready), is_ready);
        if (ready.empty()) return;
        run(lock, ready[random_() % ready.size()]);
    }
}

void Machine::begin_capture(Stream& stream, CUstreamCaptureMode mode) {
    require(mode >= CAPTURE_GLOBAL && mode <= CAPTURE_RELAXED);
    // The legacy default stream cannot be captured, and no stream twice.
    require(!stream.legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    require(!stream.capture, CUDA_ERROR_INVALID_VALUE);
    auto capture = std::make_shared<Capture>();
    capture->graph.device = stream.device;
    capture->origin = &stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->id = next_capture_++;
    capture->streams.insert(&stream);
    stream.capture = capture;
    stream.frontier.clear();
    captures_.push_back(std::move(capture));
}

std::unique_ptr<Graph> Machine::end_capture(Stream& stream) {
    std::shared_ptr<Capture> capture = stream.capture;
    require(capture != nullptr && capture->origin == &stream, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    bool same_thread = capture->thread == std::this_thread::get_id();
    require(same_thread || capture->mode == CAPTURE_RELAXED, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    // The stream that began the capture must wait for the work of all forked streams.
    std::vector<bool> joined = reachable(capture->graph, stream.frontier);
    bool all_joined = true;
    for (Stream* other : capture->streams) {
        for (size_t step : other->frontier) all_joined &= joined[step];
    }
    end(capture);
    require(!capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    require(all_joined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    return std::make_unique<Graph>(std::move(capture->graph));
}

void Machine::end(const std::shared_ptr<Capture>& capture) {
    for (Stream* stream : std::set(capture->streams)) leave_capture(*stream);
    capture->ended = true;
    std::erase(captures_, capture);
}

void Machine::abandon_capture(Stream& stream) {
    std::shared_ptr<Capture> capture = stream.capture;
    if (!capture) return;
    capture->invalid = true;
    if (capture->origin == &stream) {
        end(capture);
    } else {
        leave_capture(stream);
    }
}

void Machine::leave_capture(Stream& stream) {
    stream.capture->streams.erase(&stream);
    stream.capture = nullptr;
    stream.frontier.clear();
}

void Machine::join_capture(Stream& stream, Event& event) {
    require(!event.capture->ended, CUDA_ERROR_CAPTURED_EVENT);
    require(!event.capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    require(!stream.legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (stream.capture && stream.capture != event.capture) {
        stream.capture->invalid = event.capture->invalid = true;
        throw CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    stream.capture = event.capture;
    stream.capture->streams.insert(&stream);
    stream.frontier.insert(event.frontier.begin(), event.frontier.end());
}

void Machine::refuse_in_capture() {
    bool refused = false;
    for (auto& capture : captures_) {
        bool mine = capture->thread == std::this_thread::get_id();
        if (capture->mode == CAPTURE_GLOBAL || (capture->mode == CAPTURE_THREAD_LOCAL && mine)) {
            refused = capture->invalid = true;
        }
    }
    require(!refused, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void Machine::refuse_in_capture_of(Stream& stream) {
    refuse_implicit_capture(stream);
    if (!stream.capture) return;
    stream.capture->invalid = true;
    throw CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void Machine::refuse_while_capturing(Device& device) { refuse_beside(device, std::thread::id()); }

void Machine::refuse_load(Device& device) { refuse_beside(device, std::this_thread::get_id()); }

void Machine::refuse_beside(Device& device, std::thread::id except) {
    bool refused = false;
    for (auto& capture : captures_) {
        if (capture->graph.device != &device || capture->thread == except) continue;
        counts.spoilt_captures += !capture->invalid && capture->thread != std::this_thread::get_id();
        refused = capture->invalid = true;
    }
    require(!refused, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

// Drivers accept some uses of the legacy stream beside captures of non-blocking streams, but not in every release.
void Machine::refuse_implicit_capture(Stream& stream) {
    if (!stream.legacy) return;
    bool refused = false;
    for (auto& capture : captures_) {
        for (Stream* other : capture->streams) {
            if (other->blocking && other->device == stream.device) refused = capture->invalid = true;
        }
    }
    require(!refused, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    refuse_while_capturing(*stream.device);
}
