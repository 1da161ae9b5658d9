"""`pcfi impute` on maps: GeoPackage, GeoJSON and GeoParquet in and out, neighbours from geometry, a map to look at."""

import json
import re

import geopandas
import numpy as np
import pandas as pd
import pytest
from libpysal import examples
from shapely import GeometryCollection, LineString, box
from typer.testing import CliRunner

import pcfi
from pcfi.cli.app import app

pytestmark = pytest.mark.slow

READ = {"gpkg": geopandas.read_file, "geojson": geopandas.read_file, "parquet": geopandas.read_parquet}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("maps")
    shapes = geopandas.read_file(examples.get_path("columbus.shp"))[["HOVAL", "INC", "CRIME", "geometry"]]
    missing = np.random.default_rng(0).random(len(shapes)) < 0.3
    shapes["INC"] = shapes["INC"].mask(missing)
    shapes["tract"] = [f"tract {row}" for row in range(len(shapes))]
    shapes["rank"] = pd.array([None if row % 9 == 0 else row for row in range(len(shapes))], dtype="Int64")
    shapes = shapes.set_crs(32617)
    shapes.to_file(path / "map.gpkg")
    shapes.to_file(path / "map.geojson")
    shapes.to_parquet(path / "map.parquet")
    return path


def impute(*arguments):
    return CliRunner().invoke(app, ["impute", *map(str, arguments)])


@pytest.mark.parametrize("source", READ)
@pytest.mark.parametrize("target", READ)
def test_a_map_comes_back_with_intervals_beside_its_columns(folder, tmp_path, source, target):
    done = impute(
        folder / f"map.{source}", "-o", tmp_path / f"out.{target}", "--exclude", "rank", "--contiguity", "rook"
    )
    assert done.exit_code == 0, done.stderr
    before, after = READ[source](folder / f"map.{source}"), READ[target](tmp_path / f"out.{target}")
    expected = pcfi.geo.impute(before, channels=["HOVAL", "INC", "CRIME"], contiguity="rook", random_state=0)
    low, high = expected.interval(0.9)
    np.testing.assert_allclose(after["INC"], expected.values["INC"], rtol=1e-6)
    np.testing.assert_allclose(after["INC_low"], low["INC"], rtol=1e-6)
    np.testing.assert_allclose(after["INC_high"], high["INC"], rtol=1e-6)
    assert (after["INC_filled"].astype(bool) == before["INC"].isna()).all()
    assert "CRIME_low" not in after
    assert after.crs == before.crs
    assert after["tract"].tolist() == before["tract"].tolist()
    assert after["rank"].isna().sum() == 6
    assert after.geometry.geom_equals_exact(before.geometry, 1e-6).all()
    assert not list(tmp_path.glob(".*"))


def test_the_report_has_a_map_in_one_file(folder, tmp_path):
    paths = ["-o", tmp_path / "out.gpkg", "--report", tmp_path / "report.html", "--facts", tmp_path / "facts.json"]
    assert impute(folder / "map.gpkg", *paths, "--exclude", "rank").exit_code == 0
    page = (tmp_path / "report.html").read_text()
    spec = json.loads(re.search(r'id="spec-map">(.*?)</script>', page, flags=re.DOTALL)[1])
    features = spec["data"]["values"]
    assert len(features) == 49
    assert sum(one["properties"]["filled"][0] for one in features) == sum(
        one["properties"]["shown"][1] is not None for one in features
    )
    corners = np.concatenate([np.array(one["geometry"]["coordinates"][0]).reshape(-1, 2) for one in features])
    assert corners.min() == 0
    assert corners.max() == 1500
    assert "http" not in spec.get("url", "")
    assert spec["usermeta"]["aspect"] == round(float(np.ptp(corners[:, 1]) / np.ptp(corners[:, 0])), 3)
    done = CliRunner().invoke(app, ["report", str(tmp_path / "facts.json"), "-o", str(tmp_path / "again.html")])
    assert done.exit_code == 0, done.stderr
    assert 'id="spec-map"' in (tmp_path / "again.html").read_text()


