"""A run folder made by hand, for tests of what draws one."""

from pathlib import Path

from oppo_sim.records import Span
from oppo_sim.runs import Header, RunWriter
from tests.steps import step

HEADER = Header(
    scenario={"name": "by-hand", "workload": {"max_response_tokens": 30}},
    schedule={"name": "oppo"},
    seed=3,
    steps=2,
    spans=True,
)
ON_GPU10, ON_BOTH = ("gpu10",), ("gpu2", "gpu10")
# A step by hand: two rounds of actor0, of which the scorer reads the first while the second runs.
SPANS = [
    Span("actor0", ("gpu2",), "decode", 0.0, 2.0, 0, 2, 20),
    Span("actor1", ON_GPU10, "decode", 0.0, 3.0, 0, 1, 12),
    Span("scorer0", ("gpu11",), "score", 2.5, 3.5, 0, 2, 20, (("actor0", 2.0),)),
    Span("actor0", ("gpu2",), "decode", 2.0, 4.0, 0, 2, 20),
    Span("scorer0", ("gpu11",), "score", 4.0, 6.0, 0, 3, 32, (("actor0", 3.999), ("actor1", 3.0))),
    Span("trainer", ON_BOTH, "train", 7.0, 9.0, 0, 2, 40),
    Span("actor0", ON_BOTH, "sync", 9.0, 10.0, 0, 0, 0),
]


def by_hand(folder: Path, spans: list[Span] = SPANS) -> Path:
    with RunWriter(folder, HEADER) as writer:
        for span in spans:
            writer.span(span)
        busy_s = {"gpu2": 6.0, "gpu10": 5.0, "gpu11": 3.0}
        writer.step(step(0, busy_s=busy_s))
        writer.step(step(1, 10.0, overcommit=2, chunk_tokens=None, admitted=6, busy_s=busy_s))
    return folder
