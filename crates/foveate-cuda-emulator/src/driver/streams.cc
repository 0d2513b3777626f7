// libcuda.so.1: streams, events, graphs, host functions.
#include <cstdlib>
#include <fstream>

#include "driver/machine.h"

using Clock = std::chrono::steady_clock;

namespace {

void make_stream(CUstream* out, unsigned flags, int priority) {
    Machine& machine = Machine::get();
    Device& device = current_device();
    require(out != nullptr && (flags & ~CU_STREAM_NON_BLOCKING) == 0);
    bool blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    *out =
        machine.streams.add(std::make_unique<Stream>(Stream{&device, blocking, false, priority, nullptr, nullptr, {}}));
}

// Appends a line for the graph to the file that CUDA_EMULATOR_GRAPHS names.
void note(const Graph& graph) {
    const char* path = std::getenv("CUDA_EMULATOR_GRAPHS");
    if (path != nullptr) std::ofstream(path, std::ios::app) << graph.device->ordinal << ' ' << graph.blocks << '\n';
}

Event& usable_event(Machine& machine, CUevent handle) {
    Event& event = *machine.events.find(handle);
    require(event.capture == nullptr, CUDA_ERROR_CAPTURED_EVENT);
    return event;
}

}  // namespace

EXPORTED CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
    return api([&](Machine&, Lock&) { make_stream(stream, flags, 0); });
}

EXPORTED CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
    return api([&](Machine&, Lock&) { make_stream(stream, flags, priority); });
}

EXPORTED CUresult cuStreamDestroy_v2(CUstream handle) {
    return api([&](Machine& machine, Lock&) {
        Stream& stream = *machine.streams.find(handle);
        // Its enqueued work still runs.
        machine.abandon_capture(stream);
        machine.streams.remove(handle);
    });
}

EXPORTED CUresult cuStreamSynchronize(CUstream handle) {
    return api([&](Machine& machine, Lock& lock) {
        Stream& stream = machine.stream(handle);
        machine.refuse_in_capture_of(stream);
        machine.counts.spinning_waits += (stream.device->flags & CU_CTX_SCHED_BLOCKING_SYNC) == 0;
        machine.complete_stream(lock, stream);
    });
}

EXPORTED CUresult cuStreamQuery(CUstream handle) {
    return api([&](Machine& machine, Lock& lock) {
        Stream& stream = machine.stream(handle);
        machine.refuse_in_capture_of(stream);
        require(machine.poll(lock, stream.tail), CUDA_ERROR_NOT_READY);
    });
}

EXPORTED CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
    return api([&](Machine& machine, Lock& lock) {
        Stream& stream = machine.stream(handle);
        Event& event = *machine.events.find(event_handle);
        require(flags == 0, CUDA_ERROR_NOT_SUPPORTED);
        if (event.capture) return machine.join_capture(stream, event);
        if (event.node == nullptr) return;
        if (stream.capture) {
            stream.capture->invalid = true;
            throw CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        }
        machine.submit(lock, stream, nullptr, event.node);
    });
}

EXPORTED CUresult cuLaunchHostFunc(CUstream handle, void (*function)(void*), void* data) {
    return api([&](Machine& machine, Lock& lock) {
        require(function != nullptr);
        machine.submit(lock, machine.stream(handle), [function, data] {
            in_host_function = true;
            function(data);
            in_host_function = false;
        });
    });
}

EXPORTED CUresult cuEventCreate(CUevent* event, unsigned flags) {
    return api([&](Machine& machine, Lock&) {
        Device& device = current_device();
        require(event != nullptr && (flags & ~(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)) == 0);
        auto made = std::make_unique<Event>(
            Event{&device, (flags & CU_EVENT_DISABLE_TIMING) == 0, (flags & CU_EVENT_BLOCKING_SYNC) != 0, nullptr,
                  nullptr, nullptr, {}});
        *event = machine.events.add(std::move(made));
    });
}

EXPORTED CUresult cuEventDestroy_v2(CUevent handle) {
    return api([&](Machine& machine, Lock&) { machine.events.remove(handle); });
}

