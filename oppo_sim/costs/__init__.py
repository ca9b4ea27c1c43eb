"""Seconds per task of the pipeline: constant, linear, roofline and launch, or measured."""

from oppo_sim.costs.cards import Card, card, card_names, model, model_names
from oppo_sim.costs.constant import Constant
from oppo_sim.costs.interface import Costs, DecodeLaw, Line, attention_pairs
from oppo_sim.costs.linear import Linear
from oppo_sim.costs.measurements import Measurements, Row, measurement_names, measurements
from oppo_sim.costs.memory import kv_tokens, training_bytes
from oppo_sim.costs.models import Head, ModelShape
from oppo_sim.costs.own import card_at, model_at
from oppo_sim.costs.parts import HF, VLLM, Actor, Efficiency, Engine, Hosted, Link, Scorer, Trainer
from oppo_sim.costs.ranges import ExtrapolationWarning
from oppo_sim.costs.roofline import Roofline
from oppo_sim.costs.table import Measured

__all__ = [
    "HF",
    "VLLM",
    "Actor",
    "Card",
    "Constant",
    "Costs",
    "DecodeLaw",
    "Efficiency",
    "Engine",
    "ExtrapolationWarning",
    "Head",
    "Hosted",
    "Line",
    "Linear",
    "Link",
    "Measured",
    "Measurements",
    "ModelShape",
    "Roofline",
    "Row",
    "Scorer",
    "Trainer",
    "attention_pairs",
    "card",
    "card_at",
    "card_names",
    "kv_tokens",
    "measurement_names",
    "measurements",
    "model",
    "model_at",
    "model_names",
    "training_bytes",
]
