"""PonderNet on the retrieval task: loss against finite differences, seeds apart, answers by the likeliest step."""

import pytest
import torch

from boosted_attention.retrieval.pondering import PonderingAttention, score_pondering
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining, train

TASK = RetrievalTask(d=8, n_patterns=3, sigma=0.4)


def build(seed: int = 0) -> PonderingAttention:
    torch.manual_seed(seed)
    model = PonderingAttention(TASK.d, n_steps=3, prior=0.3, beta=0.1).double()
    torch.nn.init.normal_(model.unit.weight)
    return model


def sample(n: int = 5):
    x, index = TASK.sample(n, torch.Generator().manual_seed(1))
    return x.double(), TASK.patterns()[index].double()


def test_the_loss_is_the_formula_written_out():
    model, (x, target) = build(), sample()
    memory = TASK.patterns()[None].double()
    h, states = torch.zeros_like(x), []
    for _ in range(3):
        h = model.step((x + h)[None], memory=memory)[0]
        states.append(h)
    lambdas = [torch.sigmoid(model.unit(state)) for state in states[:-1]]
    p = torch.stack([lambdas[0], (1 - lambdas[0]) * lambdas[1], (1 - lambdas[0]) * (1 - lambdas[1])])
    prior = torch.tensor([0.3, 0.3 * 0.7, 0.3 * 0.7**2], dtype=torch.float64)
    prior = prior / prior.sum()
    expected = sum(p[n] * (states[n] - target).square().sum(dim=-1) for n in range(3))
    cost = sum(p[n] * (p[n] / prior[n]).log() for n in range(3))
    found = model(x[None], memory)
    assert torch.allclose(found.log_p.exp().sum(dim=0), torch.ones(5, dtype=torch.float64))
    assert torch.allclose(found.loss(target), (expected + 0.1 * cost).mean(), atol=1e-12)


def test_its_gradient_is_that_of_finite_differences():
    model, (x, target) = build(), sample()
    memory = TASK.patterns()[None].double()
    names = list(dict(model.named_parameters()))

    def loss(*values):
        weights = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, weights, (x[None],), {"memory": memory}).loss(target)

    assert torch.autograd.gradcheck(loss, [p.detach().requires_grad_() for p in model.parameters()])


def test_seeds_in_company_are_those_alone():
    def make(seed):
        return PonderingAttention(TASK.d, n_steps=3, prior=0.3, beta=0.1)

    training = RetrievalTraining(steps=4, batch=16)
    together = train(make, TASK, training, [3, 4])
    alone = train(make, TASK, training, [3, 4], together=False)
    for a, b in zip(together, alone, strict=True):
        for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(("bias", "steps"), [(30.0, 1.0), (-30.0, 3.0)])
def test_the_likeliest_step_answers(bias, steps):
    model = build().float()
    with torch.no_grad():
        model.unit.weight.zero_()
        model.unit.bias.fill_(bias)
    x = sample()[0].float()
    answers, taken = model.likeliest(x, TASK.patterns()[None])
    assert taken.double().mean() == steps
    with torch.no_grad():
        assert torch.equal(answers, model(x[None], TASK.patterns()[None]).answers[int(steps) - 1])
    assert score_pondering(model, TASK, 60).steps == steps
