"""An OpenAI-compatible server over a real (tiny) model, in this process: what it answers is what the model computes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch


class Served:
    """A server's model and habits.

    Attributes:
        gives_ids: Knows ``return_token_ids``; without, it answers 400 to the unknown option.
        failures: Status codes to answer first, one a request.
        requests: Every body it was sent, with the path under ``path``.
    """

    def __init__(
        self, module: Any, tokenizer: Any, *, gives_ids: bool = True, echoes: bool = True, key: str | None = None
    ):
        self.module, self.tokenizer = module, tokenizer
        self.gives_ids, self.echoes, self.key = gives_ids, echoes, key
        self.failures: list[int] = []
        self.requests: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.url = ""

    @torch.no_grad()
    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        chat = path.endswith("/chat/completions")
        if chat:
            prompt = self.tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, return_dict=False)
        else:
            prompt = body["prompt"] if isinstance(body["prompt"], list) else self.tokenizer(body["prompt"]).input_ids
        generator = torch.Generator().manual_seed(body.get("seed", 0))
        tokens, values = list(prompt), []
        finish = "length"
        for _ in range(body["max_tokens"]):
            logp = self.module(torch.tensor([tokens])).logits[0, -1].float().log_softmax(-1)
            temperature = body.get("temperature", 1.0)
            if temperature == 0:
                chosen = int(logp.argmax())
            else:
                chosen = int(torch.multinomial((logp / temperature).softmax(-1), 1, generator=generator))
            tokens.append(chosen)
            values.append(float(logp[chosen]))
            if chosen == self.tokenizer.eos_token_id:
                finish = "stop"
                break
        made = tokens[len(prompt) :]
        text = self.tokenizer.decode(made, skip_special_tokens=True)
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if body.get("echo") and self.echoes:
            logp = self.module(torch.tensor([tokens])).logits[0].float().log_softmax(-1)
            every = [None, *(float(logp[i, token]) for i, token in enumerate(tokens[1:]))]
            choice |= {"text": text, "logprobs": {"token_logprobs": every}}
        elif chat:
            content = [{"token": "", "logprob": value} for value in values]
            choice |= {"message": {"role": "assistant", "content": text}, "logprobs": {"content": content}}
        else:
            choice |= {"text": text, "logprobs": {"token_logprobs": values}}
        if body.get("return_token_ids"):
            choice["token_ids"] = made
        return {"choices": [choice], "usage": {"completion_tokens": len(made)}}


@contextmanager
def serve(served: Served) -> Iterator[Served]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self, code: int, content: Any) -> None:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            if code == 429:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(body)

        def refused(self) -> bool:
            if served.key and self.headers.get("Authorization") != f"Bearer {served.key}":
                self.reply(401, {"error": "bad key"})
                return True
            with served.lock:
                code = served.failures.pop(0) if served.failures else None
            if code is not None:
                self.reply(code, {"error": "told to fail"})
            return code is not None

        def do_GET(self) -> None:
            if not self.refused():
                self.reply(200, {"data": [{"id": "tiny"}, {"id": "other"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with served.lock:
                served.requests.append({"path": self.path, **body})
            if self.refused():
                return
            if body.get("return_token_ids") and not served.gives_ids:
                self.reply(400, {"error": "unknown option return_token_ids"})
                return
            self.reply(200, served.answer(self.path, body))

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
