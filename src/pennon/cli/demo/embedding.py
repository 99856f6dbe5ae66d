"""Latent semantic analysis: an embedding model that is fitted to texts in a moment, without any download."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"[a-z]+")
_COMMON = frozenset(
    _WORD.findall("a an and are as at be by for from has in is it its of on or that the their they to with")
)


@dataclass(frozen=True)
class LatentModel:
    """Embeds texts as short vectors; texts on the same subject have vectors that are close."""

    #: The weight of each word; rare words count more.
    weights: dict[str, float]
    #: The direction of each word in the vector space.
    axes: dict[str, NDArray[np.float64]]
    width: int

    @classmethod
    def fit(cls, texts: Sequence[str], width: int) -> LatentModel:
        """Fit a model: find the directions in which the texts differ most."""
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
        """Return the unit vector of a text; zeros for a text without a known word."""
        words = [word for word in words_of(text) if word in self.weights]
        vector = sum((self.weights[word] * self.axes[word] for word in words), np.zeros(self.width))
        return [float(value) for value in vector / max(float(np.linalg.norm(vector)), 1e-9)]


def words_of(text: str) -> list[str]:
    """Return the words of a text without common words, and without a plural s."""
    return [word.removesuffix("s") for word in _WORD.findall(text.lower()) if word not in _COMMON]
