"""What trainer, evaluation, analysis and generation ask of a model, so that any model which has it can be used.

``LanguageModelConfig`` and ``LanguageModel`` are one such pair; the pretrained models of ``pretrained/`` are another.
Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor, nn


class ModelConfig(Protocol):
    """A description of a model that can build it and knows its cost without building it."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary."""
        ...

    @property
    def max_len(self) -> int:
        """Longest sequence the model takes."""
        ...

    @property
    def attention(self) -> str:
        """Name of the attention, for headings and folders."""
        ...

    def build(self) -> CausalModel:
        """Build the model."""
        ...

    def on_meta(self) -> CausalModel:
        """Build the model without storage: the same modules and shapes, nothing allocated."""
        ...

    def num_params(self) -> int:
        """Count all parameters."""
        ...

    def flops(self, length: int | None = None, /) -> int:
        """Count forward FLOPs per token in sequences of ``length``, ``max_len`` by default."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as plain JSON values."""
        ...


class CausalModel(Protocol):
    """A decoder language model: what a training run, an evaluation or an analysis calls.

    Every ``nn.Module`` has the methods below ``generate``; a model adds the others.
    """

    training: bool
    drops_by_rows: bool
    """Whether its dropout is that of ``attention/dropout.py``, whose masks are functions of a seed and a row."""

    @property
    def config(self) -> ModelConfig:
        """The configuration the model was built from."""
        ...

    def blocks(self) -> Iterable[nn.Module]:
        """Return the repeated parts, which parallel training shards and checkpointing recomputes."""
        ...

    def __call__(self, ids: Tensor, /) -> Tensor:
        """Return logits (B, T, V) for token ids (B, T)."""
        ...

    def loss(
        self,
        ids: Tensor,
        targets: Tensor,
        attention_mask: Tensor | None = None,
        *,
        documents: Tensor | None = None,
        reduction: str = "mean",
    ) -> Tensor:
        """Return the cross-entropy of targets (B, T): "mean", "sum", or "none" for (B, T) without gradients.

        Args:
            ids: token ids (B, T).
            targets: the token that follows each of ids (B, T); -100 is ignored.
            attention_mask: a tokenizer's mask (B, T), 1 = real token.
            documents: number of each token's document (B, T), where several that do not see each other share a row; a
                caller that has none leaves it out.
            reduction: "mean", "sum" or "none".
        """
        ...

    def generate(
        self,
        ids: Tensor,
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: int | None = None,
        stream: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """Return ids (B, T) continued by up to ``max_new_tokens`` tokens; ``LanguageModel.generate`` says how."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all parameters."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return all parameters with their names."""
        ...

    def named_modules(self) -> Iterable[tuple[str, nn.Module]]:
        """Return all modules with their names."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds of the model."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Take the weights of a checkpoint."""
        ...

    def train(self, mode: bool = True) -> Any:
        """Switch to training mode, or with False to evaluation."""
        ...

    def eval(self) -> Any:
        """Switch to evaluation mode."""
        ...

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Move to a device or dtype."""
        ...


@runtime_checkable
class PacksMatrices(Protocol):
    """A module with weights that hold several matrices, such as the projections of queries, keys and values."""

    def packed_matrices(self) -> Mapping[str, Callable[[Tensor], Sequence[Tensor]]]:
        """Return how each such weight divides, by its name inside the module.

        A function takes a tensor of the weight's shape and returns views of its parts that can be written to; all
        dimensions of a part but its last are the rows of a matrix.
        """
        ...
