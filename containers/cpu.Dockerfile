# The foveate command on CPUs, from a wheel: docs/containers.md.
ARG PYTHON=3.13-slim-bookworm

FROM python:${PYTHON} AS install
COPY foveate-*.whl /wheels/
RUN python -m venv /opt/foveate && /opt/foveate/bin/pip install --no-cache-dir /wheels/foveate-*.whl

FROM python:${PYTHON}
COPY --from=install /opt/foveate /opt/foveate
# Models are kept in /models; mount a volume there to keep them longer than the container.
ENV PATH=/opt/foveate/bin:$PATH HF_HOME=/models
# Writable for any user, so that `docker run --user` works.
RUN useradd --uid 10001 --no-create-home foveate && install --directory --mode=1777 /models /data
USER 10001
WORKDIR /data
ENTRYPOINT ["foveate"]
CMD ["--help"]
