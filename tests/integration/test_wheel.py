"""The wheel that a user would get: built, installed in a clean environment, and used there."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (found,) = out.glob("wootz-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A clean environment that holds the wheel, and sees the packages it depends on without holding them."""
    folder = tmp_path_factory.mktemp("clean") / "env"
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    return folder


def run(installed: Path, *command: str, **more: str) -> subprocess.CompletedProcess:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(installed / "bin" / command[0]), *command[1:]],
        env=variables | more,
        cwd=installed,
        capture_output=True,
        text=True,
    )


def test_the_wheel_holds_everything_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/wootz").rglob("*") if path.is_file()}
    sources = {name for name in sources if "__pycache__" not in name}
    recipes = {f"wootz/recipes/{path.name}" for path in (ROOT / "recipes").glob("*.yaml")}
    assert sources | recipes == {name for name in names if not name.startswith("wootz-")}
    assert {"wootz/py.typed", "wootz/recipes/dpo.yaml"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_installed_command(installed):
    where = run(installed, "python", "-c", "import wootz; print(wootz.__file__)")
    assert str(installed) in where.stdout, where.stderr
    done = run(installed, "wootz", "--help")
    assert done.returncode == 0, done.stderr
    assert "quickstart" in done.stdout
    assert run(installed, "wootz", "--version").stdout == "0.1.0\n"


def test_recipes_come_along(installed):
    done = run(installed, "wootz", "recipe", "list", "--json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["recipes"]) == {path.stem for path in (ROOT / "recipes").glob("*.yaml")}
    done = run(installed, "wootz", "recipe", "validate", "dpo", "--json")
    assert json.loads(done.stdout)["objective"]["type"] == "dpo"


def test_dependencies_are_declared():
    """What the package imports is what it depends on (or is an extra, or comes with Python)."""
    import ast
    import tomllib
    from importlib.metadata import packages_distributions

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {_name(text) for text in project["dependencies"]}
    extras = {
        _name(text) for name, texts in project["optional-dependencies"].items() if name != "dev" for text in texts
    }
    owners = packages_distributions()
    imported = set()
    for path in (ROOT / "src/wootz").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    outside = imported - set(sys.stdlib_module_names) - {"wootz"}
    wanted = {_name(owner) for module in outside for owner in owners.get(module, [module])}
    assert wanted - declared - extras == set()
    assert declared - wanted == {"accelerate", "gguf"}, "transformers needs these two to load models"


def _name(requirement: str) -> str:
    for mark in "<>=!~[; ":
        requirement = requirement.split(mark)[0]
    return requirement.lower().replace("_", "-")
