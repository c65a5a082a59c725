"""The recipes that come with wootz, and where a recipe given by name or path lies. Loads nothing heavy."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from wootz.core.errors import RecipeError, nearest


def shipped_recipes() -> dict[str, Path]:
    """Returns name to file of the recipes that come with wootz."""
    folder = Path(str(resources.files("wootz"))) / "recipes"
    if not folder.is_dir():
        folder = Path(__file__).parents[3] / "recipes"  # a source checkout
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_recipe(source: str | Path) -> Path:
    """Returns the file of a recipe given by path or by the name it ships under. Raises RecipeError for neither."""
    path = Path(source)
    if path.is_file():
        return path
    shipped = shipped_recipes()
    if str(source) in shipped:
        return shipped[str(source)]
    beside = {file.stem: str(file) for file in path.parent.glob("*.y*ml")} if path.parent.is_dir() else {}
    close = nearest(path.stem, [*beside, *shipped])
    expected = f"a YAML file, or one of {', '.join(shipped)}"
    raise RecipeError("no such recipe", where=str(source), expected=expected, fix=close and beside.get(close, close))
