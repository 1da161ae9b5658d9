"""GeoDataFrames and spatial weights: the same container back, the graph from geometry, clear errors."""

import pickle
import warnings

import geopandas
import numpy as np
import pandas as pd
import pytest
from libpysal import examples
from libpysal.graph import Graph
from libpysal.weights import Queen, W
from shapely import Point, Polygon, box
from typer.testing import CliRunner

import pcfi
from pcfi.cli.app import app
from pcfi.inputs.code_columns import code_columns
from pcfi.inputs.node_tables import read_table
from pcfi.integrations.geo_graphs import Neighborhood, find_neighbors

COLUMNS = ["HOVAL", "INC", "CRIME"]


@pytest.fixture(scope="module")
def columbus():
    shapes = geopandas.read_file(examples.get_path("columbus.shp"))[[*COLUMNS, "DISCBD", "geometry"]]
    missing = np.random.default_rng(0).random((len(shapes), len(COLUMNS))) < 0.3
    shapes[COLUMNS] = shapes[COLUMNS].mask(missing)
    return shapes.set_crs(3857)


def squares(n_columns=3, n_rows=3, **columns):
    cells = [box(x, y, x + 1, y + 1) for y in range(n_rows) for x in range(n_columns)]
    return geopandas.GeoDataFrame(columns, geometry=cells, crs=3857)


def pairs(graph):
    matrix = graph.matrix().tocoo()
    return {(int(a), int(b)) for a, b in zip(*matrix.coords, strict=True) if a < b}


def test_a_geodataframe_stays_one_and_known_cells_and_the_input_stay_as_they_are(columbus):
    shapes = columbus.set_index(np.arange(100, 149))
    before = shapes.copy()
    result = pcfi.geo.impute(shapes)
    for table in (result.values, *result.interval(), result.expected_error):
        assert type(table) is geopandas.GeoDataFrame
        assert table.crs == shapes.crs
        assert list(table.columns) == list(shapes.columns)
        assert table.index.equals(shapes.index)
        assert table.geometry.geom_equals(shapes.geometry).all()
    known = shapes[COLUMNS].notna().to_numpy()
    assert (result.values[COLUMNS].to_numpy()[known] == shapes[COLUMNS].to_numpy()[known]).all()
    assert result.values[COLUMNS].notna().all().all()
    assert shapes.equals(before)


def test_graph_and_w_of_libpysal_give_the_numbers_of_the_same_adjacency(columbus):
    graph = Graph.build_contiguity(columbus, rook=False)
    expected = pcfi.impute(columbus, graph.sparse).values
    for weights in (graph, graph.to_W(), Queen.from_dataframe(columbus, use_index=False)):
        np.testing.assert_array_equal(pcfi.impute(columbus, weights).values[COLUMNS], expected[COLUMNS])
        np.testing.assert_array_equal(pcfi.geo.impute(columbus, graph=weights).values[COLUMNS], expected[COLUMNS])
    assert pcfi.prepare_graph(graph).n_edges == pcfi.geo.build_graph(columbus).n_edges
    np.testing.assert_array_equal(pcfi.geo.impute(columbus, weights="equal").values[COLUMNS], expected[COLUMNS])


def test_weights_are_matched_by_the_names_of_their_nodes(columbus):
    expected = pcfi.impute(columbus, Graph.build_contiguity(columbus, rook=False)).values
    named = columbus.set_index(np.array([f"tract {number}" for number in range(len(columbus))]))
    graph = Graph.build_contiguity(named, rook=False)
    shuffled = named.sample(frac=1, random_state=0)
    filled = pcfi.impute(shuffled, graph).values.loc[named.index]
    np.testing.assert_allclose(filled[COLUMNS], expected[COLUMNS], rtol=1e-6)
    with_ids = columbus.assign(tract=named.index)
    weights = Queen.from_dataframe(with_ids, ids="tract", use_index=False)
    np.testing.assert_allclose(pcfi.impute(with_ids, weights).values[COLUMNS], expected[COLUMNS], rtol=1e-6)
    with pytest.raises(pcfi.GraphError, match=r"the spatial weights has a node 'tract 0'"):
        pcfi.impute(named.iloc[1:], graph)


