"""Fine-tuning with this project's trainer: a pretrained model as the trainer, evaluation and analysis know models.

A run keeps what was trained, not the model it started from: checkpoints hold the trained parameters alone, and loading
one needs the base again, whose weights are known by their hash.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from boosted_attention.files import file_sha256
from boosted_attention.model.loss import IGNORED, chunked_loss, token_losses
from boosted_attention.pretrained.conversion import boost, freeze
from boosted_attention.pretrained.families import decoder_layers
from boosted_attention.pretrained.layer import CorrectedAttention, corrected_layers
from boosted_attention.validation import InputError, is_count, require, require_choice, shortened

TRAINS = ("correction", "all", "lora")
LENGTH = 512  # tokens per row, where nothing else is said


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """A pretrained model, what is added to it, and what of it is trained."""

    base: str
    """Folder of the model, with config.json, *.safetensors and tokenizer.json."""
    vocab_size: int = 0
    """Of the tokenizer; set when the data are prepared."""
    boost: Mapping[str, Any] | None = None
    """Options of boost(); None takes the model as it is."""
    train: str = "correction"
    """correction (the correction rounds alone), all, or lora (adapters on every projection of the attention)."""
    lora_rank: int = 8
    """Of the adapters."""
    max_len: int = 0
    """Tokens per row; 0 takes 512, or as many as the model has positions."""
    weights: str = ""
    """Hash of the base's weight files; filled in."""
    kind: str = field(default="pretrained", init=False)

    def __post_init__(self) -> None:
        require_choice("--train", self.train, TRAINS)
        require(is_count(self.lora_rank), f"--lora-rank {self.lora_rank} must be at least 1")
        require(self.max_len >= 0, f"--max-len {self.max_len} must not be negative")
        found = weights_hash(Path(self.base))
        require(
            self.weights in ("", found),
            f"{self.base} holds other weights now ({found[:12]}) than when the run began ({self.weights[:12]})",
        )
        object.__setattr__(self, "weights", found)
        longest = getattr(self.hf_config, "max_position_embeddings", None)
        if self.max_len == 0:
            object.__setattr__(self, "max_len", min(LENGTH, longest or LENGTH))
        require(
            longest is None or self.max_len <= longest,
            f"--max-len {self.max_len} is more than the {longest} positions of {self.base}",
        )

    @property
    def attention(self) -> str:
        """What to call it."""
        boosted = self.boost is not None or getattr(self.hf_config, "boosting", None)
        return {"correction": "boosted", "lora": "lora"}.get(self.train, "boosted, all" if boosted else "full")

    @cached_property
    def hf_config(self) -> Any:
        return read_config(Path(self.base))

    def build(self) -> FinetunedModel:
        return FinetunedModel(self)

    @cached_property
    def _meta(self) -> FinetunedModel:
        with torch.device("meta"):
            return FinetunedModel(self, empty=True)

    def num_params(self, *, trained: bool = False) -> int:
        """All parameters, or the trained ones."""
        return sum(p.numel() for p in self._meta.parameters() if p.requires_grad or not trained)

    def flops(self, n_keys: int | None = None) -> int:
        """Of a token's forward pass: the matrices of linear layers, and scores and sums over max_len keys."""
        keys = self.max_len if n_keys is None else n_keys
        matrices: list[Any] = [m.weight for m in self._meta.modules() if is_matrix(m)]
        config = self.hf_config.get_text_config()
        heads = config.num_attention_heads
        width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
        maps = sum(
            module.n_rounds if isinstance(module, CorrectedAttention) else 1
            for module in attention_modules(self._meta.model)
        )
        return sum(2 * w.numel() for w in matrices) + maps * 4 * width * keys

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "boost": None if self.boost is None else dict(self.boost)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FinetuneConfig:
        return cls(**{key: value for key, value in values.items() if key != "kind"})


def is_matrix(module: nn.Module) -> bool:
    """A layer that multiplies by a matrix; embeddings look theirs up."""
    return not isinstance(module, nn.Embedding) and getattr(getattr(module, "weight", None), "ndim", 0) == 2


def attention_modules(model: nn.Module) -> list[nn.Module]:
    from boosted_attention.pretrained.families import find_attention

    return [getattr(layer, name) for layer, name in find_attention(model)]


class FinetunedModel(nn.Module):
    """A causal model of transformers with the methods of ``LanguageModel``.

    ``state_dict`` holds the trained parameters alone.
    """

    def __init__(self, config: FinetuneConfig, empty: bool = False):
        super().__init__()
        self.config = config
        self._linear_head: bool | None = None
        base = empty_model(config) if empty else load(config.base, dtype=torch.float32)  # half precision is autocast
        self.model = prepare(base, config)

    def blocks(self) -> list[nn.Module]:
        """The decoder layers, as parallel training divides the model."""
        return decoder_layers(self.model)

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids, use_cache=False).logits

    def hidden(self, ids: Tensor) -> Tensor:
        """What the vocabulary projection sees."""
        inner = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        return inner.base_model(ids, use_cache=False).last_hidden_state

    def loss(
        self, ids: Tensor, targets: Tensor, attention_mask: Tensor | None = None, *, reduction: str = "mean"
    ) -> Tensor:
        """As ``LanguageModel.loss``: in chunks, without ever holding the logits."""
        require_choice("reduction", reduction, ("mean", "sum", "none"))
        assert attention_mask is None, "rows of running text have no padding"
        if not self.linear_head(ids[:1, :2]):
            return nn.functional.cross_entropy(
                self(ids).float().transpose(1, 2), targets, ignore_index=IGNORED, reduction=reduction
            )
        projection = self.model.get_output_embeddings().weight
        hidden = self.hidden(ids)
        if reduction == "none":
            return token_losses(hidden, projection, targets)
        return chunked_loss(hidden, projection, targets, reduction)

    @torch.no_grad()
    def linear_head(self, ids: Tensor) -> bool:
        """Whether logits are the last hidden states times a matrix: some models add a bias, or scale or cap them."""
        head = self.model.get_output_embeddings()
        capped = getattr(self.config.hf_config.get_text_config(), "final_logit_softcapping", None)
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
        """The model of transformers itself, adapters merged into it."""
        return self.model.merge_and_unload() if hasattr(self.model, "merge_and_unload") else self.model

    def trained(self) -> dict[str, nn.Parameter]:
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
        """As ``LanguageModel.generate``, by transformers."""
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


