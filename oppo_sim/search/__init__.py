"""Many settings of one scenario: swept over axes, or proposed by whoever asks for them.

From the bottom up:

`axes`     an axis is a dotted path, as of `--set`, and its values or its range
`problem`  `Problem`: what all points share. `Point`: a value for each axis. `Unit`: one run, of a
           point or of its baseline, with one seed
`units`    `run_unit`: a unit simulated, as a small JSON object (`Found`), or the text of its error
`result`   `summed_up`: a point's units and its baseline's as one `Result`, paired by seed;
           `is_enough` and `more_seeds` say when to stop. `evaluate`: all of that for one point
`tries`    the values of axes, tried on the scenario before anything runs
`spec`     a sweep file, read and checked before anything runs
`design`   which points a sweep has: grid, random, Latin hypercube
`clusters` workers of Ray and of Dask
`workers`  units in processes, here or on a cluster; a worker that dies is retried
`journal`  units that are done, a line each, whatever happens to the process that writes them
`folder`   what a sweep's folder says it is of; another sweep is refused
`sweep`    the driver: what is missing is run, round by round, until every point has enough seeds
`summary`  counts, the best points and the first errors, for the screen and for `--json`
`table`    the results as Parquet and CSV, the same bytes however often the sweep was disturbed
`goals`    what a search is after: objectives, bounds, and the points that nothing beats
`sought`   a search file: a sweep's, with goals and a number of trials
`space`    the axes as parameters of Optuna
`database` the study of a search in a database that processes share
`study`    a search: proposals, and seeds where they are worth it
`owners`   which trials are in nobody's hands, because a process died
`winner`   the best point as a schedule file
`swept`    what a folder holds, for pictures
`standing` which points of a search may win, by its folder
`pictures` heat map and front
`timelines`, `page`   an interactive page, with what every device does at the best points

To evaluate points of your own choice, which is what a search does:

    problem = Problem.of("stackexchange-7b", steps=200)
    baselines = {}                         # shared by all points, by setting and seed
    result = evaluate(problem, {"schedule.chunk": 256}, Seeds(least=5), baselines=baselines)
    result.speedup.mean, result.step_s, result.status, result.error
"""

from oppo_sim.search.problem import Point, Problem, Unit
from oppo_sim.search.result import Result, Seeds, evaluate, is_enough, more_seeds, summed_up
from oppo_sim.search.units import Found, run_unit

__all__ = [
    "Found",
    "Point",
    "Problem",
    "Result",
    "Seeds",
    "Unit",
    "evaluate",
    "is_enough",
    "more_seeds",
    "run_unit",
    "summed_up",
]
