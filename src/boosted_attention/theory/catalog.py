"""Every check, in the order of the paper."""

from __future__ import annotations

from collections.abc import Callable

from boosted_attention.theory import energy, erasure, mart, normalization, projections
from boosted_attention.theory.finding import Finding

CHECKS: list[Callable[[int], Finding]] = [
    energy.update_is_descent,
    energy.three_kinds_of_fixed_point,
    erasure.stays_in_hull,
    erasure.forgets_the_orthogonal_part,
    erasure.fixed_points_in_hull,
    erasure.contraction_erases_within_a_region,
    mart.residual_is_the_gradient,
    mart.scalar_gate_is_shrinkage,
    mart.bayes_is_a_layer,
    projections.row_span,
    projections.fixed_correction,
    projections.own_projections_escape,
    projections.hull_escape,
    energy.twicing_spectrum,
    normalization.pre_norm_adds,
    normalization.post_norm_rank,
    normalization.additive_stream,
]
