"""RunConfig: everything that a run is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from boosted_attention.data.tokens import DataConfig
from boosted_attention.model.protocols import ModelConfig
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.kinds import model_config

M_co = TypeVar("M_co", bound=ModelConfig, covariant=True)


@dataclass(frozen=True, kw_only=True)
class RunConfig(Generic[M_co]):
    """A model, how it is trained, and on which text.

    Args:
        model: a ``LanguageModelConfig``, or another configuration that fulfils ``ModelConfig``.
        training: steps, learning rate, evaluation and seed.
        data: the corpus and its tokenizer.
    """

    model: M_co
    training: TrainingConfig
    data: DataConfig

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, as config.json holds them."""
        return {"model": self.model.to_dict(), "training": self.training.to_dict(), "data": asdict(self.data)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig[ModelConfig]:
        """Build a configuration from a run's config.json, whose "fingerprint" is no setting and is ignored."""
        return RunConfig(
            model=model_config(values["model"]),
            training=TrainingConfig(**values["training"]),
            data=DataConfig(**values["data"]),
        )
