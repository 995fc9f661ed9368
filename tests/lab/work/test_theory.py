"""Work that needs no training."""

from boosted_attention.lab.trials.trial import Context
from boosted_attention.lab.work.theory import sizes


def test_sizes_are_the_papers_models(tmp_path):
    found = sizes(Context(folder=tmp_path, shared=tmp_path))
    assert [value["parameters"] for value in found.values()][:4] == [7_419_392, 7_419_392, 8_789_184, 8_734_208]
    costs = {name: value["attention_flops"] for name, value in found.items()}
    assert costs["standard"] < costs["twicing"] < costs["boosted"] < costs["boosted with three rounds"]
