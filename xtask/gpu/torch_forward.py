"""The forward of the same networks on the same device by PyTorch (eager, SDPA, compiled) and by ONNX Runtime (CUDA,
TensorRT), and the device's peak."""

import time

from common import DTYPES, FORWARD, Cells, Deadline, Failed, Mode, arguments, one_line, spread

try:
    import numpy
    import torch

    import transformers_side as side
except ImportError as error:  # Every row then reports it.
    torch, WITHOUT = None, one_line(error)

PEAK_SIDE = 8192
# Approximate upper limit of a compilation's time.
COMPILING = 40
PROVIDERS = {"onnx cuda": "CUDAExecutionProvider", "onnx tensorrt": "TensorrtExecutionProvider"}


class Clock:
    """A function's time on the device, in seconds."""

    def __init__(self, device):
        self.cuda = device.startswith("cuda")

    def seconds(self, work, times):
        if not self.cuda:
            start = time.perf_counter()
            for _ in range(times):
                work()
            return time.perf_counter() - start
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def samples(self, work, seconds, count):
        """The time of one call: `count` samples of about `seconds` each, after a warm-up."""
        for _ in range(3):
            work()
        times = max(1, round(seconds / max(self.seconds(work, 3) / 3, 1e-7)))
        return [self.seconds(work, times) / times for _ in range(count)]


class Pytorch:
    def __init__(self, args):
        self.args, self.mode, self.deadline = args, Mode(args.mode), Deadline(args.seconds)
        self.clock = Clock(args.device)
        self.seconds = {"smoke": 0.02, "quick": 0.15, "full": 0.2}[self.mode.name]
        self.cells = Cells(args.out / "torch_forward.csv", FORWARD)

    def check(self, need=0.0):
        if torch is None:
            raise Failed(WITHOUT)
        side.require(self.args.device)
        self.deadline.check(need)

    def peak(self, dtype):
        """Products per second of two square matrices of random numbers; `images_per_second` counts products."""
        def measure():
            self.check()
            side_length = 256 if self.mode.name == "smoke" else PEAK_SIDE
            a, b = (torch.randn(side_length, side_length, device=self.args.device, dtype=side.DTYPES[dtype])
                    for _ in range(2))
            with side.exact_f32():
                return spread([1 / taken for taken in self.clock.samples(lambda: a @ b, 2 * self.seconds, 5)])
        self.cells.attempt({"engine": "peak", "model": f"product {PEAK_SIDE}", "dtype": dtype}, measure)

    def forward(self, way, model, dtype, batch):
        def measure():
            self.check(COMPILING if way == "compile" else 1)
            attention = "eager" if way == "eager" else "sdpa"
            network = side.network(model, attention, self.args.device).to(side.DTYPES[dtype])
            images = torch.randn(batch, 3, 224, 224, device=self.args.device, dtype=side.DTYPES[dtype])
            run = network
            if way == "compile":
                torch._dynamo.reset()
                # With CUDA graphs, like foveate.
                run = torch.compile(network, mode="reduce-overhead" if self.clock.cuda else None, dynamic=False)
            if self.clock.cuda:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()

            def work():
                if way == "compile" and self.clock.cuda:
                    torch.compiler.cudagraph_mark_step_begin()
                run(pixel_values=images)
            with torch.inference_mode(), side.exact_f32():
                taken = self.clock.samples(work, self.seconds, 5)
            memory = torch.cuda.max_memory_reserved() / 1e6 if self.clock.cuda else None
            return {**spread([batch / seconds for seconds in taken]), "memory_mb": memory,
                    "memory_of": "PyTorch's allocator" if memory else None}
        self.cells.attempt({"engine": f"torch {way}", "model": model, "dtype": dtype, "batch": batch}, measure)

    def onnx(self, engine, model, dtype, batch):
        """ONNX Runtime on the network as PyTorch exports it, from pixels on the device to tokens on it."""
        def measure():
            self.check(COMPILING)
            try:
                import onnx  # noqa: F401, PyTorch's export needs it
                import onnxruntime
            except ImportError as error:
                raise Failed(one_line(error)) from None
            provider = PROVIDERS[engine]
            if not self.clock.cuda or provider not in onnxruntime.get_available_providers():
                raise Failed(f"ONNX Runtime has no {provider} here")
            network = side.network(model, "sdpa", self.args.device).to(side.DTYPES[dtype])
            images = torch.randn(batch, 3, 224, 224, device=self.args.device, dtype=side.DTYPES[dtype])
            path = self.args.scratch / f"{model}.{dtype}.{batch}.onnx"
            torch.onnx.export(side.HiddenState(network), (images,), str(path), input_names=["pixels"],
                              output_names=["hidden"], dynamo=False)
            options = {"trt_fp16_enable": dtype == "f16"} if "Tensorrt" in provider else {}
            session = onnxruntime.InferenceSession(str(path), providers=[(provider, options)])
            if session.get_providers()[0] != provider:
                raise Failed(f"ONNX Runtime falls back to {session.get_providers()[0]}")
            binding = session.io_binding()
            kind = numpy.float16 if dtype == "f16" else numpy.float32
            binding.bind_input("pixels", "cuda", images.device.index or 0, kind, tuple(images.shape), images.data_ptr())
            binding.bind_output("hidden", "cuda", images.device.index or 0)
            # It has a stream of its own and waits for it, so the host's clock measures it.
            taken = Clock("cpu").samples(lambda: session.run_with_iobinding(binding), self.seconds, 5)
            return spread([batch / seconds for seconds in taken])
        self.cells.attempt({"engine": engine, "model": model, "dtype": dtype, "batch": batch}, measure)


def main():
    pytorch = Pytorch(arguments(__doc__))
    mode = pytorch.mode
    for dtype in DTYPES:
        pytorch.peak(dtype)
    # What the others are compared with comes first: compiling takes long, and the time may end.
    first = mode.models[0], DTYPES[0], mode.batches[0]
    pytorch.forward("sdpa", *first)
    pytorch.forward("compile", *first)
    for engine in PROVIDERS:
        pytorch.onnx(engine, *first)
    for batch in mode.batches:
        for model in mode.models:
            for dtype in DTYPES:
                for way in ("sdpa", "eager"):
                    if (way, model, dtype, batch) != ("sdpa", *first):
                        pytorch.forward(way, model, dtype, batch)
    for model in mode.swept:
        for batch in mode.sizes:
            if (model, batch) not in [(model, batch) for model in mode.models for batch in mode.batches]:
                pytorch.forward("sdpa", model, "f16", batch)
    for batch in mode.compiled_batches:
        for model in mode.models:
            for dtype in DTYPES[:2] if mode.name == "full" else DTYPES[:1]:
                if (model, dtype, batch) != first:
                    pytorch.forward("compile", model, dtype, batch)
    for model in mode.models if mode.name == "full" else ():
        for engine in PROVIDERS:
            for dtype in ("f16", "f32"):
                pytorch.onnx(engine, model, dtype, 64)


if __name__ == "__main__":
    main()