def test_a_geometry_collection_is_drawn_by_its_areas(tmp_path):
    cells = [box(x, y, x + 1, y + 1) for y in range(6) for x in range(6)]
    cells[7] = GeometryCollection([cells[7], LineString([(1, 1), (2, 2)])])
    values = np.where(np.arange(36) % 5, np.arange(36.0), np.nan)
    geopandas.GeoDataFrame({"value": values}, geometry=cells, crs=3857).to_file(tmp_path / "map.gpkg")
    paths = ["-o", tmp_path / "out.gpkg", "--k", "4", "--report", tmp_path / "report.html"]
    done = impute(tmp_path / "map.gpkg", *paths)
    assert done.exit_code == 0, done.stderr
    assert (
        "GeometryCollection"
        not in re.search(r'id="spec-map">(.*?)</script>', (tmp_path / "report.html").read_text())[1]
    )


def test_three_thousand_polygons_make_a_small_page(tmp_path):
    cells = [box(x, y, x + 1, y + 1) for y in range(55) for x in range(55)]
    values = np.arange(3025.0) % 55
    values[::7] = np.nan
    shapes = geopandas.GeoDataFrame({"value": values}, geometry=cells, crs=3857)
    shapes.set_geometry(shapes.geometry.segmentize(0.05)).to_parquet(tmp_path / "map.parquet")
    done = impute(tmp_path / "map.parquet", "-o", tmp_path / "out.parquet", "--report", tmp_path / "report.html")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size < 2_500_000


def test_points_by_nearest_neighbours_and_other_commands(tmp_path):
    rng = np.random.default_rng(0)
    places = geopandas.GeoSeries.from_xy(*rng.random((2, 60)) * 1e4, crs=3857)
    values = np.where(rng.random(60) < 0.3, np.nan, places.x.to_numpy())
    geopandas.GeoDataFrame({"value": values}, geometry=places).to_file(tmp_path / "map.gpkg")
    assert impute(tmp_path / "map.gpkg", "-o", tmp_path / "out.csv", "--k", 4).exit_code == 0
    assert pd.read_csv(tmp_path / "out.csv")["geom"].str.startswith("POINT (").all()
    for command in ("info", "evaluate"):
        done = CliRunner().invoke(app, [command, str(tmp_path / "map.gpkg"), "--k", "4"])
        assert done.exit_code == 0, done.stderr


def test_points_larger_than_memory_stay_geoparquet(tmp_path):
    rng = np.random.default_rng(0)
    places = rng.random((500, 2)) * 1e4
    values = np.where(rng.random(500) < 0.3, np.nan, places[:, 0])
    points = geopandas.GeoDataFrame({"value": values}, geometry=geopandas.GeoSeries.from_xy(*places.T, crs=3857))
    points.to_parquet(tmp_path / "map.parquet")
    paper = ["--alpha", 0.5, "--beta", 0, "--objective", "representation"]
    done = impute(tmp_path / "map.parquet", "-o", tmp_path / "out.parquet", "--k", 5, "--memory", "1GB", *paper)
    assert done.exit_code == 0, done.stderr
    assert "ids in" not in done.stderr  # geometry was once taken for names
    filled = geopandas.read_parquet(tmp_path / "out.parquet")
    options = {"alpha": 0.5, "beta": 0.0, "objective": "representation"}
    np.testing.assert_allclose(filled["value"], pcfi.geo.impute(points, k=5, **options).values["value"], rtol=1e-3)
    assert filled.crs == points.crs
    assert {path.name for path in tmp_path.iterdir()} == {"map.parquet", "out.parquet"}


