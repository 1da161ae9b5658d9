"""Values, intervals and reports of columns from files: those of `pcfi.impute`, whatever the cut, whoever is killed."""

import warnings

import numpy as np
import pytest

import pcfi
from pcfi import scale
from pcfi.estimation import sample
from pcfi.explanation import error_relations
from pcfi.files.paths import remove
from pcfi.outofcore import plan
from pcfi.outofcore.folder import WorkFolder

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning"),
]

N_NODES, N_CHANNELS = 2500, 9
TOLERANCE = 1e-6  # of the range of a column
SEED = 5


def table(dtype=np.float64, *, grows: bool = False, whole_rows: bool = False):
    """Columns of every kind: smooth, skewed, binary, constant, far from 0, complete, empty; and nodes out of reach."""
    rng = np.random.default_rng(0)
    path = np.stack([np.arange(N_NODES - 6), np.arange(1, N_NODES - 5)])
    popular = (rng.random(N_NODES - 5) ** 3 * 300).astype(int) if grows else rng.integers(0, N_NODES - 5, N_NODES - 5)
    edges = np.concatenate([path, np.stack([np.arange(N_NODES - 5), popular])], axis=1)
    graph = pcfi.prepare_graph(edges, N_NODES)
    degree, field = np.maximum(graph.degree, 1)[:, None], rng.normal(size=(N_NODES, N_CHANNELS))
    for _ in range(6):
        field = (field + graph.matrix() @ field / degree) / 2
    values = field / field.std(axis=0) + 0.4 * rng.normal(size=field.shape)
    values = np.abs(values) * degree**0.5 if grows else values
    values[:, 1] = np.exp(values[:, 1] / values[:, 1].std())
    values[:, 2] = values[:, 1] > 1
    values[:, 3] = 5
    values[:, 4] = values[:, 0] + 0.1 * values[:, 4]
    values[:, 5] += 1e5
    missing = rng.random((N_NODES, 1) if whole_rows else values.shape) < 0.5
    values = np.where(missing, np.nan, values).astype(dtype)
    values[:, 6] = np.where(np.isnan(values[:, 6]), 3, values[:, 6])
    values[:, 7] = np.nan
    return values, edges


def assert_same(stored, expected, values):
    """Values, intervals, expected errors, report and parameters agree."""
    ranges = np.nan_to_num(np.ptp(np.nan_to_num(values, nan=np.nanmean(values[:, 0])), axis=0), nan=1.0)
    ranges = np.where(ranges > 0, ranges, 1.0)
    intervals, (low, high) = pq.read_table(stored.intervals), expected.interval(0.9)
    pairs = [(np.asarray(stored.open()), expected.values)]
    if stored.draws:
        drawn = expected.draws(len(stored.draws), random_state=SEED)
        pairs += [(np.load(path), one) for path, one in zip(stored.draws, drawn, strict=True)]
    for ending, part in (("low", low), ("high", high), ("error", expected.expected_error)):
        columns = [intervals[f"channel_{k}_{ending}"].to_numpy() for k in range(N_CHANNELS)]
        pairs.append((np.stack(columns, axis=1), part))
    for found, wanted in pairs:
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
        with np.errstate(invalid="ignore"):
            apart = np.abs(found.astype(float) - wanted.astype(float)) / ranges
        assert np.nanmax(apart) < TOLERANCE
    assert repr(stored.columns) == repr(expected.columns)
    assert len(stored.columns) == N_CHANNELS
    for name in ("alpha", "beta", "objective", "steps", "status", "n_missing", "n_unreachable", "shape"):
        assert getattr(stored, name) == getattr(expected, name), name
    known = ~np.isnan(values)
    np.testing.assert_array_equal(stored.open()[known], values[known])


OUTPUTS = ("y.npy", "y.draw1.npy", "y.draw2.npy")


def both(folder, values, edges, draws=0, **parameters):
    np.save(folder / "x.npy", values)
    np.save(folder / "e.npy", edges)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.PcfiWarning)
        parameters = {"random_state": SEED, **parameters}
        expected = pcfi.impute(values, edges, **parameters)
        paths = (folder / name for name in ("x.npy", "e.npy", "y.npy"))
        stored = scale.impute(*paths, intervals=folder / "i.parquet", draws=draws, **parameters)
    return stored, expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("cut", [(1024, 1 << 26), (300, 20_000)])
