"""The language-model experiments at the smallest preset, computed once for all tests and workers."""

import pytest

# The lab is imported inside the fixtures: an error in it is then an error of the tests that need it, each by name.


@pytest.fixture(scope="session")
def text_preset(text_file):
    from boosted_attention.lab.presets import PRESETS

    return PRESETS["smoke"].with_corpora([f"text:{text_file}"])


@pytest.fixture(scope="session")
def language_smoke(made_once, text_preset):
    """(what was found, its folder)."""
    from boosted_attention.lab.experiments import LANGUAGE
    from boosted_attention.lab.reproduce import reproduce, reread

    def make(out):
        found = reproduce(list(LANGUAGE), text_preset, out, workers=2)
        assert not found.outcome.failures
        assert not found.incomplete

    out = made_once("language-smoke", make)
    return reread(text_preset, out), out