EXPORTED CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
    return api([&](Machine& machine, Lock& lock) {
        Event& event = *machine.events.find(handle);
        Stream& stream = machine.stream(stream_handle);
        require(event.device == stream.device, CUDA_ERROR_INVALID_HANDLE);
        if (stream.capture) {
            require(!stream.capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            event.capture = stream.capture;
            event.frontier = stream.frontier;
            event.node = nullptr;
            return;
        }
        // Each record has its own time, so that a late one does not change the next one's.
        auto time = std::make_shared<Clock::time_point>();
        event.node = machine.submit(lock, stream, [time] { *time = Clock::now(); });
        event.time = std::move(time);
        event.capture = nullptr;
    });
}

EXPORTED CUresult cuEventQuery(CUevent handle) {
    return api([&](Machine& machine, Lock& lock) {
        Event& event = usable_event(machine, handle);
        machine.refuse_in_capture();
        require(machine.poll(lock, event.node), CUDA_ERROR_NOT_READY);
    });
}

EXPORTED CUresult cuEventSynchronize(CUevent handle) {
    return api([&](Machine& machine, Lock& lock) {
        Event& event = usable_event(machine, handle);
        machine.counts.spinning_waits += !event.blocking;
        if (event.node) machine.complete(lock, event.node);
    });
}

EXPORTED CUresult cuEventElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
    return api([&](Machine& machine, Lock&) {
        Event& start = usable_event(machine, start_handle);
        Event& end = usable_event(machine, end_handle);
        require(milliseconds != nullptr);
        require(start.timed && end.timed && start.node && end.node, CUDA_ERROR_INVALID_HANDLE);
        require(start.device == end.device, CUDA_ERROR_INVALID_HANDLE);
        bool done = start.node->state == Node::State::Done && end.node->state == Node::State::Done;
        require(done, CUDA_ERROR_NOT_READY);
        *milliseconds = std::chrono::duration<float, std::milli>(*end.time - *start.time).count();
    });
}

EXPORTED CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    return api([&](Machine& machine, Lock&) { machine.begin_capture(machine.stream(handle), mode); });
}

EXPORTED CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
    return api([&](Machine& machine, Lock&) {
        require(graph != nullptr);
        *graph = nullptr;
        *graph = machine.graphs.add(machine.end_capture(machine.stream(handle)));
    });
}

EXPORTED CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, uint64_t* id) {
    return api([&](Machine& machine, Lock&) {
        Stream& stream = machine.stream(handle);
        require(status != nullptr);
        *status = !stream.capture ? CAPTURE_NONE : stream.capture->invalid ? CAPTURE_INVALIDATED : CAPTURE_ACTIVE;
        if (id != nullptr && stream.capture) *id = stream.capture->id;
    });
}

EXPORTED CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
    return cuStreamGetCaptureInfo(handle, status, nullptr);
}

EXPORTED CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
    return api([&](Machine& machine, Lock&) {
        // Automatic free, upload, node priority; launching from the device is not emulated.
        constexpr unsigned long long KNOWN = 1 | 2 | 8;
        require(exec != nullptr && (flags & ~KNOWN) == 0);
        *exec = machine.execs.add(std::make_unique<GraphExec>(GraphExec{*machine.graphs.find(graph), nullptr}));
        note((*exec)->graph);
    });
}

EXPORTED CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    return api([&](Machine& machine, Lock&) {
        machine.refuse_in_capture_of(machine.stream(stream));
        machine.execs.find(exec)->uploaded = true;
    });
}

EXPORTED CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    return api([&](Machine& machine, Lock& lock) {
        GraphExec& launched = *machine.execs.find(exec);
        Stream& on = machine.stream(stream);
        require(launched.graph.device == on.device, CUDA_ERROR_INVALID_CONTEXT);
        machine.launch(lock, launched, on);
    });
}

EXPORTED CUresult cuGraphGetNodes(CUgraph graph, void** nodes, size_t* count) {
    return api([&](Machine& machine, Lock&) {
        // Only the number: nodes have no handles here.
        require(nodes == nullptr && count != nullptr, CUDA_ERROR_NOT_SUPPORTED);
        *count = machine.graphs.find(graph)->steps.size();
    });
}

// Launches in progress go on. A driver may free memory here, and waits for the context then.
EXPORTED CUresult cuGraphExecDestroy(CUgraphExec exec) {
    return api([&](Machine& machine, Lock&) {
        machine.refuse_while_capturing(*machine.execs.find(exec)->graph.device);
        machine.execs.remove(exec);
    });
}

EXPORTED CUresult cuGraphDestroy(CUgraph graph) {
    return api([&](Machine& machine, Lock&) { machine.graphs.remove(graph); });
}
