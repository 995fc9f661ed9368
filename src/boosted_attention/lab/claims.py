"""All claims, collected from the experiments they stand in."""

from boosted_attention.lab.experiments import EXPERIMENTS

CLAIMS = [claim for experiment in EXPERIMENTS.values() for claim in experiment.claims]
