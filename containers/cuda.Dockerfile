# The foveate command on NVIDIA GPUs, from a wheel: docs/containers.md.
# The `runtime` images hold cuBLASLt and nvJPEG; the host's driver comes with NVIDIA's container toolkit.
ARG CUDA=12.8.1-runtime-ubuntu24.04

FROM nvidia/cuda:${CUDA} AS base
# The base image decides the versions.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

FROM base AS install
COPY foveate-*.whl /wheels/
RUN python3 -m venv /opt/foveate && /opt/foveate/bin/pip install --no-cache-dir /wheels/foveate-*.whl

FROM base
COPY --from=install /opt/foveate /opt/foveate
# `video` makes the driver's decoding libraries visible, for nvJPEG.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
# Models are kept in /models; mount a volume there to keep them longer than the container.
ENV PATH=/opt/foveate/bin:$PATH HF_HOME=/models
# Writable for any user, so that `docker run --user` works.
RUN useradd --uid 10001 --no-create-home foveate && install --directory --mode=1777 /models /data
USER 10001
WORKDIR /data
ENTRYPOINT ["foveate"]
CMD ["--help"]
