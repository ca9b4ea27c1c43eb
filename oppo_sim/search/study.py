"""A search: Optuna proposes points, they are simulated, and the study keeps what was found."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.storages import fail_stale_trials
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from oppo_sim.search.owners import OWNER, Orphans, signature
from oppo_sim.search.problem import Point, Values
from oppo_sim.search.result import Result, Seeds, evaluate, summed_up
from oppo_sim.search.sought import Search
from oppo_sim.search.space import MOST_LISTED, Space, key
from oppo_sim.search.units import Found

POLL_S = 0.5
ASKING, ASKING_S = 40, 0.05  # looks, and between them, for values that a trial is about to have
NEIGHBOUR = 3  # every third trial is the best one's nearest neighbour
REPEATS = 4  # proposals of what is known, after which its neighbour is taken
MOST_REPEATS = 40  # in a row, after which nothing new is to be found
FIRST = 10  # points, at most, that are spread over the space before any is proposed
RESULT, STATUS, UNITS, BASELINE = "result", "status", "units", "baseline"
REFERENCE = "reference"
NO_TRIAL = -1  # the point of the reference
SETTLED, PRUNED, FAILED = "settled", "pruned", "failed"  # statuses
GIVEN_UP = "Cannot tell a "  # how Optuna's error begins where another process has ended a trial

Progress = Callable[[int, int], None]  # trials done, of how many


class Tried(NamedTuple):
    """A point that was tried: `settled` has all its seeds, `pruned` was not worth them."""

    result: Result
    status: str


class Repeated(Exception):
    """A proposal that was there already."""


class Searcher:
    """One process of a search; others may work on the same study."""

    def __init__(self, search: Search, study: Study) -> None:
        self._search = search
        self._study = study
        self._space = Space(search.space.axes)
        self._most = min(search.trials, self._space.size or search.trials)
        self._orphans = Orphans(study)
        self.ran = 0  # runs simulated here
        self.reference: Result | None = None

    def run(self, progress: Progress | None = None) -> None:
        """Until there are as many trials as were asked for, those of other processes included.

        Sooner where fractions of a range are so close to each other that nothing new is proposed.
        """
        first = max(1, min(FIRST, self._most // 3))
        beginnings = self._space.beginnings(first, self._search.seed)
        repeats = 0
        self.reference = self._as_it_stands()
        while True:
            self._give_up_orphans()
            done, running, waiting = self._counts()
            if progress is not None:
                progress(done, self._most)
            if done >= self._most or repeats >= MOST_REPEATS:
                return
            if done + running >= self._most:
                time.sleep(POLL_S)  # another's trial: it ends, or goes stale and is taken over
                continue
            place = done + running + repeats
            if place < first and not waiting:
                self._study.enqueue_trial(beginnings[place])
            elif not waiting and not repeats and place % NEIGHBOUR == 0:
                self._enqueue_neighbour()
            repeats = 0 if self._one(done, repeats) else repeats + 1

    def _as_it_stands(self) -> Result:
        """The schedule without the axes, on all seeds: no trial, and nothing is proposed by it.

        Whoever comes first keeps it; who comes at the same time finds the same.
        """
        if REFERENCE in self._study.user_attrs:
            return Result.of_dict(self._study.user_attrs[REFERENCE])
        result = self._kept({}, self._search.space.seeds, {}, NO_TRIAL)
        missing = self._search.goals.missing(result) if result.is_ok else None
        if missing is not None:
            result = _failed(result, f"{missing} is not known of this scenario")
        if result.is_ok:
            self._study.set_user_attr(REFERENCE, result.as_dict())
        return result

    def _enqueue_neighbour(self) -> None:
        """The nearest point to the best so far that is new, where points can be counted."""
        if self._space.size is None or self._space.size > MOST_LISTED:
            return
        every = tried(self._study)
        front = self._search.goals.front([one.result for one in every if one.status == SETTLED])
        seen = {key(values) for values, _ in self._seen(-1)}
        if front and len(seen) < self._space.size:
            best = self._study.get_trials(deepcopy=False)[front[0].point]
            self._study.enqueue_trial(self._space.nearest_new(best.params, seen))

    def _give_up_orphans(self) -> None:
        """What nobody is at any more is asked for again, with the runs that it has."""
        _without_warnings(fail_stale_trials, self._study)
        for trial in self._orphans.give_up():
            if self._space.is_whole(trial.params):
                units = {UNITS: trial.user_attrs[UNITS]} if UNITS in trial.user_attrs else None
                self._study.enqueue_trial(trial.params, user_attrs=units)

    def _counts(self) -> tuple[int, int, int]:
        """Trials that are over, that run, and that wait."""
        states = [trial.state for trial in self._study.get_trials(deepcopy=False)]
        over = states.count(TrialState.COMPLETE) + states.count(TrialState.PRUNED)
        return over, states.count(TrialState.RUNNING), states.count(TrialState.WAITING)

    def _one(self, done: int, repeats: int) -> bool:
        """A trial; False where it was there already.

        The draws depend on how many are done, so that a search that was stopped proposes the same.
        """
        seed = np.random.SeedSequence([self._search.seed, done, repeats]).generate_state(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            self._study.sampler = TPESampler(
                seed=int(seed[0]), n_startup_trials=1, multivariate=True, constant_liar=True
            )
        self._repeats, self._is_repeated = repeats, False
        try:
            self._study.optimize(self._objective, n_trials=1, catch=(Repeated,))
        except ValueError as error:
            if not str(error).startswith(GIVEN_UP):
                raise
            # this process seemed dead, for it was held up: its trial is begun again, by anybody
        return not self._is_repeated

    def _objective(self, trial: Trial) -> list[float]:
        trial.set_user_attr(OWNER, signature())
        values = self._space.ask(trial)
        self._let_earlier_ask(trial.number)
        seen = {key(v): params for v, params in self._seen(trial.number)}
        if key(values) in seen:
            if self._repeats >= REPEATS and (self._space.size or MOST_LISTED + 1) <= MOST_LISTED:
                self._study.enqueue_trial(self._space.nearest_new(trial.params, seen))
            self._is_repeated = True
            raise Repeated
        result, status = self._evaluated(trial, values)
        trial.set_user_attr(STATUS, status)
        trial.set_user_attr(RESULT, result.as_dict())
        if status == FAILED:
            raise optuna.TrialPruned
        for bound in self._search.goals.bounds:
            trial.set_constraint(str(bound), bound.excess(result))
        return self._search.goals.losses(result)

    def _let_earlier_ask(self, own: int) -> None:
        """Of two trials of the same point the earlier stays: so its values have to be known."""
        for _ in range(ASKING):
            running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            if all(self._space.is_whole(t.params) for t in running if t.number < own):
                return
            time.sleep(ASKING_S)

    def _seen(self, own: int) -> Iterator[tuple[Values, dict[str, Any]]]:
        """What is tried, or being tried, by anybody."""
        states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
        for trial in self._study.get_trials(deepcopy=False, states=states):
            is_before = trial.state != TrialState.RUNNING or own < 0 or trial.number < own
            if trial.number != own and is_before and self._space.is_whole(trial.params):
                yield self._space.values(trial.params), trial.params

    def _evaluated(self, trial: Trial, values: Values) -> tuple[Result, str]:
        """With one seed, two, four; an unpromising point gets no more."""
        search, seeds = self._search, self._search.space.seeds
        own = {int(seed): found for seed, found in trial.user_attrs.get(UNITS, {}).items()}
        for count in _rungs(seeds.least):
            is_last = count == seeds.least
            asked = seeds if is_last else Seeds(seeds.first, count, count)
            result = self._with_seeds(trial, values, asked, own)
            missing = search.goals.missing(result) if result.is_ok else None
            if missing is not None:
                return _failed(result, f"{missing} is not known of this scenario"), FAILED
            if not result.is_ok:
                return result, FAILED
            if not is_last and search.goals.is_hopeless(
                result, list(self._others(count)), search.margin
            ):
                return result, PRUNED
        return result, SETTLED

    def _with_seeds(
        self, trial: Trial, values: Values, seeds: Seeds, own: dict[int, Found]
    ) -> Result:
        """What is found is kept at once."""
        before = len(own)
        result = self._kept(values, seeds, own, trial.number)
        if len(own) > before:
            trial.set_user_attr(UNITS, {str(seed): found for seed, found in own.items()})
        return result

    def _kept(self, values: Values, seeds: Seeds, own: dict[int, Found], point: int) -> Result:
        """Evaluated; the baselines that it took are kept for all."""
        known = _baselines(self._study)
        before = len(own), len(known)
        result = evaluate(
            self._search.space.problem, values, seeds, baselines=known, own=own, point=point
        )
        self.ran += len(own) + len(known) - sum(before)
        for (shared, seed), found in list(known.items())[before[1] :]:
            digest = hashlib.sha256(shared.encode()).hexdigest()[:16]
            attribute = {"shared": shared, "seed": seed, "found": found}
            self._study.set_user_attr(f"{BASELINE} {digest} {seed}", attribute)
        return result

    def _others(self, count: int) -> Iterator[Result]:
        """All settled points, on the first `count` seeds."""
        problem, known = self._search.space.problem, _baselines(self._study)
        its = self._search.space.seeds.of(count)
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            if trial.user_attrs.get(STATUS) != SETTLED:
                continue
            values = self._space.values(trial.params)
            base = None
            if problem.baseline is not None:
                base = [known[problem.baseline_key(values), seed] for seed in its]
            own = [trial.user_attrs[UNITS][str(seed)] for seed in its]
            yield summed_up(Point(trial.number, values), its, own, base)


def tried(study: Study) -> list[Tried]:
    """Every point that was tried, in the order in which they were begun."""
    states = (TrialState.COMPLETE, TrialState.PRUNED)
    trials: Sequence[FrozenTrial] = study.get_trials(deepcopy=False, states=states)
    found = [trial.user_attrs for trial in trials if RESULT in trial.user_attrs]
    return [Tried(Result.of_dict(row[RESULT]), row[STATUS]) for row in found]


def runs_of(study: Study) -> int:
    """How many runs the study holds, whoever simulated them."""
    trials = study.get_trials(deepcopy=False)
    done = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    reference = study.user_attrs.get(REFERENCE, {}).get("seeds", 0)
    own = sum(len(t.user_attrs.get(UNITS, ())) for t in done)
    return own + int(reference) + len(_baselines(study))


def _baselines(study: Study) -> dict[tuple[str, int], Found]:
    attributes = study.user_attrs.items()
    rows = [row for name, row in attributes if name.startswith(BASELINE)]
    return {(row["shared"], row["seed"]): row["found"] for row in rows}


def _rungs(least: int) -> list[int]:
    counts = [1]
    while counts[-1] < least:
        counts.append(min(2 * counts[-1], least))
    return counts


def _failed(result: Result, error: str) -> Result:
    return Result(point=result.point, values=result.values, status="failed", error=error)


def _without_warnings(call: Callable[[Study], None], study: Study) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        call(study)
