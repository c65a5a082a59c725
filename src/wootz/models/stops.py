"""When a completion has ended: the tokens that end a turn, and the strings that a user named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from wootz.models.fast import causal_lm_of

if TYPE_CHECKING:
    from wootz.models.model import LanguageModel


def end_tokens(model: LanguageModel) -> frozenset[int]:
    """Returns every id that ends a completion: the configurations' (one or several), the tokenizer's, the template's.

    They differ in practice: a chat model may list its end of text in one place and its end of turn in another.
    """
    causal_lm = causal_lm_of(model.module)
    ids: set[int] = set()
    for owner in (getattr(causal_lm, "generation_config", None), causal_lm.config, model.tokenizer):
        found = getattr(owner, "eos_token_id", None)
        ids.update(found if isinstance(found, list | tuple) else () if found is None else (found,))
    turn = _end_of_turn(model.tokenizer)
    return frozenset(ids if turn is None else ids | {turn})


def _end_of_turn(tokenizer: Any) -> int | None:
    """The special token that the chat template writes right after an assistant's answer, or None."""
    if not tokenizer.chat_template:
        return None
    answer = "0f3a answer 91c7"
    turns = [{"role": "user", "content": "question"}, {"role": "assistant", "content": answer}]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False)
    except (TemplateError, TypeError):
        return None  # a template for other conversations; what it refuses, it ends nowhere
    special = set(tokenizer.all_special_ids) | {
        token for token, added in getattr(tokenizer, "added_tokens_decoder", {}).items() if added.special
    }
    after = tokenizer(text.rpartition(answer)[2].lstrip(), add_special_tokens=False).input_ids
    return after[0] if after and after[0] in special else None


@dataclass(frozen=True)
class Ending:
    """What ends completions in one call.

    Attributes:
        tokens: Ids that end one.
        strings: Texts that end one, wherever token boundaries fall.
    """

    tokenizer: Any
    tokens: frozenset[int]
    strings: tuple[str, ...]

    def reached(self, tokens: list[int]) -> bool:
        """Whether the completion ended with its last token."""
        if tokens[-1] in self.tokens:
            return True
        if not self.strings:
            return False
        # A token has at least one byte of text, so only so many can hold the end of a stop string. What is found in
        # the tail is looked for in the whole: a tail may begin inside a character, or lose a leading space.
        reach = max(len(text.encode()) for text in self.strings) + 4
        return self._cut(tokens[-reach:]) is not None and self._cut(tokens) is not None

    def text(self, tokens: list[int]) -> str:
        """Returns the readable text up to a stop string, special tokens left out."""
        readable = self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if not self.strings or (cut := self._cut(tokens)) is None:
            return readable
        places = [place for text in self.strings if (place := readable.find(text)) >= 0]
        if places:
            return readable[: min(places)]
        for special in self.tokenizer.all_special_tokens:  # the stop string is, or holds, a special token
            cut = cut.replace(special, "")
        return cut

    def _cut(self, tokens: list[int]) -> str | None:
        """The text, special tokens shown, before the first stop string; None if there is none."""
        shown = self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        places = [place for text in self.strings if (place := shown.find(text)) >= 0]
        return shown[: min(places)] if places else None
