"""Prompts in, completions out, with the log-prob of each token under the distribution that it was sampled from.

Rows (one a completion) leave the batch when they end, and waiting ones enter. A prompt is read once for all its rows
that enter together. Sample ``r`` of group ``g`` draws from its own stream, ``derive_seed(seed, g.id, r)``, so in fp32 a
completion does not depend on what else is in the batch, in which order, or on how many samples were asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wootz.core.errors import DataError
from wootz.core.records import Completion, Group
from wootz.core.seeds import derive_seed
from wootz.models.decoders import Decoder, decoding_of
from wootz.models.fast import causal_lm_of
from wootz.models.headroom import available_memory
from wootz.models.sampling import Sampling, draw
from wootz.models.stops import Ending, end_tokens

if TYPE_CHECKING:
    from wootz.models.model import LanguageModel

MOST_ROWS = {"cpu": 128}
"""Rows beyond which a step's time only grows in proportion, by device type."""
_MOST_ROWS_ELSEWHERE = 512
_PREFILL_TOKENS = 8192
"""Prompt tokens read in one pass."""


@torch.no_grad()
def generate(
    model: LanguageModel,
    groups: Sequence[Group],
    sampling: Sampling,
    *,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
    max_rows: int | None = None,
) -> list[Group]:
    """Returns the groups, in order, with ``sampling.num_samples`` completions each in place of those they had.

    A completion's ``tokens`` are as sampled, the end token included; ``text`` ends before a stop string;
    ``per_token["sample_logp"]`` is fp32, in nats; ``finished`` is False when the length limit or the model's context
    ended it.

    Args:
        seed: The run's seed for these samples. Groups of the same id and prompt get the same completions.
        progress: Called with (completions done, completions asked for).
        max_rows: Completions written at once; by default as many as memory holds and speed gains from.

    Raises:
        DataError: A prompt that is empty, longer than the model's context, or holds ids that the model lacks.
        ModelError: Logits that are not numbers.
    """
    context = _context_length(model)
    for group in groups:
        _check_prompt(group, context=context, vocabulary=_vocabulary(model))
    rows = [
        _Row(index, r, group.prompt.tokens, _limit(group, sampling, context), derive_seed(seed, group.id, r))
        for index, group in enumerate(groups)
        for r in range(sampling.num_samples)
    ]
    ending = Ending(model.tokenizer, end_tokens(model), sampling.stop)
    # Longest first: the most memory is asked for at the start, and rows of a like length are together.
    waiting = deque(sorted(rows, key=lambda row: -len(row.prompt)))
    length = max((len(row.prompt) + row.limit for row in rows), default=0)
    most = max_rows or _rows_that_fit(model, length)
    if rows:
        decoder = decoding_of(model).decoder(min(most, len(rows)), length)
        _Writing(decoder, sampling, ending, waiting, most, model.device).run(progress)
    completions = iter([row.completion(ending) for row in rows])
    return [
        replace(group, completions=tuple(next(completions) for _ in range(sampling.num_samples))) for group in groups
    ]


@dataclass
class _Row:
    """A completion that is being written."""

    group: int
    sample: int
    prompt: tuple[int, ...]
    limit: int
    seed: int
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    finished: bool = False
    _uniforms: np.ndarray | None = None

    def uniform(self) -> float:
        """The stream's value for the next token."""
        if self._uniforms is None:
            self._uniforms = np.random.default_rng(self.seed).random(self.limit)
        return float(self._uniforms[len(self.tokens)])

    def add(self, token: int, logp: float, ending: Ending) -> bool:
        """Returns whether the row has ended."""
        self.tokens.append(token)
        self.logps.append(logp)
        self.finished = ending.reached(self.tokens)
        if self.finished or len(self.tokens) == self.limit:
            self._uniforms = None
            return True
        return False

    def completion(self, ending: Ending) -> Completion:
        logps = np.asarray(self.logps, dtype=np.float32)
        tokens = tuple(self.tokens)
        return Completion(tokens, ending.text(self.tokens), {"sample_logp": logps}, finished=self.finished)


