"""Every command in the how-to pages and in the help can be given as it stands."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from wootz.api.recipe import load_recipe
from wootz.cli import app as cli

HOWTO = Path(__file__).parents[3] / "docs/howto"
PAGES = sorted(HOWTO.glob("*.md"))


def commands(text):
    """Lines of code fences that begin with the command."""
    for block in re.findall(r"```\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("wootz "):
                yield re.split(r"\s{2,}#|\s+>\s", line)[0]


EXAMPLES = [line for page in PAGES for line in commands(page.read_text())] + [*cli._EXAMPLES.values()]


def parse(line):
    """Parses a command line to its end without carrying it out; returns the verb's arguments."""
    words = cli.expand_dry_run(shlex.split(line)[1:])
    command = typer.main.get_command(cli.app)
    context = command.make_context("wootz", [words[0]], resilient_parsing=True)
    while hasattr(command, "get_command"):
        name, *words = words
        command = command.get_command(context, name)
        assert command is not None, f"no verb {name}"
        if hasattr(command, "get_command"):
            context = command.make_context(name, [words[0]], parent=context, resilient_parsing=True)
    return command.make_context(name, words, parent=context).params


@pytest.mark.parametrize("line", EXAMPLES)
def test_a_command_can_be_given(line):
    given = parse(line)
    if "recipe" in given and given.get("overrides"):
        load_recipe("dpo", given["overrides"])


def test_every_verb_has_a_page():
    group = typer.main.get_command(cli.app)
    assert {page.stem for page in PAGES} == set(group.commands)
    for page in PAGES:
        assert page.read_text().startswith(f"# wootz {page.stem}\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_settings_that_pages_name_exist(page):
    for setting in re.findall(r"`((?:model|train|data|eval|track|objective)[.\w]*=[^`]+)`", page.read_text()):
        load_recipe("dpo", [setting])
