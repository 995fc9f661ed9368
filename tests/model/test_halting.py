"""Halting over repeats: adaptive computation time and PonderNet, beside plain loops and finite differences."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from boosted_attention import KVCache, LanguageModelConfig, capture
from boosted_attention.model.loss import IGNORED
from boosted_attention.model.pondernet import divergence, log_halting
from boosted_attention.train.memory import estimate_memory
from tests.model.depth import SMALL, Weights, assert_causal_and_cached, assert_like_oracle, counted_flops, small, tokens

MOST = 4
KINDS = ("act", "ponder")


def halting(kind: str, attention: str = "standard", spread: float = 0.5, **options):
    """A model whose tokens halt at different steps."""
    model = small(attention, halting=kind, n_repeats=MOST, **options)
    with torch.no_grad():
        model.repeats.unit.weight.normal_(std=spread)
        model.repeats.unit.bias.fill_(0.2)
    return model


def thought(model, ids):
    return model.think(ids, None)


def act_by_hand(w, ids):
    """States of all tokens step by step, each token's weights one by one: (mean state, N + R, weights)."""
    h = w.embedded(ids)
    states, stopped_at = [], [None] * len(ids)
    sums, weights, cost = [0.0] * len(ids), [[] for _ in ids], [0.0] * len(ids)
    for n in range(1, MOST + 1):
        for i in range(2):
            new = w.block(i, h)
            h = torch.stack([h[t] if stopped_at[t] is not None else new[t] for t in range(len(ids))])
        states.append(h)
        for t in range(len(ids)):
            if stopped_at[t] is not None:
                continue
            p = torch.sigmoid(h[t] @ w["repeats.unit.weight"] + w["repeats.unit.bias"][0])
            if n == MOST or sums[t] + p >= 0.99:
                weights[t].append(1 - sums[t])
                stopped_at[t], cost[t] = n, n + (1 - sums[t])
            else:
                weights[t].append(p)
                sums[t] = sums[t] + p
    mean = [sum(a * states[n][t] for n, a in enumerate(weights[t])) for t in range(len(ids))]
    return torch.stack(mean), torch.stack([torch.as_tensor(c) for c in cost]), stopped_at


def test_act_equals_plain_loops_in_outputs_and_gradients():
    model, ids = halting("act"), tokens()
    assert_like_oracle(model, lambda w, row: w.logits(act_by_hand(w, row)[0]), ids)
    w = Weights(model.named_parameters())
    steps = set()
    for row, cost in zip(ids, thought(model, ids).cost, strict=True):
        _, expected, stopped_at = act_by_hand(w, row)
        torch.testing.assert_close(cost, expected, rtol=0, atol=1e-12)
        steps |= set(stopped_at)
    assert steps == {2, 3, 4}  # the test is of tokens that differ


def test_ponder_equals_plain_loops_in_outputs_and_gradients():
    def oracle(w, ids):
        h, left, best, state = w.embedded(ids), torch.ones(len(ids)), None, None
        for n in range(1, MOST + 1):
            for i in range(2):
                h = w.block(i, h)
            stop = torch.sigmoid(h @ w["repeats.unit.weight"] + w["repeats.unit.bias"]) if n < MOST else 1.0
            p, left = left * stop, left * (1 - stop)
            better = torch.ones(len(ids), dtype=torch.bool) if best is None else p > best
            best = p if best is None else torch.where(better, p, best)
            state = h if state is None else torch.where(better[:, None], h, state)
        return w.logits(state)

    assert_like_oracle(halting("ponder"), oracle, tokens())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("attention", "options"), [("standard", {"positions": "rotary"}), ("boosted", {"value_residual": True})]
)
def test_causal_and_exact_with_a_cache(kind, attention, options):
    assert_causal_and_cached(halting(kind, attention, **options))


def test_weights_sum_to_one():
    ids = tokens()
    model = halting("ponder")
    torch.testing.assert_close(thought(model, ids).expected.weights.sum(0), torch.ones(2, 12, dtype=torch.float64))
    model = halting("act")
    for block in model.layers:  # states that are all alike have a mean that is one of them only if weights sum to one
        block.forward = lambda h, **_: h
    h = model.embed(ids) + model.positions(torch.arange(12))
    torch.testing.assert_close(thought(model, ids).state, h, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("bias", "steps"), [(60.0, 1), (-60.0, MOST)])
