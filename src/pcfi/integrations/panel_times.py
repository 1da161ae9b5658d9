"""Time columns -> numbers, and phases of days, weeks and years."""

import re
import warnings
from datetime import UTC, datetime
from numbers import Real
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, ParameterError, PcfiWarning
from pcfi.inputs.ids import narwhals

DAY = 86_400.0
PERIODS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}  # seconds
MAX_PHASES = 2016  # five-minute steps of a week
MIN_PHASES = 4  # readings per period of a season
MIN_PERIODS = 3  # observed periods needed to consider a season
OFFSET = r"\d:\d\d.*([+-]\d\d(:?\d\d)?|Z)$"  # UTC offset, as in 2024-03-31 03:30:00+02:00


def read_times(series: Any, what: str) -> tuple[Array, Array | None]:
    """Times as numbers (seconds, or the numbers of the column), and local seconds if they are dates."""
    nw = narwhals()
    if series.is_null().any():
        row = int(np.argmax(series.is_null().to_numpy()))
        raise FeatureError(f"{what} is missing in row {row}: every row needs a time")
    if series.dtype.is_numeric():
        times = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
        if not np.isfinite(times).all():
            raise FeatureError(f"{what} is not finite in row {int(np.argmax(~np.isfinite(times)))}")
        return times, None
    if series.dtype in (nw.String, nw.Object) and re.search(OFFSET, str(series[0])):
        return _with_offsets(series.cast(nw.String).to_list(), what)
    dates = _as_dates(series, what)
    local = dates
    if getattr(dates.dtype, "time_zone", None) is not None:
        local, dates = dates.dt.replace_time_zone(None), dates.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return _seconds(dates), _seconds(local)


def _with_offsets(texts: list[str], what: str) -> tuple[Array, Array]:
    """Texts with UTC offsets, which may change with daylight saving time -> seconds, and local seconds."""
    different, place = np.unique(texts, return_inverse=True)
    seconds = np.empty((2, len(different)))
    for number, text in enumerate(different.tolist()):
        try:
            date = datetime.fromisoformat(text)
        except ValueError as error:
            raise FeatureError(f"{what} cannot be read as dates, first {text!r}: convert it first") from error
        offset = date.utcoffset()
        if offset is None:
            raise FeatureError(f"{what} holds {text!r} without a UTC offset, and others with one: use one format")
        local = date.replace(tzinfo=UTC).timestamp()
        seconds[:, number] = local - offset.total_seconds(), local
    return seconds[0][place], seconds[1][place]


def _seconds(dates: Any) -> Array:
    return np.asarray(dates.dt.timestamp("us").to_numpy(), dtype=np.float64) / 1e6


def _as_dates(series: Any, what: str) -> Any:
    nw = narwhals()
    if series.dtype == nw.Datetime:
        return series
    if series.dtype == nw.Date:
        return series.cast(nw.Datetime("us"))
    if series.dtype in (nw.String, nw.Object, nw.Categorical):
        texts = series.cast(nw.String)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # pandas guesses the format of text that is not a date
                dates = texts.str.to_datetime()
        except Exception as error:  # each library of tables raises its own
            raise FeatureError(f"{what} cannot be read as dates{_first_bad(texts)}: convert it first") from error
        _warn_of_ambiguity(texts, dates, what)
        return dates
    raise FeatureError(
        f"{what} holds {series.dtype}, but times must be dates, date strings, or numbers: convert it first"
    )


def _warn_of_ambiguity(texts: Any, dates: Any, what: str) -> None:
    """Warn how a date such as 05/01/2026 was read, if day and month could be swapped in all texts."""
    (first,), (date,) = texts.head(1).to_list(), dates.head(1).to_list()
    parts = re.match(r"(\d{1,2})[/.-](\d{1,2})[/.-]\d{4}", first or "")
    if parts and int(parts[1]) != int(parts[2]) and dates.dt.day().max() <= 12:
        warnings.warn(
            f"{what} is ambiguous: {first!r} is read as {date:%d %B %Y}; if that is wrong, convert it to dates first",
            PcfiWarning,
            stacklevel=6,
        )


def _first_bad(texts: Any) -> str:
    for row, text in enumerate(texts.to_list()):
        try:
            datetime.fromisoformat(text)
        except (TypeError, ValueError):
            return f", first {text!r} in row {row}"
    return ""


def phases_of(season: Any, times: Array, clock: Array | None, step: float) -> tuple[dict[str, Array], bool]:
    """Phase of each time in each season, and whether the caller specified the seasons."""
    if isinstance(season, str) and season == "auto":
        if clock is None:
            return {}, False
        span = float(clock.max() - clock.min())
        found = {
            name: period
            for name, period in PERIODS.items()
            if period >= MIN_PHASES * step and span >= MIN_PERIODS * period
        }
        return {name: _phases(clock, period, step) for name, period in found.items()}, False
    given = [] if season is None else [season] if isinstance(season, str | Real) else list(season)
    return {str(one): _phases(*_period(one, times, clock), step) for one in given}, True


def _period(season: Any, times: Array, clock: Array | None) -> tuple[Array, float]:
    if isinstance(season, str) and season in PERIODS:
        if clock is None:
            raise ParameterError(
                f"{season!r} needs dates, but the times are numbers: pass the period as a number", parameter="season"
            )
        return clock, PERIODS[season]
    is_number = isinstance(season, Real) and not isinstance(season, bool)
    if not is_number or not 0 < float(season) < np.inf:
        text = f"must be 'auto', None, 'day', 'week', 'year', a period in the unit of time, or a list, got {season!r}"
        raise ParameterError(text, parameter="season")
    return times, float(season)


def _phases(times: Array, period: float, step: float) -> Array:
    count = int(np.clip(np.rint(period / step), 1, MAX_PHASES))
    return np.floor((times % period) / period * count + 1e-9).astype(np.int64) % count


def distinct_times(times: Array) -> tuple[Array, Array]:
    """Distinct times in order, and the index of each time among them."""
    different, place = np.unique(times, return_inverse=True)
    return different, place.ravel()
