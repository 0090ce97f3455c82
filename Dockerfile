# An image of `regard serve`, built from this repository alone (docs/serving.md):
#   docker build -t regard .
#   docker run -p 8000:8000 -e REGARD_TOKEN=... -v "$PWD/runs/dates:/runs/dates:ro" regard /runs/dates
ARG BASE=python:3.12-slim
FROM ${BASE}
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

WORKDIR /regard
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --no-deps --constraint constraints.txt \
        --index-url ${TORCH_INDEX} torch \
    && pip install --no-cache-dir --constraint constraints.txt '.[images,studio]' \
    && useradd --create-home regard

USER regard
ENV PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --interval=10s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=5)"]
ENTRYPOINT ["regard", "serve", "--host", "0.0.0.0", "--port", "8000"]