def test_a_w_without_ids_numbers_rows_whatever_the_index():
    weights = W({0: [1], 1: [0, 2], 2: [1]})
    table = squares(3, 1, value=[1.0, np.nan, 3.0]).set_index(np.array([7, 1, 0]))
    filled = pcfi.impute(table, weights, alpha=0.5, beta=0.0, objective="representation").values
    assert filled["value"].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(("contiguity", "expected"), [("rook", 4), ("queen", 8)])
def test_contiguity_counts_corners_or_borders(contiguity, expected):
    graph = pcfi.geo.build_graph(squares(), contiguity=contiguity)
    assert graph.degree[4] == expected


def test_points_have_eight_neighbours_and_polygons_borders_by_default():
    rng = np.random.default_rng(0)
    points = geopandas.GeoDataFrame(geometry=geopandas.GeoSeries.from_xy(*rng.random((2, 60)) * 1e5, crs=3857))
    assert pcfi.geo.build_graph(points).degree.min() == 8
    assert pairs(pcfi.geo.build_graph(squares())) == pairs(pcfi.geo.build_graph(squares(), contiguity="queen"))


def test_coincident_points_are_neighbours_of_each_other_and_never_of_themselves():
    places = geopandas.GeoSeries.from_xy([0, 0, 0, 0, 5e3], [0, 0, 0, 0, 0], crs=3857)
    points = geopandas.GeoDataFrame({"value": [1.0, None, 3, 2, 9]}, geometry=places)
    edges = find_neighbors(points, Neighborhood(k=2))
    assert (edges.ends[0] != edges.ends[1]).all()
    assert np.isfinite(edges.graph("distance").weights).all()
    filled = pcfi.geo.impute(points, k=2, weights="distance", alpha=1.0, beta=0.0, objective="representation").values
    assert filled["value"][1] == pytest.approx(2, abs=0.01)


def test_distances_in_degrees_are_taken_on_the_globe():
    # at 60 degrees north a degree of longitude is half a degree of latitude
    places = geopandas.GeoSeries.from_xy([0, 1.5, 0], [60, 60, 61], crs=4326)
    points = geopandas.GeoDataFrame(geometry=places)
    edges = find_neighbors(points, Neighborhood(k=1))
    nearest = dict(zip(*edges.ends, strict=True))
    assert nearest[0] == 1
    assert edges.lengths[0] == pytest.approx(83_400, rel=0.01)
    with pytest.warns(pcfi.PcfiWarning) as caught:
        assert pairs(pcfi.geo.build_graph(points, distance=100_000, islands="alone")) == {(0, 1)}
    assert "the distance 100000 is in metres on the globe" in str(caught[0].message)


def test_far_apart_places_across_the_date_line_are_near():
    points = geopandas.GeoDataFrame(geometry=geopandas.GeoSeries.from_xy([179.9, -179.9, 170], [0, 0, 0], crs=4326))
    assert (0, 1) in pairs(pcfi.geo.build_graph(points, k=1))


