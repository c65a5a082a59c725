"""A model under measurement: it answers items once, however many measures ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from wootz.core.records import Group
from wootz.core.seeds import derive_seed
from wootz.evals.items import Item, to_group
from wootz.models import Sampling

Note = Callable[[str], None]


@dataclass
class Subject:
    """A model, how it is sampled, and what it has answered.

    Attributes:
        seed: Of the samples; unused when greedy.
        temperature: 0 answers greedily, so that parent and child differ by their weights alone.
    """

    model: Any
    seed: int = 0
    temperature: float = 0.0
    _answered: dict[tuple[str, int], dict[str, Group]] = field(default_factory=dict)

    @property
    def tokenizer(self) -> Any:
        return getattr(self.model, "tokenizer", None)

    @property
    def has_weights(self) -> bool:
        """Whether log-probs of given text can be had (an endpoint only answers)."""
        return hasattr(self.model, "module")

    def answer(self, items: Sequence[Item], *, name: str, max_new_tokens: int) -> list[Group]:
        """Returns each item's group with one completion; what was answered before under ``name`` is not asked again."""
        known = self._answered.setdefault((name, max_new_tokens), {})
        missing = [to_group(item, self.tokenizer) for item in items if item.id not in known]
        if missing:
            sampling = Sampling(temperature=self.temperature, max_new_tokens=max_new_tokens)
            seed = derive_seed(self.seed, "eval", name)
            known |= {group.id: group for group in self.model.generate(missing, sampling, seed=seed)}
        return [known[item.id] for item in items]
