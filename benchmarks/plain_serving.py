"""A transformers pipeline behind FastAPI: the peer of `benchmarks/serving.py --classifier`.

    python benchmarks/plain_serving.py MODEL [--turns]

Each request calls the pipeline in a thread of its own, as FastAPI does with a plain function; with
`--turns` one after another, which a CPU of few cores may like better.
"""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import nullcontext

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

app = FastAPI()
classify = pipeline("text-classification", model=sys.argv[1], device="cpu")
turn = threading.Lock() if "--turns" in sys.argv else nullcontext()


class Texts(BaseModel):
    inputs: list[str]


@app.post("/predict")
def predict(texts: Texts) -> dict[str, list[dict[str, str]]]:
    with turn:
        found = classify(texts.inputs)
    return {
        "predictions": [
            {"input": text, "output": one["label"]}
            for text, one in zip(texts.inputs, found, strict=True)
        ]
    }


with socket.create_server(("127.0.0.1", 0)) as listening:
    print(f"serving on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