def test_a_missing_crs_is_mentioned_where_it_matters():
    points = geopandas.GeoDataFrame(geometry=geopandas.GeoSeries.from_xy([10, 11, 12], [50, 51, 52]))
    with pytest.warns(pcfi.PcfiWarning, match="no CRS"):
        pcfi.geo.build_graph(points, k=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pcfi.geo.build_graph(squares().set_crs(None, allow_override=True), contiguity="rook")


def test_islands_are_linked_or_left_alone_and_counted():
    shapes = squares(3, 1)
    shapes.loc[3, "geometry"] = box(10, 10, 11, 11)
    with pytest.warns(pcfi.PcfiWarning, match=r"1 place without a neighbour \(index 3\) is linked to the 3 nearest"):
        linked = pcfi.geo.build_graph(shapes)
    assert linked.degree.tolist() == [2, 3, 2, 3]
    with pytest.warns(pcfi.PcfiWarning, match="stays unlinked"):
        alone = pcfi.geo.build_graph(shapes, islands="alone")
    assert alone.degree[3] == 0


def test_weights_fall_with_distance_where_hidden_cells_prefer_it():
    rng = np.random.default_rng(0)
    clusters = rng.random((60, 2)) * 1e4
    places = np.concatenate([clusters, clusters + rng.normal(0, 30, clusters.shape)])
    level = np.tile(rng.standard_normal(60), 2)  # near twins have one level, and clusters are independent
    values = level + 0.1 * rng.standard_normal(120)
    values[rng.random(120) < 0.2] = np.nan
    points = geopandas.GeoDataFrame({"value": values}, geometry=geopandas.GeoSeries.from_xy(*places.T, crs=3857))
    auto, equal, distance = (pcfi.geo.impute(points, k=6, weights=one) for one in ("auto", "equal", "distance"))
    assert distance.tuning.error < equal.tuning.error
    assert auto.values.equals(distance.values)


def test_coordinates_help_as_columns_and_do_not_appear_in_the_result():
    rng = np.random.default_rng(0)
    places = rng.random((200, 2)) * 1e4
    table = {"value": places[:, 0] / 1e3 + 0.05 * rng.standard_normal(200), "x": np.arange(200.0)}
    points = geopandas.GeoDataFrame(table, geometry=geopandas.GeoSeries.from_xy(*places.T, crs=3857))
    truth = points["value"].copy()
    points.loc[places[:, 0] > 7e3, "value"] = np.nan  # beyond all known places: only a trend helps
    plain, trend = (pcfi.geo.impute(points, k=6, coordinates=one) for one in (False, True))
    gone = points["value"].isna()
    assert list(trend.values.columns) == ["value", "x", "geometry"]
    assert list(trend.interval()[0].columns) == ["value", "x", "geometry"]
    assert list(pickle.loads(pickle.dumps(trend)).expected_error.columns) == ["value", "x", "geometry"]
    error, of_plain = ((one.values["value"] - truth)[gone].abs().mean() for one in (trend, plain))
    assert error < of_plain


@pytest.mark.parametrize(
    ("geometry", "options", "message"),
    [
        ([box(0, 0, 1, 1), None, box(1, 0, 2, 1)], {}, r"1 row with missing or empty geometry \(index 1\)"),
        ([box(0, 0, 1, 1), Polygon()], {}, r"1 row with missing or empty geometry \(index 1\)"),
        ([box(0, 0, 1, 1), box(1, 0, 2, 1), Point(0, 0)], {"contiguity": "queen"}, r"other than polygons.*\(index 2\)"),
        ([box(0, 0, 1, 1), Polygon([(1, 0), (2, 1), (2, 0), (1, 1)])], {}, r"1 row with invalid geometry \(index 1\)"),
    ],
)
def test_bad_geometry_is_refused_by_row(geometry, options, message):
    shapes = geopandas.GeoDataFrame({"value": np.arange(float(len(geometry)))}, geometry=geometry, crs=3857)
    with pytest.raises(pcfi.FeatureError, match=message):
        pcfi.geo.impute(shapes, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contiguity": "bishop"}, "contiguity must be 'queen' or 'rook', got 'bishop'"),
        ({"k": 0}, "k must be an integer of at least 1"),
        ({"k": True}, "k must be an integer"),
        ({"distance": -1}, "distance must be a number above 0"),
        ({"k": 3, "distance": 2.0}, "k and distance are alternative definitions"),
        ({"islands": "sink"}, "islands must be 'nearest' or 'alone'"),
        ({"weights": "far"}, "weights must be one of"),
        ({"graph": np.empty((2, 0), int), "k": 3}, "graph already defines the neighbours"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(pcfi.ParameterError, match=message):
        pcfi.geo.impute(squares(value=np.arange(9.0)), **options)


def test_what_is_no_geodataframe_is_refused(columbus):
    with pytest.raises(pcfi.UnsupportedTypeError, match="must be a GeoDataFrame"):
        pcfi.geo.impute(columbus.drop(columns="geometry"))
    with pytest.raises(pcfi.FeatureError, match="no active geometry"):
        pcfi.geo.impute(geopandas.GeoDataFrame({"value": [1.0, None]}))
    with pytest.raises(pcfi.FeatureError, match="no rows"):
        pcfi.geo.impute(columbus.iloc[:0])


def test_coordinates_beyond_degrees_are_refused_where_the_crs_says_degrees():
    # metres in a file without a CRS are read as degrees, and distances on the globe would be anything
    places = geopandas.GeoDataFrame(
        {"x": [1.0, np.nan, 3.0] * 4}, geometry=[Point(500_000 + 10 * k, 91 + k) for k in range(12)], crs=4326
    )
    with pytest.raises(pcfi.FeatureError, match=r"12 rows with coordinates that are not degrees.*0, 1, 2, 3, ... 11"):
        pcfi.geo.impute(places)
    assert np.isfinite(pcfi.geo.impute(places.set_crs(3857, allow_override=True)).values["x"]).all()


def test_codes_among_the_columns_are_named_and_neighbours_are_not_taken_for_similar_rows():
    tracts = geopandas.read_file(examples.get_path("columbus.shp"))
    tracts["CRIME"] = tracts["CRIME"].mask(np.random.default_rng(0).random(len(tracts)) < 0.3)
    with pytest.warns(pcfi.ColumnWarning, match="'COLUMBUS_', 'COLUMBUS_I', 'POLYID', 'NEIG', 'NEIGNO' hold") as caught:
        pcfi.geo.impute(tracts)
    assert {warning.category for warning in caught} == {pcfi.ColumnWarning}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pcfi.geo.impute(tracts, channels=["CRIME", "INC", "POLYID"])


@pytest.mark.parametrize(
    ("name", "values", "is_code"),
    [
        ("station", np.arange(1, 41), True),
        ("FIPSNO", 37_001 + 2 * np.arange(40), True),
        ("year", 1_980 + np.arange(40), False),
        ("zip", 10_000 + 7 * np.arange(40.0), True),
        ("population", 1_000 + 7 * np.arange(40), False),
        ("rooms", np.arange(40) % 5, False),
        ("code", np.arange(40) % 5, False),
        ("key", np.arange(40) + 0.5, False),
    ],
)
def test_codes_are_whole_numbers_that_all_differ_and_are_consecutive_or_called_so(name, values, is_code):
    nodes = pd.DataFrame({name: values, "x": np.where(np.arange(40) % 3, 1.0, np.nan)})
    assert code_columns(read_table(nodes)) == [name] * is_code


def test_an_id_that_names_nobody_passes_through_where_geometry_makes_the_graph(tmp_path):
    count = np.where(np.arange(30) % 4, np.arange(30.0) ** 2, np.nan)
    places = geopandas.GeoDataFrame({"Id": 0, "count": count}, geometry=[Point(k, 0) for k in range(30)], crs=3857)
    result = pcfi.geo.impute(places)
    assert (result.values["Id"] == 0).all()
    assert [report.name for report in result.columns] == ["count"]
    assert result.values["count"].notna().all()
    edges = pd.DataFrame({"source": np.arange(29), "target": np.arange(1, 30)})
    with pytest.raises(pcfi.FeatureError, match="the id 0 is duplicated in the column 'Id'"):
        pcfi.geo.impute(places, graph=edges)
    places.to_file(tmp_path / "places.gpkg")
    done = CliRunner().invoke(app, ["impute", str(tmp_path / "places.gpkg"), "-o", str(tmp_path / "filled.gpkg")])
    assert done.exit_code == 0, done.stderr
    assert (geopandas.read_file(tmp_path / "filled.gpkg")["Id"] == 0).all()
