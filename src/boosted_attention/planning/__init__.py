"""What sizes that were not run would take, and standard models of equal cost.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from boosted_attention.lazy import lazy_names

if TYPE_CHECKING:
    from boosted_attention.planning.cluster import Cluster as Cluster
    from boosted_attention.planning.cluster import PlannedModel as PlannedModel
    from boosted_attention.planning.cluster import planned_models as planned_models
    from boosted_attention.planning.matching import matched as matched

__getattr__, __dir__, __all__ = lazy_names(__name__)
