"""Checkpoints of the paper's code. Its model is written here again, from the description, with its names."""

import math
import pickle

import pytest
import torch
from torch import nn

from boosted_attention import load_original

D, HEADS, LAYERS, VOCAB, LENGTH = 32, 4, 2, 53, 24


def attend(q, k, v):
    def heads(t):
        return t.view(*t.shape[:2], HEADS, -1).transpose(1, 2)

    scores = heads(q) @ heads(k).transpose(-2, -1) / math.sqrt(D // HEADS)
    scores = scores.masked_fill(torch.ones(q.shape[1], q.shape[1]).triu(1).bool(), -math.inf)
    weights = scores.softmax(-1)
    return weights, weights @ heads(v)


def joined(t):
    return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], D)


class OriginalAttention(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        if kind == "boosted":
            self.W_qkvs = nn.ModuleList([nn.Linear(D, 3 * D) for _ in range(2)])
            self.gates = nn.ModuleList([nn.Sequential(nn.Linear(2 * D, D), nn.Sigmoid())])
        else:
            self.W_qkv = nn.Linear(D, 3 * D)
        self.W_out = nn.Linear(D, D)

    def forward(self, x):
        if self.kind != "boosted":
            weights, y = attend(*self.W_qkv(x).chunk(3, -1))
            if self.kind == "twicing":
                v = self.W_qkv(x).chunk(3, -1)[2].view(*x.shape[:2], HEADS, -1).transpose(1, 2)
                y = y + weights @ (v - y)
            return self.W_out(joined(y))
        estimate = joined(attend(*self.W_qkvs[0](x).chunk(3, -1))[1])
        correction = joined(attend(*self.W_qkvs[1](x - estimate).chunk(3, -1))[1])
        gate = self.gates[0](torch.cat([estimate, correction], -1))
        return self.W_out(estimate + gate * correction)


class OriginalBlock(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.attn = OriginalAttention(kind)
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.ffn = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Dropout(0), nn.Linear(4 * D, D), nn.Dropout(0))


class OriginalModel(nn.Module):
    def __init__(self, kind, norm="pre"):
        super().__init__()
        self.norm = norm
        self.embed, self.pos_embed = nn.Embedding(VOCAB, D), nn.Embedding(LENGTH, D)
        self.layers = nn.ModuleList([OriginalBlock(kind) for _ in range(LAYERS)])
        self.ln_f, self.head = nn.LayerNorm(D), nn.Linear(D, VOCAB, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        h = self.embed(ids) + self.pos_embed.weight[: ids.shape[1]]
        for block in self.layers:
            if self.norm == "pre":
                h = h + block.attn(block.n1(h))
                h = h + block.ffn(block.n2(h))
            else:
                h = block.n1(h + block.attn(h))
                h = block.n2(h + block.ffn(h))
        return self.head(self.ln_f(h))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("kind", ["standard", "boosted", "twicing"])
def test_the_same_logits(kind, norm, tmp_path):
    original = OriginalModel(kind, norm).eval()
    ids = torch.randint(VOCAB, (3, LENGTH))
    torch.save({"model_state_dict": original.state_dict(), "epoch": 3}, tmp_path / "best.pt")
    told = {"attention": "twicing"} if kind == "twicing" else {}
    for source in (tmp_path / "best.pt", str(tmp_path / "best.pt"), original.state_dict()):
        model = load_original(source, n_heads=HEADS, norm=norm, **told)
        assert model.config.attention == kind
        torch.testing.assert_close(model(ids), original(ids), rtol=0, atol=1e-5)


def test_what_is_not_such_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a file"):
        load_original(tmp_path / "none.pt")
    (tmp_path / "code.pt").write_bytes(pickle.dumps(print, protocol=2))
    with pytest.raises(ValueError, match="holds more than weights"):
        load_original(tmp_path / "code.pt")
    (tmp_path / "text.pt").write_text("only text")
    with pytest.raises(ValueError, match="holds more than weights, or is damaged"):
        load_original(tmp_path / "text.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    for source in (tmp_path / "list.pt", {"model_state_dict": 3}):
        with pytest.raises(ValueError, match="is not a dict of tensors"):
            load_original(source)
    with pytest.raises(ValueError, match=r"no 'embed\.weight'"):
        load_original({"model_state_dict": {"wte.weight": torch.zeros(2, 2)}})
    state = OriginalModel("boosted").state_dict()
    with pytest.raises(ValueError, match=r"'twicing' attention"):
        load_original(state, attention="twicing")
    with pytest.raises(ValueError, match=r"head\.weight differs"):
        load_original({**state, "head.weight": torch.zeros(VOCAB, D)})
