"""Latent semantic analysis: a model of texts that is fitted to them in a moment, and needs nothing downloaded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_WORD = re.compile(r"[a-z]+")
_COMMON = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "for",
        "from",
        "has",
        "in",
        "is",
        "it",
        "its",
        "of",
        "on",
        "or",
        "that",
        "the",
        "their",
        "they",
        "to",
        "with",
    ]
)


@dataclass(frozen=True)
class LatentModel:
    """Turns a text into a vector of a few numbers; texts on the same matters have vectors that are near."""

    #: Of each word, its weight: rare words tell more.
    weights: dict[str, float]
    #: Of each word, what a text about it is like.
    axes: dict[str, Any]
    width: int

    @classmethod
    def fit(cls, texts: Sequence[str], width: int) -> LatentModel:
        """Find the few directions in which texts differ most."""
        counts = [Counter(words_of(text)) for text in texts]
        found = Counter(word for counted in counts for word in counted)
        weights = {word: float(np.log((1 + len(texts)) / (1 + n)) + 1) for word, n in sorted(found.items())}
        matrix = np.array([[counted[word] * weight for word, weight in weights.items()] for counted in counts])
        matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)
        directions = np.linalg.svd(matrix, full_matrices=False)[2][:width]
        padded = np.zeros((width, len(weights)))
        padded[: len(directions)] = directions
        return cls(weights, dict(zip(weights, padded.T, strict=True)), width)

    def embed(self, text: str) -> list[float]:
        """Return the vector of a text, of length one; of a text without a known word, zeros."""
        words = [word for word in words_of(text) if word in self.weights]
        vector = sum((self.weights[word] * self.axes[word] for word in words), np.zeros(self.width))
        return [float(value) for value in vector / max(float(np.linalg.norm(vector)), 1e-9)]


def words_of(text: str) -> list[str]:
    """Return the words of a text that tell what it is about; a plural is the word itself."""
    return [word.removesuffix("s") for word in _WORD.findall(text.lower()) if word not in _COMMON]