@pytest.mark.parametrize("suffix", ["gpkg", "geojson", "parquet", "csv"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_map_larger_than_memory_is_filled_by_the_better_weights(tmp_path, suffix, seed):
    rng = np.random.default_rng(seed)
    places = rng.random((300, 2)) * 1e4
    values = np.stack([places[:, 0], np.sin(places[:, 1] / 900)], axis=1) + (rng.normal(size=(300, 2)) if seed else 0)
    values[rng.random(values.shape) < 0.3] = np.nan
    columns = {"one": values[:, 0], "two": values[:, 1]}
    points = geopandas.GeoDataFrame(columns, geometry=geopandas.GeoSeries.from_xy(*places.T, crs=3857))
    points.to_file(tmp_path / "map.gpkg")
    found = []
    for way, budget in (("memory", []), ("disk", ["--memory", "1GB"])):
        folder = tmp_path / way
        folder.mkdir()
        target, facts = folder / f"out.{suffix}", folder / "facts.json"
        done = impute(tmp_path / "map.gpkg", "-o", target, "--k", 5, "--facts", facts, *budget)
        assert done.exit_code == 0, done.stderr
        assert {path.name for path in folder.iterdir()} == {target.name, facts.name}
        frame = pd.read_csv(target) if suffix == "csv" else geopandas.read_file(target) if suffix != "parquet" else None
        frame = geopandas.read_parquet(target) if frame is None else frame
        found.append((frame, json.loads(facts.read_text())))
    (left, one), (right, other) = found
    assert list(left.columns) == list(right.columns)
    assert "one_low" in left.columns
    for name in left.columns:
        if left[name].dtype.kind == "f":
            np.testing.assert_allclose(left[name], right[name], atol=1e-6 * np.ptp(left[name]))
        else:
            assert list(map(str, left[name])) == list(map(str, right[name]))
    assert one["graph"] == other["graph"]
    assert one["map"]["columns"] == other["map"]["columns"]
    assert [shape["filled"] for shape in one["map"]["shapes"]] == [shape["filled"] for shape in other["map"]["shapes"]]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["table.csv", "-o", "out.csv"], 1, "has no geometry to find neighbours by"),
        (["map.gpkg", "edges.csv", "-o", "out.gpkg", "--k", "3"], 2, "leave out the edge file"),
        (
            ["map.gpkg", "-o", "out.gpkg", "--k", "3", "--contiguity", "queen"],
            2,
            "alternative definitions of neighbours",
        ),
        (["map.gpkg", "-o", "out.gpkg", "--contiguity", "bishop"], 2, "--contiguity must be 'queen' or 'rook'"),
        (["table.csv", "edges.csv", "-o", "out.gpkg"], 1, "needs geometry"),
        (["plain.parquet", "-o", "out.parquet", "--memory", "1GB"], 1, "has no geometry to find neighbours by"),
        (["broken.gpkg", "-o", "out.gpkg"], 1, "cannot be read as gpkg"),
    ],
)
def test_errors_say_what_to_do(folder, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "map.gpkg").write_bytes((folder / "map.gpkg").read_bytes())
    (tmp_path / "broken.gpkg").write_bytes((folder / "map.gpkg").read_bytes()[:3000])
    (tmp_path / "table.csv").write_text("id,value\n0,1.5\n1,\n2,3\n")
    pd.DataFrame({"value": [1.0, 2.0]}).to_parquet(tmp_path / "plain.parquet")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    done = impute(*arguments)
    assert (done.exit_code, message in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("explain", ["--node", "tract 3", "--column", "INC"]),
        ("check", []),
        ("suggest", []),
        ("audit", ["--column", "INC"]),
    ],
)
def test_other_commands_take_maps_without_edges(folder, command, options):
    paths = [command, str(folder / "map.gpkg"), "--exclude", "rank", "--id", "tract", "-q"]
    done = CliRunner().invoke(app, [*paths, *options])
    assert done.exit_code == 0, done.stderr
    assert "tract " in done.stdout
    rook = CliRunner().invoke(app, [*paths, *options, "--contiguity", "rook", "--json"])
    assert rook.exit_code == 0, rook.stderr
    assert json.loads(rook.stdout)
