"""GeoPackage, GeoJSON and GeoParquet <-> tables of pyarrow with a column of geometry as well-known binary."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcfi.errors import FileError
from pcfi.files.opening import InputFile
from pcfi.optional import load

DRIVERS = {"gpkg": "GPKG", "geojson": "GeoJSON"}
GEOPARQUET = b"geo"  # key of the metadata of a Parquet file that has geometry
DEFAULT_CRS = "OGC:CRS84"  # of GeoParquet: longitude and latitude
GEOPARQUET_VERSION = "1.0.0"


@dataclass(frozen=True)
class GeometryColumn:
    """The column of a node table that holds geometry, and its coordinate reference system (None: unknown)."""

    name: str
    crs: Any

    def frame(self, table: Any) -> Any:
        """A GeoDataFrame of the geometry alone; rows are named by their numbers."""
        geopandas = load("geopandas", "geometry", "geo")
        series = geopandas.GeoSeries.from_wkb(table[self.name].to_pandas(), crs=self.crs)
        return geopandas.GeoDataFrame(geometry=series)

    def as_text(self, table: Any) -> Any:
        """The table with its geometry, if it has it, as well-known text, for text files."""
        import pyarrow as pa

        if self.name not in table.column_names:
            return table
        texts = pa.array(self.frame(table).geometry.to_wkt(), type=pa.string())
        return table.set_column(table.column_names.index(self.name), self.name, texts)


def read_geo(source: InputFile) -> tuple[Any, GeometryColumn | None]:
    """Read the first layer of a GeoPackage or GeoJSON file."""
    pyogrio = load("pyogrio", f"a file .{source.format.name}", "geo")
    if source.data is not None:
        raise FileError(f"a file .{source.format.name} cannot come from standard input: name the file")
    facts, table = pyogrio.read_arrow(source.path)
    name = facts["geometry_name"] or "wkb_geometry"
    if name not in table.column_names:
        return table, None
    return _as_large_binary(table, name), GeometryColumn(name, facts["crs"])


def geometry_of(table: Any, source: InputFile) -> tuple[Any, GeometryColumn | None]:
    """The geometry of a GeoParquet file; None if it is an ordinary table."""
    described = (table.schema.metadata or {}).get(GEOPARQUET)
    if described is None:
        return table, None
    facts = json.loads(described)
    name = facts["primary_column"]
    column = facts["columns"][name]
    if column.get("encoding", "WKB") != "WKB":
        raise FileError(f"{source.words} has geometry encoded as {column['encoding']}: write it as WKB")
    return _as_large_binary(table, name), GeometryColumn(name, column.get("crs", DEFAULT_CRS))


def read_geometry(path: str) -> Any:
    """A GeoDataFrame of the geometry of a GeoParquet file, or a folder of them, without its other columns."""
    from pyarrow import parquet

    source = InputFile.of_table(path)
    schema = parquet.read_schema(source.parts()[0].path)
    geometry = geometry_of(schema.empty_table(), source)[1]
    if geometry is None:
        raise FileError(f"{path} has no geometry to find neighbours by: name an edge file after it")
    return geometry.frame(parquet.read_table(path, columns=[geometry.name]))


def _as_large_binary(table: Any, name: str) -> Any:
    """The table with its geometry as binary, so that it is not treated as text."""
    import pyarrow as pa

    place = table.column_names.index(name)
    return table.set_column(place, name, table[name].cast(pa.large_binary()))


def with_geoparquet_metadata(table: Any, geometry: GeometryColumn) -> Any:
    """The table as GeoParquet: geometry in WKB, and the metadata that says so."""
    import pyarrow as pa

    pyproj = load("pyproj", "GeoParquet", "geo")
    crs = None if geometry.crs is None else pyproj.CRS.from_user_input(geometry.crs).to_json_dict()
    columns: dict[str, Any] = {geometry.name: {"encoding": "WKB", "geometry_types": [], "crs": crs}}
    facts = {"version": GEOPARQUET_VERSION, "primary_column": geometry.name, "columns": columns}
    place = table.column_names.index(geometry.name)
    table = table.set_column(place, geometry.name, table[geometry.name].cast(pa.binary()))
    return table.replace_schema_metadata({**(table.schema.metadata or {}), GEOPARQUET: json.dumps(facts).encode()})


def write_geo(tables: Iterator[Any], file: Any, layer: str, name: str, geometry: GeometryColumn) -> None:
    """Write the bytes of a GeoPackage or GeoJSON file, which GDAL can only write under a name of its own."""
    import shutil
    import tempfile
    from itertools import chain

    import pyarrow as pa

    pyogrio, pyproj = load("pyogrio", f"a file .{name}", "geo"), load("pyproj", f"a file .{name}", "geo")
    first = _as_binary(next(tables), geometry.name)
    parts = chain([first], (_as_binary(table, geometry.name) for table in tables))
    batches = (batch for part in parts for batch in part.combine_chunks().to_batches())
    crs = None if geometry.crs is None else pyproj.CRS.from_user_input(geometry.crs).to_wkt()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / f"map.{name}"
        pyogrio.write_arrow(
            pa.RecordBatchReader.from_batches(first.schema, batches),
            scratch,
            layer=layer,
            driver=DRIVERS[name],
            geometry_name=geometry.name,
            geometry_type="Unknown",
            crs=crs,
        )
        with scratch.open("rb") as written:
            shutil.copyfileobj(written, file)


def _as_binary(table: Any, name: str) -> Any:
    import pyarrow as pa

    return table.set_column(table.column_names.index(name), name, table[name].cast(pa.binary()))
