"""FinetunedModel: a pretrained model as the trainer, evaluation and analysis know models."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from boosted_attention.attention.masks import document_positions
from boosted_attention.model.loss import IGNORED, chunked_loss, token_losses
from boosted_attention.model.protocols import ModelConfig
from boosted_attention.pretrained.families import find_projections
from boosted_attention.pretrained.light import Follower
from boosted_attention.pretrained.places import decoder_layers
from boosted_attention.validation import require, require_choice


class FinetunedModel(nn.Module):
    """A causal model of transformers that fulfils ``CausalModel``; its ``state_dict`` holds trained parameters alone.

    Args:
        model: a model of transformers, or one with peft's adapters, in which what is not to be trained is frozen.
        config: what it was made from.
    """

    drops_by_rows = False  # the dropout of transformers

    def __init__(self, model: Any, config: ModelConfig):
        super().__init__()
        self.config = config
        self.model = model
        self._linear_head: bool | None = None

    def blocks(self) -> list[nn.Module]:
        """Return the decoder layers, as parallel training divides the model."""
        return decoder_layers(self.model)

    def packed_matrices(self) -> dict[str, Callable[[Tensor], Sequence[Tensor]]]:
        """Return how weights that hold the projections of queries, keys and values divide.

        The second matrix of an adapter divides as the weight it is added to; the first, which reads the input for all
        three, is one matrix.
        """
        found: dict[str, Callable[[Tensor], Sequence[Tensor]]] = {}
        for place, module in self.named_modules():
            projections = None if isinstance(module, Follower) else find_projections(without_adapters(module))
            for weight, divide in ({} if projections is None else projections.packed).items():
                found[f"{place}.{weight}"] = divide
                linear: Any = getattr(module, weight.removesuffix(".weight"))
                for adapter in getattr(linear, "lora_B", ()):
                    name = f"{place}.{weight.removesuffix('weight')}lora_B.{adapter}.weight"
                    found[name] = partial(divided_adapter, divide, linear.base_layer)
        return found

    def forward(self, ids: Tensor, documents: Tensor | None = None) -> Tensor:
        return self.model(ids, use_cache=False, **self._apart(documents)).logits

    def hidden(self, ids: Tensor, documents: Tensor | None = None) -> Tensor:
        """Return what the vocabulary projection sees, (B, T) -> (B, T, D)."""
        return self._inner().base_model(ids, use_cache=False, **self._apart(documents)).last_hidden_state

    def _inner(self) -> Any:
        """Return the model of transformers, without peft around it."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def _apart(self, documents: Tensor | None) -> dict[str, Tensor]:
        """Return the arguments that keep documents (B, T) of one row apart: positions that begin anew, without a mask.

        A family that takes them and does not keep documents apart is found by the trainer's probe.
        """
        if documents is None:
            return {}
        inner = self._inner()
        require(
            "position_ids" in inspect.signature(inner.base_model.forward).parameters,
            f"pack='documents': {type(inner).__name__} takes no position_ids, which would keep documents apart; use "
            "pack='none'",
        )
        return {"position_ids": document_positions(documents)}

    def loss(
        self,
        ids: Tensor,
        targets: Tensor,
        attention_mask: Tensor | None = None,
        *,
        documents: Tensor | None = None,
        reduction: str = "mean",
    ) -> Tensor:
        """Return the cross-entropy as ``LanguageModel.loss`` does: in chunks, without ever holding all logits."""
        require_choice("reduction", reduction, ("mean", "sum", "none"))
        assert attention_mask is None, "rows of text have no padding"
        if not self.linear_head(ids[:1, :2]):
            return nn.functional.cross_entropy(
                self(ids, documents).float().transpose(1, 2), targets, ignore_index=IGNORED, reduction=reduction
            )
        projection = self.model.get_output_embeddings().weight
        hidden = self.hidden(ids, documents)
        if reduction == "none":
            return token_losses(hidden, projection, targets)
        return chunked_loss(hidden, projection, targets, reduction)

    @torch.no_grad()
    def linear_head(self, ids: Tensor) -> bool:
        """Say whether logits are hidden states times a matrix; some models add a bias, or scale or cap them."""
        head = self.model.get_output_embeddings()
        capped = getattr(self.model.config.get_text_config(), "final_logit_softcapping", None)
        if getattr(head, "bias", None) is not None or capped:
            return False  # however little they do now, they may be trained to do more
        if self._linear_head is None:
            was_training = self.training
            self.eval()
            product = self.hidden(ids) @ self.model.get_output_embeddings().weight.T
            self._linear_head = torch.allclose(product, self(ids), rtol=1e-3, atol=1e-3)
            self.train(was_training)
        return self._linear_head

    def whole(self) -> PreTrainedModel:
        """Return the model of transformers itself, with adapters merged into it."""
        return self.model.merge_and_unload() if hasattr(self.model, "merge_and_unload") else self.model

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the parameters that are trained, by name."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {name: p.detach() for name, p in self.trained().items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        wanted = self.trained()
        differing = sorted(wanted.keys() ^ state_dict.keys())
        if differing:
            raise RuntimeError(f"the trained parameters differ: {differing[0]}")
        with torch.no_grad():
            for name, p in wanted.items():
                p.copy_(state_dict[name])

    def generate(self, ids: Tensor, max_new_tokens: int, **options: Any) -> Tensor:
        """Continue ids (B, T), with the options of ``LanguageModel.generate``."""
        if max_new_tokens == 0:  # which transformers refuses
            return ids
        stream: Callable[[Tensor], None] | None = options.pop("stream", None)
        temperature, seed = options.pop("temperature", 0.0), options.pop("seed", None)
        given = {name: options[name] for name in ("top_k", "top_p") if options.get(name) is not None}
        if seed is not None:
            torch.manual_seed(seed)
        if temperature > 0:
            given |= {"do_sample": True, "temperature": temperature}
        return self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            pad_token_id=0,
            eos_token_id=options.get("stop"),
            streamer=None if stream is None else Streamer(stream),
            **{"do_sample": False, **given},
        )


def without_adapters(module: nn.Module) -> nn.Module:
    """Return a module with the layers that adapters stand in front of in their old places; its weights are the same."""
    if not any(hasattr(child, "base_layer") for child in module.children()):
        return module
    bare = copy.copy(module)
    bare._modules = {name: getattr(child, "base_layer", child) for name, child in module.named_children()}
    return bare


def divided_adapter(divide: Callable[[Tensor], Sequence[Tensor]], base: nn.Module, t: Tensor) -> Sequence[Tensor]:
    """Divide the second matrix of an adapter (outputs, rank) as the weight it is added to.

    Args:
        divide: divides the weight.
        base: the layer with the weight; Conv1D stores its outputs as columns.
        t: tensor of the adapter's shape.
    """
    return divide(t.T if isinstance(base, Conv1D) else t)


class Streamer:
    """Tells each new token; transformers streams the prompt first, which is left out."""

    def __init__(self, tell: Callable[[Tensor], None]):
        self.tell, self.begun = tell, False

    def put(self, tokens: Tensor) -> None:
        if self.begun:
            self.tell(tokens)
        self.begun = True

    def end(self) -> None: ...
