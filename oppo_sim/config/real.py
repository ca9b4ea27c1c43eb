"""The `[real]` table: what the torch machine needs beyond what is simulated.

Names follow TRL's PPOConfig where it has one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from oppo_sim.config.fields import Count, Listed, Natural, NotNegative, Positive, Table

Unit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


# What only PPO reads
CRITICS = {
    "kl_estimator",
    "cliprange_value",
    "vf_coef",
    "gamma",
    "lam",
    "whiten_rewards",
    "whiten_advantages",
}


class Ppo(Table):
    """The objective and its optimiser."""

    learning_rate: Positive = 3e-6
    lr_schedule: Literal["constant", "linear"] = "constant"
    lr_total_steps: Count | None = None  # linear: over which it falls to 0; None: the run's steps
    weight_decay: NotNegative = 0.0
    adam_epsilon: Positive = 1e-8
    max_grad_norm: Positive | None = None
    num_ppo_epochs: Count = 4
    num_mini_batches: Count = 1  # optimiser steps per epoch
    micro_batch: Count | None = None  # rows per forward and backward; None: the whole mini-batch
    kl_coef: NotNegative = 0.05
    kl_estimator: Literal["k1", "k3"] = "k1"
    cliprange: Positive = 0.2
    cliprange_value: Positive = 0.2
    vf_coef: NotNegative = 0.1
    gamma: Unit = 1.0
    lam: Unit = 0.95
    whiten_rewards: bool = False
    whiten_advantages: bool = True
    missing_eos_penalty: NotNegative | None = None  # taken from the reward of a row cut at the cap
    # the denominator of the ratio: log-probabilities stored at generation; those of the weights
    # that training begins with; or both, as AReaL's decoupled objective has it
    ratio: Literal["behaviour", "recomputed", "decoupled"] = "behaviour"
    behaviour_cap: Positive = 5.0  # decoupled: the most that a token's correction weighs
    autocast: Literal["bfloat16"] | None = None
    gradient_checkpointing: bool = False

    @model_validator(mode="after")
    def _falls(self) -> Ppo:
        if self.lr_total_steps is not None and self.lr_schedule == "constant":
            raise ValueError(
                f"lr_total_steps = {self.lr_total_steps} goes with lr_schedule = 'linear': set "
                "that, or leave it out"
            )
        return self


class Real(Table):
    """Models, data, workers.

    A model is a folder of `save_pretrained`, a hub name, or a config.json for random weights.
    """

    actor: str
    reward: str  # a model, or "package.module:function" for a rule on the text
    reference: str | None = None  # None: the actor as the run begins; "none": there is no KL term
    # PPO with a critic, or GRPO: responses against others to the prompt, schedule.group in all
    objective: Literal["ppo", "grpo"] = "ppo"
    critic: str | None = None  # None: the reward model's network, for a rule the actor's
    tokenizer: str | None = None  # None: the actor's; "none": prompts and rules are token ids
    prompts: str  # JSONL: `prompt` (text) or `prompt_ids` (a list)
    stop_token_ids: Listed[Natural] | None = None  # None: the tokenizer's or the model's own
    temperature: Positive = 1.0
    # responses end where the model ends them, or at lengths drawn from [workload]
    lengths: Literal["model", "workload"] = "model"
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    # how lanes run: in turns on one thread (repeatable), on a thread each, or with the scorers in
    # processes of their own
    workers: Literal["inline", "threads", "processes"] = "threads"
    actor_threads: Count = 1  # torch threads of a lane, on CPUs
    scorer_threads: Count = 1
    trainer_threads: Count = 1
    share_threads: bool = False  # an actor or scorer also uses those of lanes that have no work
    # what the scorers read chunk by chunk; what they do not is a part of the training
    on_scorer: Listed[Literal["reward", "reference"]] = ("reward",)
    coalesce: bool = True  # one forward for all chunks that are scored together; else one each
    save_steps: Count = 10  # steps between checkpoints
    save_total_limit: Count = 2
    initializer_range: Positive | None = None  # of random weights; None: the config's own
    # what `oppo validate` runs and `oppo profile` measures for; files are found beside the scenario
    schedules: Listed[str] = ("trl", "intra", "inter", "oppo")
    ppo: Ppo = Ppo()

    @model_validator(mode="after")
    def _fits(self) -> Real:
        if "reward" not in self.on_scorer:
            raise ValueError(
                f"on_scorer = {list(self.on_scorer)}: must have 'reward', which only a scorer gives"
            )
        if self.stop_token_ids is not None and not self.stop_token_ids:
            raise ValueError(
                "stop_token_ids = []: name at least one, or leave it out for the model's own"
            )
        if not self.schedules:
            raise ValueError("schedules = []: name at least one, or leave it out")
        if self.objective == "grpo":
            of_ppo = [f"ppo.{name}" for name in self.ppo.model_fields_set & CRITICS]
            of_ppo += [] if self.critic is None else ["critic"]
            if of_ppo:
                raise ValueError(
                    f"{min(of_ppo)} goes with objective = 'ppo': GRPO has no critic, and its KL "
                    "term is k3; leave it out"
                )
        if self.reference == "none":
            if "reference" in self.on_scorer:
                raise ValueError("on_scorer names the reference, but reference = 'none'")
            if "kl_coef" in self.ppo.model_fields_set and self.ppo.kl_coef:
                raise ValueError(
                    f"ppo.kl_coef = {self.ppo.kl_coef} with reference = 'none': there is nothing "
                    "to keep to; leave one of the two out"
                )
        return self
