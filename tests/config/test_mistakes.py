"""A user's mistakes: one line each, with the file, the field, the value and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from oppo_sim.config import ConfigError, load_scenario

MISTAKES = [
    # keys
    ("workload.max_respons_tokens", 5, ["workload:", "did you mean 'max_response_tokens'"]),
    ("workloads.lengths", 5, ["unknown key 'workloads'", "did you mean 'workload'"]),
    (
        "batch",
        64,
        ["'batch'; did you mean schedule.batch (as in --set schedule.batch=64)? known: "],
    ),
    ("lengths.constant", 5, ["'lengths'; did you mean workload.lengths or real.lengths? known: "]),
    ("decode_token_s", 0.1, ["mean costs.decode_token_s (as in --set costs.decode_token_s=0.1)?"]),
    ("learning_rate", "fast", ["'learning_rate'; did you mean real.ppo.learning_rate?"]),
    ("costs.decode_tokens_s", 1, ["costs: unknown key", "did you mean 'decode_token_s'"]),
    ("schedule.overcomit", 1, ["schedule: unknown key", "did you mean 'overcommit'"]),
    ("schedule.D", 4, ["schedule: unknown key 'D'; did you mean 'overcommit'?"]),
    ("schedule.delta", 4, ["unknown key 'delta'; did you mean 'overcommit'?"]),
    ("schedule.num_generations", 4, ["key 'num_generations'; did you mean 'group'?"]),
    ("d", 4, ["'d'; did you mean schedule.overcommit (as in --set schedule.overcommit=4)? known"]),
    ("schedule.overcommit.mots", 1, ["schedule.overcommit: unknown key", "did you mean 'most'"]),
    ("workload.reward", {"start": 0.0}, ["workload.reward.plateau is missing"]),
    # rates
    ("costs.decode_token_s", -0.01, ["costs.decode_token_s = -0.01", "at least 0"]),
    ("costs.decode_token_s", "nan", ["costs.decode_token_s = nan", "finite"]),
    ("costs.score_token_s", "inf", ["costs.score_token_s = inf", "finite"]),
    ("costs.round_s", "-inf", ["costs.round_s = -inf", "finite"]),
    ("costs.train_call_s", "fast", ["costs.train_call_s = 'fast'", "must be a number"]),
    ("workload.reward.noise", -1, ["workload.reward.noise = -1", "at least 0"]),
    ("workload.reward.tau_steps", 0, ["workload.reward.tau_steps = 0", "above 0"]),
    (
        "workload.reward",
        {"points": [[0, 1.0, 2.0]], "noise": 0.0},
        ["workload.reward: points[0] = [0.0, 1.0, 2.0]: must be [step, reward]"],
    ),
    (
        "workload.reward",
        {"points": [[0, "high"]], "noise": 0.0},
        ["workload.reward.points[0][1] = 'high': must be a number"],
    ),
    ("workload.reward", {"curve": "gsm8k"}, ["workload.reward.noise is missing"]),
    (
        "workload.reward.curve",
        "gsm8k",
        ["workload.reward: unknown key 'start'", "stale_penalty, curve, noise"],
    ),
    ("workload.reward.stale_penalty", -1, ["workload.reward.stale_penalty = -1", "at least 0"]),
    ("workload.reward", 5, ["workload.reward = 5: must be a table"]),
    # counts
    ("steps", 0, ["steps = 0", "at least 1"]),
    ("steps", True, ["steps = True", "whole number"]),
    ("seed", -1, ["seed = -1", "at least 0"]),
    ("schedule.batch", 0, ["schedule.batch = 0", "at least 1"]),
    ("schedule.chunk", 0, ["schedule.chunk = 0", "at least 1 token", '"whole"']),
    ("schedule.chunk", "half", ["schedule.chunk = 'half'", "number of tokens"]),
    ("schedule.overcommit", -4, ["schedule.overcommit = -4", "at least 0"]),
    ("schedule.overcommit.start", 9, ["overcommit.start = 9", "at most overcommit.most = 4"]),
    ("workload.max_response_tokens", 0, ["workload.max_response_tokens = 0", "at least 1"]),
    ("workload.max_response_tokens", 1.5, ["= 1.5", "whole number"]),
    # choices
    ("schedule.name", "opo", ["schedule.name", "'opo'", "did you mean 'oppo'"]),
    ("schedule.scoring", "chunks", ["schedule.scoring = 'chunks'", "'response' or 'chunk'"]),
    ("costs.model", "rofline", ["costs.model = 'rofline'", "did you mean 'roofline'"]),
    ("costs", {"model": "roofline"}, ["'roofline'", "needs cluster.card"]),
    ("costs", {}, ["costs.model is missing"]),
    ("costs", 5, ["costs = 5", "table"]),
    # lengths
    ("workload.lengths", 3, ["workload.lengths = 3", "CSV or JSONL", "constant"]),
    ("workload.lengths", "{replay = []}", ["workload.lengths.replay = []", "at least one"]),
    ("workload.lengths", "{replay = [3, 'a']}", ["workload.lengths.replay[1] = 'a'", "whole"]),
    ("workload.lengths", "{replay = [3, 0]}", ["workload.lengths.replay[1] = 0", "at least 1"]),
    ("workload.lengths", "{replay = 3}", ["workload.lengths.replay = 3", "list of lengths"]),
    (
        "workload.lengths",
        "{replay = [3, 401]}",
        ["lengths.replay[1] = 401", "above max_response_tokens = 400", "never cut"],
    ),
    ("workload.lengths", "{constant = 3, exponential = 3}", ["workload.lengths", "exactly one"]),
    ("workload.lengths", "{}", ["workload.lengths", "exactly one"]),
    ("workload.lengths.cut_at_tokens", 9, ["workload.lengths", "goes with file"]),
    ("workload.max_prompt_tokens", 19, ["prompt_tokens = 20", "above max_prompt_tokens = 19"]),
    # devices
    ("cluster.devices", 2, ["devices = 2", "too few", "set devices = 3"]),
    ("cluster.trainer_devices", 1, ["devices = 3", "set devices = 4"]),
    ("cluster.nodes", 2, ["devices = 3 on nodes = 2", "multiple"]),
    ("cluster.placement", "colocated", ["needs [cluster.contention]", "not free"]),
    ("cluster.contention.decode_stretch", 0.5, ["decode_stretch = 0.5", "at least 1"]),
    ("cluster.contention.decode_stretch", 1.5, ["'split'", "no device decodes and scores"]),
]


@pytest.mark.parametrize(("key", "value", "parts"), MISTAKES)
def test_a_mistake_is_one_line_that_names_field_value_and_remedy(
    key: str, value: object, parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario("tiny", {key: value})
    message = str(caught.value)
    assert "\n" not in message
    for part in ["tiny: ", *parts]:
        assert part in message


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        ("models", {"actor": "Qwen2.5-7B"}, ["models.reward is missing"]),
        ("models.on_scorer", ["critic"], ["on_scorer", "must have 'reward'"]),
        ("models.on_scorer", ["judge"], ["models.on_scorer[0] = 'judge'"]),
        ("models.on_scorer", ["reward", "reward"], ["twice"]),
        (
            "models",
            {
                "actor": "Qwen2.5-7B",
                "reward": "Qwen2.5-7B",
                "critic": "none",
                "on_scorer": ["reward", "critic"],
            },
            ["on_scorer names critic", "critic = 'none'"],
        ),
        (
            "models",
            {"actor": "Qwen2.5-7B", "reward": "rule", "on_scorer": ["reward"]},
            ["on_scorer names reward", "reward = 'rule'"],
        ),
        ("costs.efficiency.train_mfu", 1.5, ["costs.efficiency.train_mfu = 1.5", "at most 1"]),
        ("costs.engine.fixed", 1, ["costs.engine: unknown key", "did you mean 'fixed_s'"]),
        ("costs.training.padded", 1, ["costs.training.padded = 1", "true or false"]),
    ],
)
def test_mistakes_in_models_and_roofline(key: str, value: object, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario("stackexchange-7b", {key: value})
    for part in ["stackexchange-7b: ", *parts]:
        assert part in str(caught.value)


def test_malformed_toml_names_file_and_line(scenario_file: Path) -> None:
    scenario_file.write_text("name = 'mine'\nsteps = = 3\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: is not valid TOML: .*line 2"):
        load_scenario(scenario_file)


def test_a_mistake_in_a_file_names_the_file(scenario_file: Path) -> None:
    scenario_file.write_text(scenario_file.read_text().replace("batch = 4", "batch = -4"))
    with pytest.raises(ConfigError, match=r"mine\.toml: schedule\.batch = -4: must be at least 1"):
        load_scenario(scenario_file)


def test_a_number_or_a_nest_that_toml_cannot_mean_names_the_file(scenario_file: Path) -> None:
    text = scenario_file.read_text()
    for steps, said in (("9" * 5000, "thousands of digits"), ("[" * 5000, "nested too deeply")):
        scenario_file.write_text(text.replace("steps = 4", f"steps = {steps}"))
        with pytest.raises(ConfigError, match=rf"mine\.toml: .*{said}"):
            load_scenario(scenario_file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: the scenario cannot be read: No such"):
        load_scenario(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_scenario(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(ConfigError, match=r"latin\.toml: is not UTF-8"):
        load_scenario(tmp_path / "latin.toml")


def test_an_unknown_scenario_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'stackexchange7b'; did you mean 'stackexchange-7b'"):
        load_scenario("stackexchange7b")
