"""Roofline and launch costs from a hardware card, model shapes and explicit efficiencies.

Everything that does not depend on the task is computed at construction: a cost is a few
multiplications.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from oppo_sim.costs import checks
from oppo_sim.costs.cards import Card
from oppo_sim.costs.interface import DecodeLaw
from oppo_sim.costs.models import BF16_BYTES, ModelShape
from oppo_sim.costs.parts import LINKS, Actor, Efficiency, Engine, Hosted, Link, Scorer, Trainer
from oppo_sim.costs.passes import Pass, decode_law, forward_pass

# Mixed-precision Adam, bytes moved per parameter: bf16 gradient read and weight written (4), fp32
# master weight and two moments read and written (24), gradient cleared (2).
OPTIMIZER_BYTES = 30
# What is handed to a scorer per token: its id as int64 and its log-probability as fp32.
HANDOFF_BYTES = 12


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """Costs of a pipeline on one kind of card. `scale` multiplies every time (see `scaled`)."""

    card: Card
    actor: Actor
    scorer: Scorer
    trainer: Trainer
    efficiency: Efficiency = field(default_factory=Efficiency)
    sync_over: Link = "same"  # "same": actor and trainer share devices, new weights cost nothing
    handoff_over: Link = "nvlink"  # "same": actor and scorer share devices, chunks cost nothing
    handoff_call_s: float = 1e-3  # a message between two Python processes, assumed
    scale: float = 1.0
    decode: DecodeLaw = field(init=False, repr=False, compare=False)
    _prefill: Pass = field(init=False, repr=False, compare=False)
    _hosted: tuple[Pass, ...] = field(init=False, repr=False, compare=False)
    _judges: tuple[tuple[DecodeLaw, int], ...] = field(init=False, repr=False, compare=False)
    _call_s: float = field(init=False, repr=False, compare=False)
    _rule_s: float = field(init=False, repr=False, compare=False)
    _train: Pass = field(init=False, repr=False, compare=False)
    _sync_s: float = field(init=False, repr=False, compare=False)
    _handoff: tuple[float, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        links = {"sync_over": self.sync_over, "handoff_over": self.handoff_over}
        checks.one_of("roofline", LINKS, **links)
        checks.not_negative("roofline", handoff_call_s=self.handoff_call_s)
        checks.positive("roofline", scale=self.scale)
        card, actor, scorer, scale = self.card, self.actor, self.scorer, self.scale
        ratio = self.efficiency.tensor_parallel

        def law(model: ModelShape, engine: Engine, devices: int) -> DecodeLaw:
            return decode_law(card, model, engine, devices, ratio).scaled(scale)

        def prefill(hosted: Hosted, engine: Engine, devices: int) -> Pass:
            one = forward_pass(card, hosted.model, hosted.head, engine, self.efficiency, devices)
            return one.scaled(scale)

        judges = [hosted for hosted in scorer.models if hosted.answer_tokens]
        derived = {
            "decode": law(actor.model, actor.engine, actor.devices),
            # only the last position of a prompt meets the vocabulary
            "_prefill": prefill(Hosted(actor.model, "scalar"), actor.engine, actor.devices),
            "_hosted": tuple(prefill(h, scorer.engine, scorer.devices) for h in scorer.models),
            "_judges": tuple(
                (law(h.model, scorer.engine, scorer.devices), h.answer_tokens) for h in judges
            ),
            "_call_s": scorer.call_s * scale,
            "_rule_s": scorer.rule_s * scale,
            "_train": self._update().scaled(scale),
            "_sync_s": self._transfer_s() * scale,
            "_handoff": tuple(x * scale for x in self._message()),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def by_row(self) -> None:
        """Sums are enough."""

    def prefill_s(self, tokens: int, attention: float) -> float:
        return self._prefill.seconds(tokens, attention) if tokens else 0.0

    def score_s(self, sequences: int, tokens: int, attention: float, lasts: int) -> float:
        seconds = self._call_s + self._rule_s * lasts
        if tokens:
            for added, floor, per_token, per_pair in self._hosted:
                compute = per_token * tokens + per_pair * attention
                seconds += added + (compute if compute > floor else floor)
        if lasts and self._judges:
            # equal rows [s, e): attention / tokens is (s + e) / 2, tokens / sequences is e - s
            end = attention / tokens + 0.5 * tokens / sequences if tokens else 0.0
            for law, answer_tokens in self._judges:
                seconds += law.span_s(lasts, lasts * end, answer_tokens)
        return seconds

    def train_s(self, sequences: int, tokens: int, longest: int) -> float:
        """Unpadded rows are taken as equally long: attention, 1-6 % of a 7B, is then the least."""
        if not sequences:
            return 0.0
        if self.trainer.padded:
            tokens = sequences * longest
        attention = 0.5 * tokens * tokens / sequences
        return self._train.seconds(tokens, attention)

    def sync_s(self) -> float:
        return self._sync_s

    def handoff_s(self, tokens: int) -> float:
        per_call, per_token = self._handoff
        return per_call + per_token * tokens if tokens else 0.0

    def scaled(self, factor: float) -> Self:
        checks.positive("Roofline.scaled", factor=factor)
        return replace(self, scale=self.scale * factor)

    def _update(self) -> Pass:
        """FLOPs of forward and backward (twice a forward), then optimiser and network."""
        card, trainer, at = self.card, self.trainer, self.efficiency
        passes = trainer.epochs * (4 if trainer.recomputes else 3)
        train_flop_per_s = at.train_mfu * card.peak_flop_per_s * trainer.devices
        read_flop_per_s = at.prefill_mfu * card.peak_flop_per_s * trainer.devices
        token_s = pair_s = 0.0
        for n, flop_per_s, models in (
            (passes, train_flop_per_s, trainer.trained),
            (1, read_flop_per_s, trainer.forwards),
        ):
            for hosted in models:
                token_s += n * hosted.model.forward_flop(hosted.head) / flop_per_s
                pair_s += n * hosted.model.pair_flop / flop_per_s
        params = sum(h.model.params(h.head) for h in trainer.trained)
        optimizer_bytes_per_s = at.hbm * card.hbm_bytes_per_s * trainer.devices
        update_s = OPTIMIZER_BYTES * params / optimizer_bytes_per_s + self._reduce_s(params)
        return Pass(trainer.epochs * trainer.minibatches * update_s, 0.0, token_s, pair_s)

    def _reduce_s(self, params: int) -> float:
        """Ring all-reduce of gradients, and weight gathers, over the NICs of each node.

        One ring per NIC; the node with the fewest devices bounds them. Within one node it is part
        of the MFU that was measured there.
        """
        trainer = self.trainer
        if trainer.nodes == 1:
            return 0.0
        ring = (trainer.devices - 1) / trainer.devices
        sent_bytes = (2 + trainer.gathers) * ring * BF16_BYTES * params
        nics = trainer.fewest_per_node or trainer.devices // trainer.nodes
        return sent_bytes / (self._bytes_per_s("network") * nics)

    def _transfer_s(self) -> float:
        if self.sync_over == "same":
            return 0.0
        shard_bytes = self.actor.model.weights_bytes() / self.actor.devices
        return shard_bytes / self._bytes_per_s(self.sync_over)

    def _message(self) -> tuple[float, float]:
        if self.handoff_over == "same":
            return 0.0, 0.0
        return self.handoff_call_s, HANDOFF_BYTES / self._bytes_per_s(self.handoff_over)

    def _bytes_per_s(self, link: Link) -> float:
        if link == "network":
            return self.efficiency.network * self.card.network_bytes_per_s
        return self.efficiency.nvlink * self.card.nvlink_bytes_per_s
