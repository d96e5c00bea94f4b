"""Rows of runs in a folder or in a bucket, one Parquet file per batch.

A row is a run: its ``key``, its ``batch``, the columns of the store's table ``runs``, and its rows in the other tables
(``metrics``, ``requests`` and so on) as lists of structs. ``series`` is null if quantities over time were not kept. The name
of a file follows from its runs and their results. So the same batch gives the same file, and a run stored as failed does
not overwrite a finished one. A file appears only when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay import _forebay
from forebay.errors import InputError, RunError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

#: Columns of a table as ``_forebay`` gives them: name, type of the values in bytes, and values.
Columns = list[tuple[str, str | None, Any]]


#: A partial file that has not grown for this time (s) is stale: its rows existed before it was begun.
_STALE_S = 3600.0


class Job(NamedTuple):
    """A run that is wanted."""

    #: Digest of everything that can influence the run, in hex.
    key: str
    arm: str
    cell: str
    seed: int


class Kept(NamedTuple):
    """The place of a run. Of several, the smallest is the best."""

    is_invalid: bool
    #: Without quantities over time.
    is_short: bool
    batch: str


class Stored:
    """The rows at one place.

    Args:
        out: A folder, or a URI such as ``s3://bucket/folder?endpoint_override=host:port&scheme=http``.

    Raises:
        InputError: ``out`` cannot hold rows.
    """

    def __init__(self, out: str) -> None:
        from pyarrow import fs

        self.out = out
        try:
            if "://" in out:
                self._filesystem, root = fs.FileSystem.from_uri(out)
            else:
                self._filesystem, root = fs.LocalFileSystem(), os.path.abspath(out)
            #: Folder of the rows and of the report; None if the rows are in a bucket.
            self.folder = Path(root) if isinstance(self._filesystem, fs.LocalFileSystem) else None
            self._root = f"{root.rstrip('/')}/runs"
            if self.folder is not None:
                _make(Path(self._root))
        except (OSError, ValueError) as error:
            allowed = "a folder that can be made and written, or a URI such as s3://bucket/folder"
            raise InputError(f"out = {out!r}: {error}: allowed is {allowed}") from error

    def put(
        self, jobs: Sequence[Job], endings: Sequence[str], tables: Sequence[tuple[str, Columns]]
    ) -> str:
        """Stores the rows of jobs and their results, in order. Returns the batch.

        Raises:
            RunError: The rows cannot be written.
        """
        import pyarrow as pa
        from pyarrow import parquet

        known = [*(job.key for job in jobs), *endings, str(len(tables))]
        batch = hashlib.sha256("".join(known).encode()).hexdigest()[:32]
        buffer = pa.BufferOutputStream()
        parquet.write_table(_nested(jobs, batch, tables), buffer, compression="zstd")
        path = self._path(batch)
        try:
            if self.folder is None:
                # An object in a bucket appears only when it is complete.
                with self._filesystem.open_output_stream(path) as stream:
                    stream.write(buffer.getvalue())
            else:
                _write(Path(path), buffer.getvalue())
        except OSError as error:
            raise RunError(f"{self.out}: {error}") from error
        return batch

    def check(self, batch: str) -> None:
        """Refuses a folder without ``batch``, which another machine has written: the machines do not share it."""
        if self.folder is not None and not os.path.exists(self._path(batch)):
            allowed = "a folder that all machines share, or a URI such as s3://bucket/folder"
            raise InputError(
                f"out = {self.out!r}: the file of a worker is missing: allowed is {allowed}"
            )

    def remove_stale(self) -> None:
        """Removes partial files of killed sweeps."""
        if self.folder is None:
            return
        for partial in Path(self._root).glob("*.parquet.*.partial"):
            # Another sweep may remove the file first; files of another user may stay.
            with contextlib.suppress(OSError):
                if time.time() - partial.lstat().st_mtime > _STALE_S:
                    partial.unlink()

    def index(self) -> dict[str, Kept]:
        """The places of runs, by key.

        Raises:
            RunError: A file does not belong to a sweep.
        """
        kept: dict[str, Kept] = {}
        for rows in self._batches(None, columns=["key", "batch", "over_time", "valid"]):
            columns = (column.to_pylist() for column in rows.columns)
            for key, batch, over_time, valid in zip(*columns, strict=True):
                this = Kept(not valid, not over_time, batch)
                kept[key] = min(this, kept.get(key, this))
        return kept

    def tables(self, batch: str, keys: Iterable[str]) -> dict[str, list[list[Any]]]:
        """The rows of a batch with these ``keys``, by table of a store, as columns for ``_forebay.adopt``."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        is_wanted = ds.field("key").isin(list(keys))
        found = list(self._batches([self._path(batch)], filter=is_wanted))
        return _flat(pa.Table.from_batches(found, schema=_schema()))

    def dataset(self, files: Sequence[Any] | None = None) -> ds.Dataset:
        """These files, or all files, as an Arrow dataset."""
        import pyarrow.dataset as ds
        from pyarrow import fs

        if files is None:
            there = fs.FileSelector(self._root, allow_not_found=True)
            found = self._filesystem.get_file_info(there)
            files = [it for it in found if it.path.endswith(".parquet")]
        if not files:
            return ds.dataset(_schema().empty_table())
        return ds.dataset(files, _schema(), format="parquet", filesystem=self._filesystem)

    def _batches(self, files: Sequence[Any] | None, **what: Any) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            yield from self.dataset(files).to_batches(**what)
        except (pa.ArrowException, OSError) as error:
            raise RunError(f"{self.out}: {error}") from error

    def _path(self, batch: str) -> str:
        return f"{self._root}/{batch}.parquet"