def test_values_and_intervals_are_those_of_impute(tmp_path, monkeypatch, dtype, sampled, cut):
    monkeypatch.setattr(plan, "MIN_RANGE_ROWS", cut[0])
    monkeypatch.setattr(plan, "MAX_CHUNK_BYTES", cut[1])
    if sampled:
        monkeypatch.setattr(sample, "MAX_NODES", 1000)
        monkeypatch.setattr(sample, "MAX_NODES_PER_CORE", 20)
        monkeypatch.setattr(error_relations, "MAX_CELLS", 500 * N_CHANNELS)
    values, edges = table(dtype)
    stored, expected = both(tmp_path, values, edges, draws=2)
    assert expected.cells.model.scale.logarithmic.any()
    assert_same(stored, expected, values)
    assert {path.name for path in tmp_path.iterdir()} == {"x.npy", "e.npy", "i.parquet", *OUTPUTS}


@pytest.mark.parametrize(
    "parameters",
    [
        {"alpha": 0.7, "beta": 0.5},
        {"unreachable": "nan"},
        {"unreachable": "zero", "random_state": 3},
        {"solver": pcfi.FixedSteps(9)},
    ],
    ids=str,
)
def test_parameters_mean_the_same(tmp_path, parameters):
    values, edges = table()
    assert_same(*both(tmp_path, values, edges, **parameters), values)


@pytest.mark.parametrize("sampled", [False, True])
def test_columns_that_grow_with_the_degree_are_divided_by_it(tmp_path, monkeypatch, sampled):
    from pcfi.estimation import fitting

    search = fitting.search_alpha

    def scaled(*arguments):
        return sorted(search(*arguments), key=lambda one: not one.by_degree)

    monkeypatch.setattr(fitting, "search_alpha", scaled)
    monkeypatch.setattr(fitting, "grows_with_degree", lambda *_: True)
    if sampled:
        monkeypatch.setattr(sample, "MAX_NODES", 1000)
    values, edges = table(grows=True)
    stored, expected = both(tmp_path, values, edges, draws=0 if sampled else 1)
    assert expected.tuning.by_degree
    assert_same(stored, expected, values)


def test_whole_rows_that_are_missing_and_a_mask(tmp_path):
    values, edges = table(whole_rows=True)
    assert_same(*both(tmp_path, values, edges, draws=1), values)


def test_a_representation_is_tuned_by_the_same_rule(tmp_path):
    values, edges = table()
    np.save(tmp_path / "x.npy", values)
    np.save(tmp_path / "e.npy", edges)
    expected = pcfi.impute(values, edges, objective="representation")
    stored = scale.impute(tmp_path / "x.npy", tmp_path / "e.npy", tmp_path / "y.npy", objective="representation")
    assert (stored.alpha, stored.beta, stored.objective) == (expected.alpha, expected.beta, "representation")
    np.testing.assert_allclose(stored.open(), expected.values, rtol=1e-6, atol=1e-6)


def test_values_that_stage_2_takes_far_away_are_warned_of(tmp_path):
    rng = np.random.default_rng(0)
    values, edges = rng.normal(size=(60, 3)) * [1e-3, 1, 1e6], np.stack([np.arange(59), np.arange(1, 60)])
    values[:, 0] += values[:, 2] / 1e9
    values[rng.random(values.shape) < 0.4] = np.nan
    np.save(tmp_path / "x.npy", values)
    np.save(tmp_path / "e.npy", edges)
    options = {"alpha": 0.5, "beta": 1.0, "objective": "representation"}
    with pytest.warns(pcfi.ScaleWarning) as expected:
        pcfi.impute(values, edges, **options)
    with pytest.warns(pcfi.ScaleWarning) as told:
        scale.impute(tmp_path / "x.npy", tmp_path / "e.npy", tmp_path / "y.npy", **options)
    assert [str(one.message) for one in told] == [str(one.message) for one in expected]


def test_too_few_known_cells_are_said_to_be(tmp_path):
    values = np.full((40, 2), np.nan)
    values[:2] = [[1.0, 2.0], [3.0, 4.0]]
    edges = np.stack([np.arange(39), np.arange(1, 40)])
    np.save(tmp_path / "x.npy", values)
    np.save(tmp_path / "e.npy", edges)
    with pytest.warns(pcfi.TuningWarning, match="halfway") as told:
        stored = scale.impute(tmp_path / "x.npy", tmp_path / "e.npy", tmp_path / "y.npy")
    with pytest.warns(pcfi.TuningWarning) as expected:
        result = pcfi.impute(values, edges)
    assert [str(one.message) for one in told] == [str(one.message) for one in expected]
    np.testing.assert_allclose(stored.open(), result.values, rtol=1e-9)


class Killed(BaseException):
    """What stands for a process that is killed."""


