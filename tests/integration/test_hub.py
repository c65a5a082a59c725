"""Hub ids, against a server in this process that speaks as much of the Hub's protocol as loading asks for.

The libraries read their settings when they are imported, so the asking is done by another process.
"""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.tiny import save_model

COMMIT, OLD = "a" * 40, "b" * 40
ASK = """
import json, sys
from wootz.core.errors import WootzError
from wootz.models import load, load_tokenizer
answers = {}
for spec in sys.argv[1:]:
    try:
        model = load(spec, dtype="fp32")
        answers[spec] = {"fingerprint": model.fingerprint(), "revision": model.revision, "base": model.base_spec}
    except WootzError as error:
        answers[spec] = {"error": str(error), "code": error.exit_code}
print(json.dumps(answers))
"""


class Hub:
    """Repositories by name and commit; what was asked for is kept in ``paths``."""

    def __init__(self, repositories: dict[tuple[str, str], Path]) -> None:
        self.repositories = repositories
        self.paths: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                hub.answer(self, body=False)

            def do_GET(self) -> None:
                hub.answer(self, body=True)

            def log_message(self, *_) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler, *, body: bool) -> None:
        self.paths.append(request.path)
        name, found, rest = request.path.strip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        if not found:
            return self.fail(request, 404, "EntryNotFound")
        if name == "org/gated":
            return self.fail(request, 403, "GatedRepo")
        commit = {"main": COMMIT, "old": OLD}.get(revision, revision)
        if name not in {known for known, _ in self.repositories}:
            return self.fail(request, 404, "RepoNotFound")
        if (name, commit) not in self.repositories:
            return self.fail(request, 404, "RevisionNotFound")
        path = self.repositories[name, commit] / file
        if not path.is_file():
            return self.fail(request, 404, "EntryNotFound", commit)
        content = path.read_bytes()
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.send_header("ETag", '"' + hashlib.sha1(content).hexdigest() + '"')
        request.send_header("X-Repo-Commit", commit)
        request.end_headers()
        if body:
            request.wfile.write(content)
        return None

    @staticmethod
    def fail(request: BaseHTTPRequestHandler, code: int, reason: str, commit: str | None = None) -> None:
        request.send_response(code)
        request.send_header("X-Error-Code", reason)
        request.send_header("Content-Length", "0")
        if commit:
            request.send_header("X-Repo-Commit", commit)
        request.end_headers()


@pytest.fixture
def hub(tmp_path):
    new, old, pickled = (save_model(tmp_path / name, seed=seed) for seed, name in enumerate(("new", "old", "pickled")))
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    (tmp_path / "adapter").mkdir()
    repositories = {("org/model", COMMIT): new, ("org/model", OLD): old, ("org/pickled", COMMIT): pickled}
    repositories["org/adapter", COMMIT] = tmp_path / "adapter"
    server = Hub(repositories)
    yield server
    server.server.shutdown()
    server.server.server_close()


def ask(tmp_path: Path, *specs: str, port: int, offline: bool = False) -> dict[str, dict]:
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1" if offline else "0",
        "HF_ENDPOINT": f"http://127.0.0.1:{port}",
        "HF_HOME": str(tmp_path / "hf"),
        "WOOTZ_HOME": str(tmp_path / "wootz"),
        "DISABLE_SAFETENSORS_CONVERSION": "1",
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-c", ASK, *specs]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_online_then_offline(hub, tmp_path):
    port = hub.server.server_port
    specs = (
        "org/model",
        "org/model@old",
        "org/model@never",
        "org/gated",
        "org/none",
        "org/pickled",
        "org/adapter",
        "smollm2-135n",
    )
    online = ask(tmp_path, *specs, port=port)

    first, second = online["org/model"], online["org/model@old"]
    assert first["revision"] == COMMIT
    assert second["revision"] == OLD
    assert first["base"] == second["base"] == "org/model"
    assert first["fingerprint"] != second["fingerprint"]
    # After the first question everything is read at one commit, whatever "main" becomes meanwhile.
    moving = [path for path in hub.paths if "/resolve/main/" in path and path.startswith("/org/model/")]
    assert {path.rsplit("/", 1)[1] for path in moving} <= {"config.json"}

    assert {answer["code"] for answer in online.values() if "code" in answer} == {2, 4}
    assert "no such revision" in online["org/model@never"]["error"]
    assert "gated" in online["org/gated"]["error"]
    assert "accept it at https://huggingface.co/org/gated" in online["org/gated"]["error"]
    assert "no such model on the Hub" in online["org/none"]["error"]
    assert "no safetensors weights" in online["org/pickled"]["error"]
    assert online["org/pickled"]["code"] == 2
    assert "holds no model" in online["org/adapter"]["error"]
    assert "BASE+DIR" in online["org/adapter"]["error"]
    assert "fix: smollm2-135m" in online["smollm2-135n"]["error"]
    assert all(len(answer["error"].splitlines()) <= 5 for answer in online.values() if "error" in answer)

    asked = len(hub.paths)
    offline = ask(tmp_path, "org/model", "org/other", "smollm2-135n", port=port, offline=True)
    assert offline["org/model"] == first
    assert offline["org/other"]["code"] == 4
    assert "nor in the Hub cache, and the Hub cannot be reached" in offline["org/other"]["error"]
    assert "hf download org/other" in offline["org/other"]["error"]
    assert "fix: smollm2-135m" in offline["smollm2-135n"]["error"]
    assert len(hub.paths) == asked
