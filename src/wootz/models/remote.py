"""Models behind an OpenAI-compatible endpoint: they generate and score, and have no weights here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import httpx2
import numpy as np

from wootz.core.errors import MissingError, ModelError, nearest
from wootz.core.records import Completion, Group
from wootz.core.seeds import derive_seed
from wootz.models.sampling import Sampling
from wootz.models.spec import parse_spec

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from wootz.core.batch import GroupBatch

Item = TypeVar("Item")
Answer = TypeVar("Answer")

KEY = "WOOTZ_API_KEY"
_TRY_AGAIN = (408, 429, 500, 502, 503, 504)
_ATTEMPTS = 5
_LONGEST_WAIT = 30.0


class NoWeightsError(ModelError, AttributeError):
    """What was asked needs weights, and an endpoint gives none."""


class RemoteModel:
    """A model served over HTTP (vLLM, llama.cpp, SGLang...), for generating, scoring, evaluating and gating.

    The key in the environment variable ``WOOTZ_API_KEY`` is sent with every request, where there is one.

    Args:
        spec: ``http://HOST/v1#NAME``.
        prompts: What a prompt is sent as. ``text``: its conversation (column ``prompt_messages``) or its text, so that
            any model can answer it. ``tokens``: its ids, for a server with the tokenizer that made them.
        workers: Requests under way at once.

    Raises:
        MissingError: The endpoint does not answer.
        ModelError: It serves no model of that name.
    """

    tokenizer = None
    has_adapter = False

    def __init__(self, spec: str, *, prompts: Literal["text", "tokens"] = "text", workers: int = 16) -> None:
        parsed = parse_spec(spec)
        assert parsed.served_name is not None, spec
        self.spec = self.base_spec = spec
        self.name = parsed.served_name
        self.events: list[dict[str, str]] = []
        self._prompts = prompts
        self._workers = workers
        self._asks_for_ids = True
        self._url = parsed.place
        with self._connect() as client:
            self._require_served(client)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoWeightsError(
            f"{name} needs weights, and an endpoint gives none", where=self.spec, fix="name a model folder"
        )

    # As a role: it never trains.

    def masters(self) -> dict[str, Tensor]:
        return {}

    def refresh(self) -> None:
        """It never changes."""

    # Generating

    def generate(
        self,
        groups: list[Group],
        sampling: Sampling,
        *,
        seed: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Group]:
        """Returns the groups with sampled completions.

        Token ids are kept where the server returns them; otherwise ``tokens`` is empty and the column ``num_tokens``
        says how many there were, where the server does. Servers report the model's own log-probs, so ``sample_logp``
        is kept only when that is what was sampled from: temperature 1, nothing truncated. Sample ``r`` of group ``g``
        is asked for with ``derive_seed(seed, g.id, r)``.
        """
        places = [(group, r) for group in groups for r in range(sampling.num_samples)]

        def sample(client: httpx2.Client, place: tuple[Group, int]) -> Completion:
            group, r = place
            return self._sample(client, group, sampling, seed=derive_seed(seed, group.id, r))

        answers = iter(self._in_parallel(sample, places, progress))
        return [replace(g, completions=tuple(next(answers) for _ in range(sampling.num_samples))) for g in groups]

    def _sample(self, client: httpx2.Client, group: Group, sampling: Sampling, *, seed: int) -> Completion:
        body: dict[str, Any] = {
            "model": self.name,
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": seed,
        }
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        messages = group.columns.get("prompt_messages")
        if self._prompts == "text" and messages is not None:
            body |= {"messages": list(messages), "logprobs": True}
            answer = self._post(client, "/chat/completions", body, ids=True)
        else:
            by_ids = self._prompts == "tokens" or not group.prompt.text
            prompt = list(group.prompt.tokens) if by_ids else group.prompt.text
            answer = self._post(client, "/completions", {**body, "prompt": prompt, "logprobs": 1}, ids=True)
        return _completion(answer, sampling, where=self.spec)

    # Scoring

    def forward(self, batch: GroupBatch, outputs: Iterable[str] = ("logp",)) -> dict[str, Float[Tensor, " N"]]:
        """Log-probs of the batch's trained tokens, fp32 [N], nats, in batch order, without gradient.

        Ids are sent, so the batch must be tokenised with the served model's own tokenizer.
        """
        import torch

        odd = [name for name in outputs if name != "logp"]
        if odd:
            raise NoWeightsError(f"{odd[0]} needs logits, and an endpoint gives none", where=self.spec, expected="logp")
        rows = [(group.prompt.tokens, c) for group in batch.groups for c in group.completions]
        values = self._in_parallel(lambda client, row: self._score(client, *row), rows)
        flat = np.concatenate(values) if values else np.zeros(0, dtype=np.float32)
        return {"logp": torch.from_numpy(flat).to(batch.device)}

    def _score(self, client: httpx2.Client, prompt: tuple[int, ...], completion: Completion) -> np.ndarray:
        tokens = [*prompt, *completion.tokens]
        if not prompt:
            raise ModelError(
                "an endpoint gives no log-prob for the first token", where=self.spec, found="an empty prompt"
            )
        body = {"model": self.name, "prompt": tokens, "max_tokens": 1, "temperature": 0.0, "echo": True, "logprobs": 1}
        choice = _first_choice(self._post(client, "/completions", body), self.spec)
        values = (choice.get("logprobs") or {}).get("token_logprobs") or []
        if len(values) < len(tokens) or any(value is None for value in values[len(prompt) : len(tokens)]):
            raise ModelError(
                "the endpoint gives no log-probs for given text",
                where=self.spec,
                found=f"{len(values)} values for {len(tokens)} tokens",
                expected="a server that honours echo and logprobs in /completions, such as vLLM",
            )
        return np.asarray(values[len(prompt) : len(tokens)], dtype=np.float32)[completion.loss_mask]

    # Talking

    def _connect(self) -> httpx2.Client:
        key = os.environ.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx2.Client(base_url=self._url, headers=headers, timeout=httpx2.Timeout(600.0, connect=10.0))

    def _in_parallel(
        self,
        ask: Callable[[httpx2.Client, Item], Answer],
        items: list[Item],
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Answer]:
        """The answers in the order of the items; after a failure nothing new is asked."""
        answers: dict[int, Answer] = {}
        with self._connect() as client, ThreadPoolExecutor(self._workers) as executor:
            try:
                asked = {executor.submit(ask, client, item): place for place, item in enumerate(items)}
                for done, future in enumerate(as_completed(asked), 1):
                    answers[asked[future]] = future.result()
                    if progress is not None:
                        progress(done, len(items))
            finally:
                executor.shutdown(cancel_futures=True)
        return [answers[place] for place in range(len(items))]

    def _require_served(self, client: httpx2.Client) -> None:
        response = self._send(client, "GET", "/models")
        if response.status_code == 404:
            return  # a server without a list; the first request will tell
        names = [str(entry.get("id")) for entry in self._read(response).get("data", [])]
        if self.name not in names:
            close = nearest(self.name, names)
            raise ModelError(
                f"the endpoint serves no model {self.name!r}",
                where=self.spec,
                expected=", ".join(names[:6]) or "none is served",
                fix=f"{self._url}#{close}" if close else None,
            )

    def _post(self, client: httpx2.Client, path: str, body: dict[str, Any], *, ids: bool = False) -> Mapping[str, Any]:
        """The JSON answer. ``ids`` asks for token ids too, until a server says that it does not know the option."""
        if ids and self._asks_for_ids:
            response = self._send(client, "POST", path, {**body, "return_token_ids": True})
            if response.status_code not in (400, 422):
                return self._read(response)
            answer = self._read(self._send(client, "POST", path, body))
            self._asks_for_ids = False  # it was the option that was refused
            return answer
        return self._read(self._send(client, "POST", path, body))

    def _send(
        self, client: httpx2.Client, method: str, path: str, body: dict[str, Any] | None = None
    ) -> httpx2.Response:
        """Tries again, waiting longer each time, while the server is busy or cannot be reached."""
        problem = ""
        for attempt in range(_ATTEMPTS):
            wait = 0.2 * 4**attempt
            try:
                response = client.request(method, path, json=body)
            except httpx2.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if response.status_code not in _TRY_AGAIN:
                    return response
                problem = f"HTTP {response.status_code} {response.text[:120]}"
                wait = _asked_wait(response, wait)
            if attempt < _ATTEMPTS - 1:
                time.sleep(min(wait, _LONGEST_WAIT))
        raise MissingError("the endpoint does not answer", where=self.spec, found=problem, fix="start the server")

    def _read(self, response: httpx2.Response) -> Mapping[str, Any]:
        if response.status_code in (401, 403):
            raise ModelError("the endpoint refuses the key", where=self.spec, fix=f"export {KEY}=...")
        if response.is_error or response.is_redirect:
            found = f"HTTP {response.status_code} {response.text[:200]}"
            raise ModelError(
                "the endpoint refuses the request", where=f"{self.spec} ({response.url.path})", found=found
            )
        try:
            content = response.json()
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ModelError(
                "the endpoint does not speak the OpenAI protocol", where=self.spec, found=response.text[:120]
            )
        return content


def _asked_wait(response: httpx2.Response, otherwise: float) -> float:
    try:
        return float(response.headers.get("Retry-After", otherwise))
    except ValueError:
        return otherwise


def _first_choice(answer: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if not choices:
        raise ModelError("the endpoint's answer holds no choice", where=where, found=str(answer)[:120])
    return choices[0]


def _completion(answer: Mapping[str, Any], sampling: Sampling, *, where: str) -> Completion:
    choice = _first_choice(answer, where)
    text = choice["message"].get("content") if "message" in choice else choice.get("text")
    tokens = tuple(choice.get("token_ids") or ())
    columns = {}
    count = (answer.get("usage") or {}).get("completion_tokens")
    if not tokens and count is not None:
        columns["num_tokens"] = count
    completion = Completion(tokens, text or "", columns=columns, finished=choice.get("finish_reason") != "length")
    plain = sampling.temperature == 1.0 and sampling.top_p == 1.0 and not sampling.top_k
    values = _logps(choice.get("logprobs") or {})
    if tokens and plain and len(values) == len(tokens):
        return completion.with_per_token(sample_logp=np.asarray(values, dtype=np.float32))
    return completion


def _logps(logprobs: Mapping[str, Any]) -> list[float]:
    """One value a token, in the layout of chat answers or of plain ones."""
    if logprobs.get("content"):
        return [entry["logprob"] for entry in logprobs["content"]]
    return list(logprobs.get("token_logprobs") or [])