@dataclass
class _Writing:
    """One call's rows: those waiting and those in the decoder."""

    decoder: Decoder
    sampling: Sampling
    ending: Ending
    waiting: deque[_Row]
    max_rows: int
    device: torch.device
    active: list[_Row] = field(default_factory=list)

    def run(self, progress: Callable[[int, int], None] | None) -> None:
        total, done = len(self.waiting), 0
        while self.waiting or self.active:
            logits = self._next_logits()
            chances = [row.uniform() for row in self.active] if self.sampling.temperature else [0.0] * len(self.active)
            tokens, logps = draw(logits, self.sampling, torch.tensor(chances, dtype=torch.float64))
            ended = [
                row.add(token, logp, self.ending)
                for row, token, logp in zip(self.active, tokens.tolist(), logps.tolist(), strict=True)
            ]
            if any(ended):
                self._drop(ended)
                done += sum(ended)
                if progress is not None:
                    progress(done, total)

    def _next_logits(self) -> Tensor:
        parts = []
        if self.active:
            last = torch.tensor([row.tokens[-1] for row in self.active], device=self.device)
            parts.append(self.decoder.step(last))
        # Few rows are not worth a pass over the weights: wait until a quarter of the places are free.
        if self.waiting and len(self.active) <= 0.75 * self.max_rows:
            parts += [self._admit(rows) for rows in self._entering()]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _entering(self) -> list[list[_Row]]:
        """Takes waiting rows for the free places, cut into passes; a group enters whole if it ever can."""
        free, batches, tokens = self.max_rows - len(self.active), [[]], 0
        while self.waiting and free:
            size = self._size_of_next_group()
            if size > free and (self.active or any(batches)) and size <= self.max_rows:
                break
            tokens += len(self.waiting[0].prompt)
            if tokens > _PREFILL_TOKENS and batches[-1]:
                batches.append([])
                tokens = len(self.waiting[0].prompt)
            taken = [self.waiting.popleft() for _ in range(min(size, free))]
            batches[-1] += taken
            free -= len(taken)
        return [batch for batch in batches if batch]

    def _size_of_next_group(self) -> int:
        group = self.waiting[0].group
        return next((n for n, row in enumerate(self.waiting) if row.group != group), len(self.waiting))

    def _admit(self, rows: list[_Row]) -> Tensor:
        copies: dict[tuple[int, ...], list[_Row]] = {}
        for row in rows:
            copies.setdefault(row.prompt, []).append(row)
        logits = self.decoder.start(list(copies), [len(same) for same in copies.values()])
        self.active += [row for same in copies.values() for row in same]
        return logits

    def _drop(self, ended: list[bool]) -> None:
        """Lets rows go. The last rows take the places that become free, so that few have to move."""
        alive = ended.count(False)
        order = list(range(alive))
        movers = [place for place in range(alive, len(ended)) if not ended[place]]
        for hole, mover in zip((place for place in range(alive) if ended[place]), movers, strict=True):
            order[hole] = mover
        self.decoder.select(order)
        self.active = [self.active[place] for place in order]


def _check_prompt(group: Group, *, context: int | None, vocabulary: int) -> None:
    tokens, where = group.prompt.tokens, f"row {group.id}"
    if not tokens:
        raise DataError(
            "a completion needs at least one prompt token to be predicted from",
            where=where,
            found="an empty prompt",
            expected="a BOS token, or text",
        )
    if context is not None and len(tokens) >= context:
        raise DataError(
            "the prompt leaves no room for a completion",
            where=where,
            found=f"{len(tokens)} tokens",
            expected=f"fewer than {context}, the model's context",
            fix="shorten the prompt, or leave the row out",
        )
    if max(tokens) >= vocabulary or min(tokens) < 0:
        raise DataError(
            "the prompt holds ids that the model lacks",
            where=where,
            found=f"ids {min(tokens)} to {max(tokens)}",
            expected=f"0 to {vocabulary - 1}",
            fix="tokenise with the model's own tokenizer",
        )


def _limit(group: Group, sampling: Sampling, context: int | None) -> int:
    room = sampling.max_new_tokens if context is None else context - len(group.prompt.tokens)
    return min(sampling.max_new_tokens, room)


def _vocabulary(model: LanguageModel) -> int:
    return int(causal_lm_of(model.module).get_input_embeddings().weight.shape[0])


def _context_length(model: LanguageModel) -> int | None:
    return getattr(_text_config(model), "max_position_embeddings", None)


def _text_config(model: LanguageModel) -> Any:
    return causal_lm_of(model.module).config.get_text_config()


def _rows_that_fit(model: LanguageModel, length: int) -> int:
    """Rows of ``length`` tokens that half of the free memory holds, at most as many as speed gains from."""
    config = _text_config(model)
    # Models without attention have no heads; their width is then more than what a token leaves behind.
    heads = getattr(config, "num_attention_heads", None) or 1
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    a_token = 2 * config.num_hidden_layers * kv_heads * head_dim * (torch.finfo(model.dtype).bits // 8)
    a_row = length * a_token + 3 * 4 * _vocabulary(model)  # the cache; the logits and what sampling makes of them
    most = MOST_ROWS.get(model.device.type, _MOST_ROWS_ELSEWHERE)
    return max(1, min(most, int(available_memory(model.device) / 2 / a_row)))
