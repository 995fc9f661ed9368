"""Serving boosted models with transformers' own tools: in continuous batches, and as exported programs."""

import pytest
import torch
import transformers
from torch import nn

from boosted_attention import boost
from tests.pretrained.families import disturb, tiny, tokens
from tests.pretrained.test_boost import logits

PROMPTS = [list(range(3, 21)), [3, 4, 5], [7, 8, 9, 10, 11, 12, 13, 14, 15]]
SHARED = {"kv": "shared", "rank": 2}
N_NEW = 10


def in_batches(model) -> list[tuple[list[int], torch.Tensor]]:
    """Continue the prompts in continuous batches: tokens and their log-probabilities.

    Pages are small, and the first prompt is read in two parts, the second of two tokens.
    """
    settings = transformers.ContinuousBatchingConfig(
        num_blocks=8, page_size=16, max_batch_tokens=16, return_logprobs=True
    )
    greedy = transformers.GenerationConfig(max_new_tokens=N_NEW, eos_token_id=None, do_sample=False)
    made = model.generate_batch(PROMPTS, greedy, settings)
    return [(one.generated_tokens, torch.tensor(one.logprobs)) for one in made.values()]


@torch.no_grad()
def one_by_one(model) -> list[tuple[list[int], torch.Tensor]]:
    """Continue each prompt alone, likewise."""
    found = []
    for prompt in PROMPTS:
        whole = model.generate(torch.tensor([prompt]), max_new_tokens=N_NEW, do_sample=False)
        new = whole[0, len(prompt) :]
        scores = logits(model, whole)[0, len(prompt) - 1 : -1].log_softmax(dim=-1)
        found.append((new.tolist(), scores.gather(1, new[:, None])[:, 0]))
    return found


def require_same(made, expected) -> None:
    for (tokens_made, made_scores), (tokens_expected, expected_scores) in zip(made, expected, strict=True):
        assert tokens_made == tokens_expected
        torch.testing.assert_close(made_scores, expected_scores, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("family", "kernel"), [("llama", "sdpa"), ("mistral", "sdpa"), ("gpt2", "sdpa"), ("mistral", "eager")]
)
def test_continuous_batches_are_exact_with_shared_keys_and_values(family, kernel, full):
    """Mistral has a sliding window, whose pages are overwritten while the window still shows what they held."""
    if (family, kernel) not in (("llama", "sdpa"), ("mistral", "sdpa")) and not full:
        pytest.skip("in make test-full")
    base = tiny(family, kernel=kernel)
    plain = in_batches(base)
    require_same(plain, one_by_one(base))
    model = boost(base, **SHARED)
    boost(model, kv="shared", gate="headwise", name="more")
    disturb(model)
    made = in_batches(model)
    require_same(made, one_by_one(model))
    assert made[0][0] != plain[0][0]


def test_continuous_batches_are_refused_where_corrections_have_keys_of_their_own():
    reason = r"continuous batching .* lays pages out for .* the model's own attention.* boost with kv='shared'"
    for options in ({}, {"rank": 2}):
        model = boost(tiny("llama"), **options)
        with pytest.raises(ValueError, match=reason):
            in_batches(model)
        boost(model, **SHARED, name="more")
        with pytest.raises(ValueError, match=reason):
            in_batches(model)


@pytest.mark.filterwarnings("ignore")
def test_exported_programs_are_the_model_or_are_refused_with_the_reason():
    """Without a cache always; with a cache inside the program where corrections need none of their own."""
    from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

    class Plain(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids, use_cache=False).logits

    def with_cache(model):
        model.generation_config.use_cache, model.generation_config.cache_implementation = True, "static"
        return TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=16)

    ids = tokens(1, 6)
    first = {"input_ids": ids[:, :1], "cache_position": torch.tensor([0])}
    full, shared = boost(tiny("llama")), boost(tiny("llama"), kv="shared", rank=2)
    for model in (full, shared):
        disturb(model)
        assert torch.equal(torch.export.export(Plain(model), (ids,), strict=False).module()(ids), logits(model, ids))
    with pytest.raises(ValueError, match="boost with kv='shared', whose corrections need none"):
        with_cache(full).export(**first, strict=False)
    program = with_cache(shared).export(**first, strict=False).module()
    made = [program(input_ids=ids[:, t : t + 1], cache_position=torch.tensor([t])) for t in range(6)]
    torch.testing.assert_close(torch.cat(made, dim=1), logits(shared, ids), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [SHARED, {}], ids=["shared", "own"])
def test_programs_for_executorch_are_the_model_or_are_refused_with_the_reason(options, full):
    """torch traces the model's code here, and quotes the reason in an error of its own."""
    from transformers.integrations.executorch import convert_and_export_with_cache

    if options == SHARED and not full:
        pytest.skip("in make test-full")
    model, ids = boost(tiny("llama"), **options), tokens(1, 6)
    disturb(model)
    model.generation_config.update(
        use_cache=True,
        cache_implementation="static",
        max_length=16,
        cache_config={"batch_size": 1, "max_cache_len": 16},
    )
    first = {"example_input_ids": ids[:, :1], "example_cache_position": torch.tensor([0])}
    if options != SHARED:
        with pytest.raises(Exception, match="boost with kv='shared', whose corrections need none"):
            convert_and_export_with_cache(model, **first)
        return
    program = convert_and_export_with_cache(model, **first).module()
    made = [program(input_ids=ids[:, t : t + 1], cache_position=torch.tensor([t])) for t in range(6)]
    torch.testing.assert_close(torch.cat(made, dim=1), logits(model, ids), rtol=1e-4, atol=1e-4)