class Streamer:
    """Tells each new token; transformers begins with the prompt."""

    def __init__(self, tell: Callable[[Tensor], None]):
        self.tell, self.begun = tell, False

    def put(self, tokens: Tensor) -> None:
        if self.begun:
            self.tell(tokens)
        self.begun = True

    def end(self) -> None: ...


def prepare(model: PreTrainedModel, config: FinetuneConfig) -> Any:
    """Add what the configuration says, and freeze the rest."""
    if config.boost is not None:
        boost(model, **config.boost)
    if config.train == "lora":
        return with_lora(model, config.lora_rank)
    if config.train == "all":
        freeze(model, None)
        return model
    corrected = corrected_layers(model).values()
    require(bool(corrected), f"--train correction: {config.base} is not boosted; boosted-attention boost makes one")
    freeze(model, [m for layer in corrected for m in (*list(layer.rounds)[1:], *layer.gates)])
    return model


def with_lora(model: PreTrainedModel, rank: int) -> Any:
    """Adapters on every projection of the attention. Reference for their scale: Kalajdzievski, "rsLoRA", 2023."""
    try:
        import peft
    except ImportError:
        raise InputError("--train lora needs peft (pip install 'boosted-attention[hf]')") from None
    from boosted_attention.pretrained.families import find_parts

    names = set()
    for module in attention_modules(model):
        parts = find_parts(module)
        assert parts is not None
        names |= {name for name, m in module.named_modules() if m in parts.linears}
    # 2 at rank 8, as usual, and falling with the root of the rank: one learning rate then serves all ranks
    scale: Any = 2 * math.sqrt(8)
    options = peft.LoraConfig(r=rank, use_rslora=True, lora_alpha=scale, target_modules=sorted(names), lora_dropout=0.0)
    return peft.get_peft_model(model, options)


def lora_rank_for(parameters: int, base: str) -> int:
    """The rank whose adapters have about as many parameters."""
    one = FinetuneConfig(base=base, train="lora", lora_rank=1).num_params(trained=True)
    return max(1, round(parameters / one))


def require_model_folder(folder: Path) -> None:
    """Raise InputError unless the folder holds a model that can be loaded without a pickle."""
    require(folder.is_dir(), f"{folder} is not a folder of a model")
    require((folder / "config.json").is_file(), f"{folder} holds no model: it has no config.json")
    if not list(folder.glob("*.safetensors")):
        pickles = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
        what = f"only {pickles[0].name}, a pickle, which is never loaded" if pickles else "no weights"
        raise InputError(f"{folder} has {what}; it needs *.safetensors")


def weights_hash(folder: Path) -> str:
    """Of the files, so that a model is known without being loaded."""
    require_model_folder(folder)
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        stat = path.stat()
        digest.update(f"{path.name} {known_sha256(path, stat.st_size, stat.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


@lru_cache(maxsize=64)
def known_sha256(path: Path, size: int, modified: int) -> str:
    """Large files are read once, unless they change."""
    return file_sha256(path)


def read_config(folder: Path) -> Any:
    require_model_folder(folder)
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # whatever a configuration's own checks raise
        raise InputError(f"{folder}/config.json is no model that transformers knows: {first_line(error)}") from None


def load(folder: str | Path, dtype: torch.dtype | str = "auto") -> PreTrainedModel:
    """A causal model from a folder, in the files' dtype or another: safetensors only, no remote code, no network."""
    folder = Path(folder)
    read_config(folder)
    try:
        with quietly():
            model, info = AutoModelForCausalLM.from_pretrained(  # type: ignore[reportGeneralTypeIssues]
                folder, dtype=dtype, local_files_only=True, use_safetensors=True, output_loading_info=True
            )
    except Exception as error:  # whatever a model's own code raises at what the files say
        raise InputError(f"{folder} cannot be loaded as a causal language model: {first_line(error)}") from None
    missing = sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])})
    require(not missing, f"{folder} does not hold the weights of its config.json: {shortened(missing)}")
    return model


def empty_model(config: FinetuneConfig) -> PreTrainedModel:
    """The model without its weights."""
    try:
        return AutoModelForCausalLM.from_config(config.hf_config)
    except Exception as error:
        raise InputError(f"{config.base} is not a causal language model: {first_line(error)}") from None


def copy_tokenizer(folder: Path, out: Path) -> None:
    """Tokenizer, templates and generation settings of a model; not what belongs to its weights."""
    for path in sorted(folder.iterdir()):
        known = path.suffix in (".json", ".txt", ".model", ".jinja")
        weights = path.name.endswith(".index.json") or path.name.startswith("adapter_")
        if path.is_file() and known and not weights and not (out / path.name).exists():
            shutil.copy2(path, out / path.name)


@contextmanager
def quietly() -> Iterator[None]:
    """Without transformers' progress bars, which a command's one line would be lost behind."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