def _write(path: Path, content: Any) -> None:
    """Writes a file that is complete or absent, also after a power failure."""
    # A file is visible as soon as it is created, so it has another name until it is complete.
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _make(folder: Path) -> None:
    """Makes a folder and its parents, which persist after a power failure."""
    missing = [it for it in (folder, *folder.parents) if not it.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        _sync(made.parent)


def _sync(folder: Path) -> None:
    """Waits until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems can sync files only.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def parts() -> list[str]:
    """The list columns, each a table of a store. ``series`` includes ``samples``."""
    return [field.name for field in _schema() if _is_list(field)]


def _is_list(field: pa.Field) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(field.type))


def _types() -> dict[str, dict[str, pa.DataType]]:
    """The column types of each table, by name. The table of runs is the first."""
    import pyarrow as pa

    kinds = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string()}
    return {table: {name: kinds[kind] for name, kind in of} for table, of in _forebay.schema()}


def _list_of(it: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    # Parquet uses this name for elements, whatever their name was before.
    return pa.list_(pa.field("element", it))


def _schema() -> pa.Schema:
    import pyarrow as pa

    fields = [pa.field("key", pa.string()), pa.field("batch", pa.string())]
    fields.append(pa.field("over_time", pa.bool_()))
    types = _types()
    samples = types.pop("samples")
    for table, columns in types.items():
        # The position of rows links them, so the id columns are left out.
        of_table = [pa.field(name, it) for name, it in columns.items() if name not in ("id", "run")]
        if table == "series":
            of_table += [pa.field(name, _list_of(samples[name])) for name in ("at_s", "value")]
        is_first = table == "runs"
        fields += of_table if is_first else [pa.field(table, _list_of(pa.struct(of_table)))]
    return pa.schema(fields)


def _nested(jobs: Sequence[Job], batch: str, tables: Sequence[tuple[str, Columns]]) -> pa.Table:
    """Makes ``tables`` rows, one per job."""
    import pyarrow as pa

    schema, types = _schema(), _types()
    arrays: dict[str, dict[str, pa.Array]] = {}
    for table, given in tables:
        # Whole numbers with missing values come as floats, with NaN for missing. No sample is missing.
        missing = table != "samples"
        of = types[table]
        arrays[table] = {name: _array(kind, it, missing).cast(of[name]) for name, kind, it in given}
    over_time = "series" in arrays
    columns: dict[str, Any] = {
        **arrays["runs"],
        "key": [job.key for job in jobs],
        "batch": [batch] * len(jobs),
        "over_time": [over_time] * len(jobs),
        "series": pa.nulls(len(jobs), schema.field("series").type),
    }
    if over_time:
        of_series, samples = arrays["series"], arrays.pop("samples")
        for name in ("at_s", "value"):
            of_series[name] = _grouped(of_series["id"], samples["series"], samples[name])
    for table in parts():
        if table in arrays:
            fields = list(schema.field(table).type.value_type)
            of_table = [arrays[table][field.name] for field in fields]
            rows = pa.StructArray.from_arrays(of_table, fields=fields)
            columns[table] = _grouped(arrays["runs"]["id"], arrays[table]["run"], rows)
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def _grouped(ids: pa.Array, of: pa.Array, rows: pa.Array) -> pa.Array:
    """Lists of rows: for each of ``ids``, in any order, the rows whose ``of`` is this id."""
    import numpy as np
    import pyarrow as pa

    known = ids.to_numpy()
    ascending = np.argsort(known)
    lists = ascending[np.searchsorted(known, of.to_numpy(), sorter=ascending)]
    order = np.argsort(lists, kind="stable")
    starts = np.searchsorted(lists[order], np.arange(len(known)))
    offsets = pa.array(np.append(starts, len(order)), pa.int32())
    return pa.ListArray.from_arrays(offsets, rows.take(pa.array(order)), type=_list_of(rows.type))


def _array(kind: str | None, values: Any, has_missing: bool) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    plain = values if kind is None else np.frombuffer(values, dtype=kind)
    return pa.array(plain, from_pandas=has_missing)


def _flat(whole: pa.Table) -> dict[str, list[list[Any]]]:
    """Turns nested rows back into tables, each as its columns."""
    types = _types()
    runs = {name: whole[name] for name in types["runs"] if name != "id"}
    found: dict[str, dict[str, Any]] = {"runs": {"id": range(whole.num_rows), **runs}}
    for table in parts():
        found[table] = _ungrouped("run", whole[table].combine_chunks())
    series = found["series"]
    found["samples"] = {
        **_ungrouped("series", series["at_s"], "at_s"),
        **_ungrouped("series", series["value"], "value"),
    }
    series["id"] = range(len(series["run"]))
    found["samples"]["number"] = range(len(found["samples"]["series"]))
    return {table: [_plain(found[table][name]) for name in of] for table, of in types.items()}


def _ungrouped(of: str, lists: pa.Array, name: str | None = None) -> dict[str, Any]:
    """The columns of rows in lists: the number of the list, and the members; plain values get the name ``name``."""
    import pyarrow.compute as pc

    rows = lists.flatten()
    columns = {name: rows} if name else {it.name: rows.field(it.name) for it in rows.type}
    return {of: pc.list_parent_indices(lists), **columns}


def _plain(column: Any) -> list[Any]:
    return list(column if isinstance(column, range) else column.to_pylist())
