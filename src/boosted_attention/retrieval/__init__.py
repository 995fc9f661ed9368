"""The synthetic retrieval task: find the stored pattern behind a noisy query."""

from boosted_attention.retrieval.iteration import TemperatureMap, temperature_map
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.predictors import PREDICTORS
from boosted_attention.retrieval.routing import Routers, RoutingResult, score_routes
from boosted_attention.retrieval.scoring import (
    Baselines,
    RetrievalResult,
    RoundDistances,
    score_baselines,
    score_trained,
)
from boosted_attention.retrieval.task import RetrievalTask, Score, score
from boosted_attention.retrieval.training import RetrievalTraining, evaluate, train

__all__ = [
    "PREDICTORS",
    "Baselines",
    "RetrievalModel",
    "RetrievalResult",
    "RetrievalTask",
    "RetrievalTraining",
    "RoundDistances",
    "Routers",
    "RoutingResult",
    "Score",
    "TemperatureMap",
    "evaluate",
    "score",
    "score_baselines",
    "score_routes",
    "score_trained",
    "temperature_map",
    "train",
]
