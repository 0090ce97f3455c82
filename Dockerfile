# An image of `regard serve`, built from this repository alone (docs/serving.md):
#   docker build -t regard .
#   docker run -p 8000:8000 -e REGARD_TOKEN=... -v "$PWD/runs/dates:/runs/dates:ro" regard /runs/dates
# Everything that is installed is pinned by its hash: the base image by its digest (`docker buildx imagetools inspect
# python:3.12-slim` shows the present one), torch in requirements.torch.lock, all else in requirements.serve.lock, with
# setuptools, which builds the package. pip is the base image's.
ARG BASE=python:3.12-slim@sha256:57cd7c3a7a273101a6485ba99423ee568157882804b1124b4dd04266317710de
FROM ${BASE}
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

WORKDIR /regard
COPY requirements.serve.lock requirements.torch.lock ./
RUN pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: \
        --index-url ${TORCH_INDEX} --requirement requirements.torch.lock \
    && pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: --requirement requirements.serve.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --no-deps --no-index --no-build-isolation . \
    && pip check \
    && useradd --create-home regard

USER regard
ENV PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --interval=10s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=5)"]
ENTRYPOINT ["regard", "serve", "--host", "0.0.0.0", "--port", "8000"]
