# The Gradwire service. For the CPU:            docker build -t gradwire .
# For NVIDIA GPUs (run with --gpus all):        docker build --build-arg EXTRA=cuda12 -t gradwire:cuda12 .
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
# service: CPU; cuda12, cuda13: GPU, whose libraries come as wheels, so that the base stays the same.
ARG EXTRA=service
# The tested versions for the Python above.
ARG LOCK=py313-service
WORKDIR /src
RUN python -m venv /opt/gradwire
# The large layer first: it changes only with the versions.
COPY requirements requirements
RUN /opt/gradwire/bin/pip install --no-cache-dir --requirement requirements/${LOCK}.txt
COPY pyproject.toml README.md LICENSE ./
COPY client client
COPY service service
RUN /opt/gradwire/bin/pip install --no-cache-dir --no-build-isolation --constraint requirements/${LOCK}.txt ".[${EXTRA}]"

FROM python:${PYTHON}-slim
RUN useradd --uid 10001 --no-log-init --create-home gradwire
COPY --from=build /opt/gradwire /opt/gradwire
COPY examples /examples
ENV PATH=/opt/gradwire/bin:$PATH PYTHONUNBUFFERED=1
# A number, so that an orchestrator can see that it is not root.
USER 10001
WORKDIR /home/gradwire
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health/live', timeout=4)"]
# --insecure: there are no tokens yet, so publish the port on loopback or a private network only.
CMD ["gradwire", "serve", "/examples/mri.py", "/examples/fft.py", "/examples/tutorial.py", "--host", "0.0.0.0", "--insecure"]
