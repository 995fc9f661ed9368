"""Places of language models, and results that may be compared."""

from dataclasses import replace

import pytest

from boosted_attention.lab.experiments.language._arms import main_arms
from boosted_attention.lab.experiments.language._shared import place_of, read, require_alike, short
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.presets import PRESETS


def test_a_place_is_the_papers_only_with_its_size_and_text():
    paper = PRESETS["paper"]
    for text in ("wikitext-103", "openwebtext"):
        assert place_of(paper, text) == Place(kind=Kind.LANGUAGE, text=text, size="8.7 M", is_the_papers=True)
    other = paper.with_corpora(["enwik8-clean"])
    assert not place_of(other, "enwik8-clean").is_the_papers
    small = place_of(PRESETS["cpu"].with_corpora(["wikitext-103"]), "wikitext-103")
    assert (small.text, small.is_the_papers) == ("wikitext-103", False)
    twins = PRESETS["cpu"].with_corpora(["text:a/x.txt", "text:b/x.txt"])
    assert [short(twins, corpus) for corpus in twins.text.corpora] == ["text:a/x.txt", "text:b/x.txt"]
    assert short(PRESETS["cpu"].with_corpora(["text:a/x.txt"]), "text:a/x.txt") == "text:x.txt"


def test_different_texts_under_one_name_are_refused_and_listed(language_smoke, text_preset, tmp_path):
    found, _ = language_smoke
    results = read(text_preset, found.outcome.result, text_preset.text.corpora[0], main_arms(text_preset))
    changed = {**results, "boosted": {**results["boosted"], 42: replace(results["boosted"][42], data="another")}}
    with pytest.raises(ValueError, match=r"different texts .*standard \(seed 42\).*another: boosted \(seed 42\)"):
        require_alike(changed, "words")
    changed = {**results, "boosted": {**results["boosted"], 42: replace(results["boosted"][42], order="another")}}
    with pytest.raises(ValueError, match="different batches"):
        require_alike(changed, "words")
