"""The checks hold at any seed, can fail, and stand on an exact hull distance."""

from boosted_attention.theory import erasure
from boosted_attention.theory.catalog import CHECKS

COSTLY = {"contraction_erases_within_a_region", "residual_is_the_gradient", "bayes_is_a_layer"}


def pytest_generate_tests(metafunc):
    if metafunc.function is test_every_check_holds_with_its_limit:
        full = metafunc.config.getoption("--full")
        checks = [check for check in CHECKS if full or check.__name__ not in COSTLY]
        metafunc.parametrize("check", checks, ids=lambda check: check.__name__)
        metafunc.parametrize("seed", range(1, 8) if full else range(1, 4))


def test_every_check_holds_with_its_limit(check, seed):
    finding = check(seed)
    assert finding.holds, finding
    assert finding.counter_holds, finding
    assert finding.measured
    assert finding.counter


def test_names_are_distinct():
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS) == 17


def test_a_wrong_update_would_be_found(monkeypatch):
    monkeypatch.setattr(erasure, "retrieve", lambda x, patterns, beta: x)
    assert not erasure.stays_in_hull(0).holds
    assert not erasure.forgets_the_orthogonal_part(0).holds
