"""``wootz recipe``: write and understand recipes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wootz.cli.flags import Flags, verb
from wootz.cli.words import OVERRIDES, table

app = typer.Typer(help="Validate, explain, list and show recipes; print their JSON Schema.", no_args_is_help=True)
RECIPE = Annotated[str, typer.Argument(help="A recipe file, or the name of one that ships with wootz.")]


@app.command("validate", epilog="Example:  wootz recipe validate mine.yaml train.lr=1e-5")
@verb()
def validate(flags: Flags, recipe: RECIPE, overrides: OVERRIDES = None) -> None:
    """Check a recipe's keys, values and combinations; print it with every default."""
    from wootz.api.recipe import load_recipe
    from wootz.core import yaml

    resolved = load_recipe(recipe, overrides or ()).resolved()
    flags.note("the recipe is sound; with every default:")
    flags.result(resolved, yaml.dump(resolved))


@app.command("explain", epilog="Example:  wootz recipe explain train.lr")
@verb()
def explain(
    flags: Flags,
    key: Annotated[
        str | None, typer.Argument(help="A dotted key; none lists the sections.", show_default=False)
    ] = None,
) -> None:
    """Say what a key means: type, default, bounds, why."""
    from dataclasses import asdict

    from wootz.api.recipe import Recipe
    from wootz.core.explain import explain as explain_key

    found = [one for name in ([key] if key else Recipe.model_fields) for one in explain_key(Recipe, name)]
    texts = [_explanation_text(asdict(one), brief=key is None) for one in found]
    flags.result({"keys": [asdict(one) for one in found]}, ("\n" if key is None else "\n\n").join(texts))


def _explanation_text(told: dict[str, Any], *, brief: bool) -> str:
    if brief:
        return f"{told['key']:<10} {told['meaning']}"
    rows = [("type", told["type"]), ("default", told["default"]), ("bounds", told["bounds"])]
    rows += [("known elsewhere as", ", ".join(told["aka"])), ("keys", ", ".join(told["keys"]))]
    return f"{told['key']}\n  {told['meaning']}\n{table(row for row in rows if row[1])}"


@app.command("schema", epilog="Example:  wootz recipe schema > wootz.schema.json")
@verb()
def schema(flags: Flags) -> None:
    """Print the JSON Schema of recipes, for editors."""
    import json

    from wootz.api.recipe import Recipe

    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Recipe.model_json_schema()}
    flags.result(document, json.dumps(document, indent=1, ensure_ascii=False))


@app.command("list", epilog="Example:  wootz recipe list")
@verb()
def list_recipes(flags: Flags) -> None:
    """List the recipes that come with wootz."""
    from wootz.api.shipped import shipped_recipes

    found = {name: _first_comment(path.read_text(encoding="utf-8")) for name, path in shipped_recipes().items()}
    flags.result({"recipes": found}, table(found.items(), indent=""))


def _first_comment(text: str) -> str:
    first = text.split("\n", 1)[0]
    return first.lstrip("# ").strip() if first.startswith("#") else ""


@app.command("show", epilog="Example:  wootz recipe show dpo > mine.yaml")
@verb()
def show(flags: Flags, recipe: RECIPE) -> None:
    """Print a recipe as it was written, to start from."""
    from wootz.api.shipped import find_recipe

    text = find_recipe(recipe).read_text(encoding="utf-8")
    flags.result({"name": recipe, "text": text}, text)