def test_tokens_that_all_stop_at_one_step_are_plain_repeats(bias, steps):
    """The first step has a weight of one; at the last nothing was given away before."""
    ids = tokens()
    plain = small(n_repeats=steps)
    for kind in KINDS:
        model = halting(kind)
        with torch.no_grad():
            model.repeats.unit.weight.zero_()
            model.repeats.unit.bias.fill_(bias)
        plain.load_state_dict({n: t for n, t in model.state_dict().items() if not n.startswith("repeats.")})
        torch.testing.assert_close(model(ids), plain(ids), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_halting_adds_one_vector_and_one_number_and_shares_every_start(kind):
    config = LanguageModelConfig(**SMALL, n_repeats=3, halting=kind)
    plain = LanguageModelConfig(**SMALL, n_repeats=3)
    ours, theirs = config.build(seed=3).state_dict(), plain.build(seed=3).state_dict()
    assert ours.keys() - theirs.keys() == {"repeats.unit.weight", "repeats.unit.bias"}
    assert all(torch.equal(ours[name], t) for name, t in theirs.items())
    assert not ours["repeats.unit.weight"].any()
    assert float(ours["repeats.unit.bias"]) == pytest.approx(1.0 if kind == "act" else math.log(0.2 / 0.8))
    assert config.flops() == plain.flops() == counted_flops(config)


def finite_difference(f, parameter, index, step=1e-6):
    """The derivative of f() by one number of a parameter."""
    flat = parameter.data.view(-1)
    value, at = flat[index].item(), []
    for sign in (1, -1):
        flat[index] = value + sign * step
        at.append(f().item())
    flat[index] = value
    return (at[0] - at[1]) / (2 * step)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_of_the_cost_against_finite_differences(kind):
    """Away from the places where a token changes its number of steps."""
    model, ids = halting(kind), tokens()

    def cost():
        return thought(model, ids).cost.sum()

    names = ["repeats.unit.weight", "repeats.unit.bias", "layers.0.ffn.up.weight", "embed.weight"]
    parameters = [dict(model.named_parameters())[name] for name in names]
    gradients = torch.autograd.grad(cost(), parameters)
    for name, p, gradient in zip(names, parameters, gradients, strict=True):
        for index in (0, p.numel() // 2, int(gradient.abs().argmax())):
            found = gradient.view(-1)[index].item()
            assert found == pytest.approx(finite_difference(cost, p, index), rel=1e-5, abs=1e-7), name
        assert gradient.any()


def test_the_training_loss_of_act_adds_the_ponder_cost():
    model, ids, targets = halting("act", ponder_cost=0.3), tokens(), tokens()
    targets[0, 3:7] = IGNORED
    entropy = model.loss(ids, targets)
    torch.testing.assert_close(model.loss(ids, targets, reduction="none").sum() / 20, entropy)
    model.train()
    cost = thought(model, ids).cost[targets != IGNORED].mean()
    torch.testing.assert_close(model.loss(ids, targets), entropy + 0.3 * cost)
    torch.testing.assert_close(model.loss(ids, targets, reduction="sum"), 20 * model.loss(ids, targets))
    torch.testing.assert_close(model.loss(ids, targets, reduction="none").sum() / 20, entropy)


def test_the_training_loss_of_ponder_is_the_expected_loss_and_the_divergence():
    model, ids, targets = halting("ponder", ponder_cost=0.3, ponder_prior=0.4).train(), tokens(), tokens()
    targets[0, 3:7] = IGNORED
    parameters = list(model.parameters())

    def by_hand():
        found = thought(model, ids)
        total = 0.0
        for b in range(2):
            for t in range(12):
                if targets[b, t] == IGNORED:
                    continue
                for n in range(MOST):
                    log_q = model.norm(found.expected.states[n, b, t]) @ model.embed.weight.T
                    p = found.expected.weights[n, b, t]
                    g = 0.6**n / sum(0.6**j for j in range(MOST))
                    total = total - p * log_q.log_softmax(-1)[targets[b, t]] + 0.3 * p * (p / g).log()
        return total / 20

    ours, theirs = model.loss(ids, targets), by_hand()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    for a, b in zip(*(torch.autograd.grad(y, parameters) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_halting_probabilities_far_away_have_finite_gradients():
    logits = torch.tensor([[800.0, -800.0, 0.0], [5.0, -800.0, 800.0]], dtype=torch.float64, requires_grad=True)
    log_p = log_halting(logits)
    cost = divergence(log_p, 0.2)
    assert torch.autograd.grad(cost.sum(), logits)[0].isfinite().all()
    torch.testing.assert_close(log_p.exp().sum(0), torch.ones(3, dtype=torch.float64))
    same = divergence(torch.tensor([0.2, 0.16, 0.128]).log().log_softmax(0), 0.2)
    assert float(same.abs()) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_moves_in_training(kind):
    model = LanguageModelConfig(**SMALL, attention="boosted", n_repeats=3, halting=kind, value_residual=True).build(3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(10):
        ids = tokens()
        model.loss(ids, ids.roll(-1, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all((p - before[name]).abs().max() > 1e-4 for name, p in model.named_parameters())


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of dynamo's, which hides it only where it is no error
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_loss_is_the_same(kind):
    model, ids = small(halting=kind, n_layers=1, n_repeats=2).train(), tokens()
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model.loss, backend="eager")(ids, ids), model.loss(ids, ids))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"halting": "act"}, "halting='act' needs n_repeats=2 or more, got n_repeats=1"),
        ({"halting": "ponder"}, "halting='ponder' needs n_repeats=2 or more, got n_repeats=1"),
        ({"halting": "acct", "n_repeats": 2}, "halting='acct' .*did you mean 'act'"),
        ({"ponder_cost": -1}, "ponder_cost=-1 must be a number of at least 0"),
        ({"ponder_prior": 1.0}, r"ponder_prior=1.0 must lie between 0 and 1"),
    ],
)
def test_refused_in_one_line(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        LanguageModelConfig(**{**SMALL, **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ponder_cost": 0.3}, r"ponder_cost=0.3 has no use where no token halts"),
        ({"ponder_prior": 0.9, "halting": "act", "n_repeats": 2}, r"ponder_prior=0.9 has no use with halting='act'"),
    ],
)
def test_options_of_halting_that_concern_nothing_can_be_refused(options, message):
    """On demand, since a configuration that lost what halted is still one."""
    with pytest.raises(ValueError, match=message):
        LanguageModelConfig(**{**SMALL, **options}).require_ponder_options_used()


@pytest.mark.parametrize(
    "options",
    [
        {"halting": "act", "n_repeats": 2, "ponder_cost": 0.3},
        {"halting": "ponder", "n_repeats": 2, "ponder_prior": 0.9},
        {"attention": "boosted-shared", "attention_options": {"halting": True}, "ponder_cost": 0.3},
    ],
)
def test_options_of_halting_are_taken_as_long_as_something_halts(options):
    config = LanguageModelConfig(**{**SMALL, **options})
    config.require_ponder_options_used()
    with pytest.raises(ValueError, match="has no use"):
        replace(config, halting="none", attention_options={}).require_ponder_options_used()


# Halting inside layers


def halting_layers(attention: str = "boosted-shared", **options):
    model = small(attention, attention_options={"halting": True, "n_rounds": 3}, **options)
    with torch.no_grad():
        for block in model.layers:
            block.attention.halting.weight.normal_(std=4.0)
            block.attention.halting.bias.fill_(0.3)
    return model


@pytest.mark.parametrize("attention", ["boosted-shared", "boosted-input"])
def test_models_whose_layers_halt_are_causal_and_exact_with_a_cache(attention):
    """In traces, where all tokens stay in the loop, bit for bit."""
    model = halting_layers(attention, positions="rotary", n_repeats=2)
    ids = tokens()
    with capture(model) as traces:
        assert_causal_and_cached(model)
        model(ids)
    assert all(1 < trace.mean_rounds < 3 for trace in traces.values())
    full, cache = model(ids), KVCache()
    pieces = [model(piece, cache=cache) for piece in ids.split([5, 1, 1, 4, 1], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), full, rtol=0, atol=1e-10)
    assert torch.equal(model.generate(ids[:, :4], 14), model.generate(ids[:, :4], 14, use_cache=False))


def test_the_training_loss_adds_the_ponder_cost_of_every_layer_and_repeat():
    model, ids = halting_layers(n_repeats=2, ponder_cost=0.3), tokens()
    entropy = model.loss(ids, ids)
    cost = thought(model, ids).cost
    assert bool((cost > 4).all())  # two layers, twice
    assert bool((cost <= 4 * (3 + 1)).all())
    model.train()
    torch.testing.assert_close(model.loss(ids, ids), entropy + 0.3 * cost.mean())
    gradients = torch.autograd.grad(model.loss(ids, ids), list(model.parameters()))
    for block in model.layers:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    again = torch.autograd.grad(model.loss(ids, ids), list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(gradients, again, strict=True))


def test_what_layers_share_reaches_them_through_hooks_that_copy():
    """As FSDP's do with the arguments of every block."""
    model, ids = halting_layers(value_residual=True).train(), tokens()
    expected = model.loss(ids, ids)
    for block in model.layers:
        block.register_forward_pre_hook(
            lambda _, args, kwargs: tree_map(lambda leaf: leaf, (args, kwargs)), with_kwargs=True
        )
    assert torch.equal(model.loss(ids, ids), expected)


def test_layers_that_halt_count_as_if_they_took_every_round():
    options = {"attention": "boosted-shared", "attention_options": {"halting": True, "n_rounds": 3}}
    config = LanguageModelConfig(**SMALL, **options)
    assert config.flops() == counted_flops(config)
    assert estimate_memory(config).training > 0
    with pytest.raises(
        ValueError, match=r"halting='act' with attention_options halting=True: tokens stop over repeats"
    ):
        LanguageModelConfig(**SMALL, **options, halting="act", n_repeats=2)
