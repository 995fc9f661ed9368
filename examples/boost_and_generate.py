"""Boost a pretrained model, train its correction for a few steps, generate, and keep the correction as a file.

    python examples/boost_and_generate.py

The model is a tiny Llama made on the spot; any decoder of transformers takes its place.
"""

import tempfile
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from boosted_attention.pretrained import boost, load_correction, save_correction

torch.manual_seed(0)
size: dict[str, Any] = {
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
base = LlamaForCausalLM(LlamaConfig(**size))
ids = torch.randint(100, (4, 16))
before = base(ids).logits.detach()

start = {name: t.clone() for name, t in base.state_dict().items()}
model: Any = boost(base, n_rounds=2)  # in place; everything but the correction is frozen
assert torch.equal(model(ids).logits, before)  # no effect until it is trained

optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
for _ in range(5):
    loss = model(ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.4f}")
print("generated", model.generate(ids[:1, :4], max_new_tokens=8, do_sample=False)[0].tolist())

with tempfile.TemporaryDirectory() as folder:
    save_correction(model, folder)  # the correction alone, a fraction of the model
    fresh = LlamaForCausalLM(LlamaConfig(**size))
    fresh.load_state_dict(start)
    another = load_correction(fresh, folder)
assert torch.equal(another(ids).logits, model(ids).logits)
print("the correction was saved, and loaded onto the model it was trained with")
