"""Every check, in the order of the paper; each takes a seed and returns a ``Finding``."""

from __future__ import annotations

from collections.abc import Callable

from boosted_attention.theory.energy import three_kinds_of_fixed_point, twicing_spectrum, update_is_descent
from boosted_attention.theory.erasure import (
    contraction_erases_within_a_region,
    fixed_points_in_hull,
    forgets_the_orthogonal_part,
    stays_in_hull,
)
from boosted_attention.theory.finding import Finding
from boosted_attention.theory.mart import bayes_is_a_layer, residual_is_the_gradient, scalar_gate_is_shrinkage
from boosted_attention.theory.normalization import additive_stream, post_norm_rank, pre_norm_adds
from boosted_attention.theory.projections import fixed_correction, hull_escape, own_projections_escape, row_span

CHECKS: list[Callable[[int], Finding]] = [
    update_is_descent,
    three_kinds_of_fixed_point,
    stays_in_hull,
    forgets_the_orthogonal_part,
    fixed_points_in_hull,
    contraction_erases_within_a_region,
    residual_is_the_gradient,
    scalar_gate_is_shrinkage,
    bayes_is_a_layer,
    row_span,
    fixed_correction,
    own_projections_escape,
    hull_escape,
    twicing_spectrum,
    pre_norm_adds,
    post_norm_rank,
    additive_stream,
]