STAGES = [
    "survey",
    "hops",
    "sample",
    "fit",
    "prepare",
    "split",
    "diffuse",
    "spread",
    "relate",
    "scale",
    "field",
    "write",
]


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_that_is_killed_in_any_stage_goes_on_to_the_same_bits(tmp_path, monkeypatch, stage):
    values, edges = table()
    expected, _ = both(tmp_path, values, edges, draws=2)
    whole = np.load(expected.values), pq.read_table(expected.intervals)
    paths = (tmp_path / "x.npy", tmp_path / "e.npy", tmp_path / "z.npy")
    more = {"intervals": tmp_path / "j.parquet", "draws": 2, "random_state": SEED}
    record = WorkFolder.record

    def killed(self, name, index, facts):
        record(self, name, index, facts)
        if name == stage:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "record", killed)
        with pytest.raises(Killed):
            scale.impute(*paths, **more)
    stored = scale.impute(*paths, **more)
    np.testing.assert_array_equal(np.load(stored.values), whole[0])
    for path, drawn in zip(stored.draws, expected.draws, strict=True):
        np.testing.assert_array_equal(np.load(path), np.load(drawn))
    assert pq.read_table(stored.intervals).equals(whole[1])
    assert not list(tmp_path.glob("*.work*"))


@pytest.mark.parametrize(
    "name",
    [
        "model.npz",
        "tuning.json",
        "moments-0.npy",
        "sample-values-0.npy",
        "sample-nodes.npy",
        "spread-0.raw",
        "relation-shares.npy",
        "field-scale-0.raw",
        "field-0-0.raw",
    ],
)
def test_damaged_files_of_the_fit_are_made_again(tmp_path, monkeypatch, name):
    values, edges = table()
    expected, _ = both(tmp_path, values, edges, draws=1)
    whole = np.load(expected.values), pq.read_table(expected.intervals)
    remove(tmp_path / "i.parquet")
    last = "sample" if name.startswith(("moments", "sample")) else "spread" if "spread" in name else "field"
    more = {"intervals": tmp_path / "i.parquet", "draws": 1, "random_state": SEED}
    paths = (tmp_path / "x.npy", tmp_path / "e.npy", tmp_path / "z.npy")
    record = WorkFolder.record

    def killed(self, stage, index, facts):
        record(self, stage, index, facts)
        if stage == last:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "record", killed)
        with pytest.raises(Killed):
            scale.impute(*paths, **more)
    damaged = tmp_path / "z.npy.work" / name
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 255
    damaged.write_bytes(content)
    with pytest.warns(pcfi.PcfiWarning, match=f"changed while the run was stopped.*{name}"):
        stored = scale.impute(*paths, **more)
    np.testing.assert_array_equal(np.load(stored.values), whole[0])
    np.testing.assert_array_equal(stored.open("draw1"), np.load(expected.draws[0]))
    assert pq.read_table(stored.intervals).equals(whole[1])


def test_what_intervals_need_is_refused_before_any_work(tmp_path):
    values, edges = table()
    np.save(tmp_path / "x.npy", values)
    np.save(tmp_path / "e.npy", edges)
    paths = (tmp_path / "x.npy", tmp_path / "e.npy", tmp_path / "y.npy")
    with pytest.raises(pcfi.ParameterError, match="intervals belong to objective='values'"):
        scale.impute(*paths, intervals=tmp_path / "i.parquet", objective="representation")
    with pytest.raises(pcfi.ParameterError, match=r"intervals is .* but must end in"):
        scale.impute(*paths, intervals=tmp_path / "i.npy")
    with pytest.raises(pcfi.ParameterError, match="coverage must be"):
        scale.impute(*paths, intervals=tmp_path / "i.parquet", coverage=1.0)
    with pytest.raises(pcfi.ParameterError, match="draws belong to objective='values'"):
        scale.impute(*paths, draws=2, unreachable="zero")
    for draws in (-1, 1.5, True):
        with pytest.raises(pcfi.ParameterError, match="draws must be an integer"):
            scale.impute(*paths, draws=draws)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.npy", "x.npy"]


def test_draws_without_errors_are_refused_and_nothing_is_left(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[1.0], [np.nan], [3.0]]))
    np.save(tmp_path / "e.npy", np.array([[0, 1], [1, 2]]))
    with pytest.raises(pcfi.FeatureError, match="too few cells of channel 0 could be hidden"):
        scale.impute(tmp_path / "x.npy", tmp_path / "e.npy", tmp_path / "y.npy", draws=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.npy", "x.npy"]
