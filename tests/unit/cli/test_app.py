"""How the command line ends: exit codes, one-screen messages, one JSON document, help without torch."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from wootz.cli import app as cli
from wootz.cli.flags import Flags, verb
from wootz.core.errors import (
    DataError,
    GuardStop,
    Interrupted,
    MissingError,
    ModelError,
    RecipeError,
    SignalError,
    UsageError,
    WootzError,
)

SRC = Path(__file__).parents[3] / "src"
VERBS = ["quickstart", "train", "resume", "generate", "eval", "gate", "report", "card", "doctor"]
VERBS += [f"data {name}" for name in ("check", "show", "convert", "audit")]
VERBS += [f"recipe {name}" for name in ("validate", "explain", "schema", "list", "show")]


def run(*arguments: str, columns: int = 80, **environment: str) -> subprocess.CompletedProcess:
    code = "import sys; from wootz.cli.app import main; sys.exit(main())"
    variables = {**os.environ, "PYTHONPATH": str(SRC), "COLUMNS": str(columns), **environment}
    return subprocess.run([sys.executable, "-c", code, *arguments], env=variables, capture_output=True, text=True)


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from wootz.cli.app import main; main(['--help']); main(['train', '--help']);"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True, text=True
    )
    loaded = eval(done.stderr.splitlines()[-1])
    heavy = {
        "torch",
        "transformers",
        "peft",
        "datasets",
        "pyarrow",
        "pandas",
        "numpy",
        "scipy",
        "jinja2",
        "huggingface_hub",
    }
    assert heavy & set(loaded) == set()
    assert "wootz" in loaded


def test_import_wootz_loads_nothing_heavy_and_names_are_there():
    code = (
        "import sys, wootz; print(sorted(name for name in sys.modules if name.split('.')[0] in ('torch', 'pydantic')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_every_public_name_is_there():
    import wootz

    for name in wootz.__all__:
        assert getattr(wootz, name).__name__ == name
    assert set(wootz.__all__) <= set(dir(wootz))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = wootz.nothing


def test_help_fits_a_screen_and_names_every_verb(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 40
    for name in {words.split()[0] for words in VERBS}:
        assert re.search(rf"\b{name}\b", out), name


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_shows_an_example_of_itself_in_a_screen(verb, capsys):
    assert cli.main([*verb.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Example:  wootz {verb}" in re.sub(r"\s*\n\s*", " ", out).replace("Example: wootz", "Example:  wootz")
    assert len(out.splitlines()) <= 40
    assert "--json" in out


ENDINGS = {
    "ok": (None, 0),
    "negative": (1, 1),
    "recipe": (RecipeError("wrong", where="r.yaml:3", found="x", expected="y", fix="write y"), 2),
    "data": (DataError("wrong"), 2),
    "usage": (UsageError("wrong"), 2),
    "model": (ModelError("wrong"), 2),
    "signal": (SignalError("wrong"), 2),
    "guard": (GuardStop("stopped"), 3),
    "missing": (MissingError("not here", fix="pip install it"), 4),
    "plain": (WootzError("our own"), 70),
    "crash": (ZeroDivisionError("division by zero"), 70),
    "memory": (MemoryError(), 70),
    "interrupted": (Interrupted("stopped at step 3"), 130),
    "ctrl-c": (KeyboardInterrupt(), 130),
    "pipe": (BrokenPipeError(), 141),
}


@pytest.fixture
def endings(monkeypatch):
    """A command line whose verbs end in every way there is."""
    app = typer.Typer()

    def add(name, ending):
        @verb("yes", "if_exists", "out")
        def end(flags: Flags) -> int | None:
            if isinstance(ending, BaseException):
                raise ending
            flags.result({"number": 7}, "seven")
            return ending

        app.command(name)(end)

    for name, (ending, _) in ENDINGS.items():
        add(name, ending)
    monkeypatch.setattr(cli, "app", app)


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.usefixtures("endings")
def test_exit_codes(name, capsys):
    assert cli.main([name]) == ENDINGS[name][1]
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert out == ("seven\n" if name in ("ok", "negative") else "")


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.usefixtures("endings")
def test_json_is_always_one_document(name, capsys):
    code = cli.main([name, "--json"])
    out, _ = capsys.readouterr()
    if name == "pipe":
        return
    document = json.loads(out)
    if name in ("ok", "negative"):
        assert document == {"number": 7}
    else:
        assert document["exit_code"] == code
        assert document["error"]["what"]
    if name == "recipe":
        told = {
            "type": "RecipeError",
            "what": "wrong",
            "where": "r.yaml:3",
            "found": "x",
            "expected": "y",
            "fix": "write y",
        }
        assert document["error"] == told


@pytest.mark.usefixtures("endings")
def test_messages(capsys):
    cli.main(["recipe"])
    assert capsys.readouterr().err == "error: r.yaml:3: wrong\n  found: x\n  expected: y\n  fix: write y\n"
    cli.main(["crash"])
    assert capsys.readouterr().err.startswith("internal error: ZeroDivisionError: division by zero\n  -v shows where")
    cli.main(["crash", "-v"])
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("internal error: ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    "arguments",
    [["ok", "-q", "-v"], ["ok", "--yes", "--if-exists=fail"], ["ok", "--if-exists=maybe"], ["okk"], ["ok", "x"]],
)
@pytest.mark.usefixtures("endings")
def test_usage_mistakes(arguments, capsys):
    for more in ([], ["--json"]):
        assert cli.main([*arguments, *more]) == 2
        out, err = capsys.readouterr()
        assert err
        assert len(err.splitlines()) <= 24 or "-v" in arguments
        assert (json.loads(out)["exit_code"] == 2) if more else out == ""


def test_no_command_shows_help(capsys):
    assert cli.main([]) == 2
    assert "Everyday" in "".join(capsys.readouterr())


def test_version(capsys):
    import wootz

    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{wootz.__version__}\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_with_130(number):
    code = (
        "import sys, time, typer\n"
        "from wootz.cli import app as cli\n"
        "from wootz.cli.flags import verb\n"
        "@verb()\n"
        "def wait(flags):\n    sys.stdout.write('ready\\n'); sys.stdout.flush(); time.sleep(60)\n"
        "cli.app.command('wait')(wait)\n"
        "sys.exit(cli.main(['wait']))\n"
    )
    variables = {**os.environ, "PYTHONPATH": str(SRC)}
    child = subprocess.Popen(
        [sys.executable, "-c", code], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.1)
    child.send_signal(number)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert err == "error: interrupted\n"


def test_a_reader_that_goes_away():
    code = "import sys; from wootz.cli.app import main; sys.exit(main(['recipe', 'list']))"
    variables = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.close()
        err = child.stderr.read().decode()
        code = child.wait(timeout=60)
    assert code == 141, err
    assert "Traceback" not in err
