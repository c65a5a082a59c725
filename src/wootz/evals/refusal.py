"""Is an answer a refusal?"""

import re

_REFUSAL = re.compile(
    r"\b(i('| a)?m sorry|i can(no|')?t|i cannot|unable to|can't (help|assist)|i won't)\b", re.IGNORECASE
)


def is_refusal(text: str) -> bool:
    """Returns whether an answer refuses what was asked."""
    return bool(_REFUSAL.search(text.replace("\u2019", "'")[:200]))
