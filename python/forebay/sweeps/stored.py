"""Rows of runs in a folder or in a bucket, a Parquet file a batch.

A row is a run: its ``key``, the ``batch`` that it was made in, the columns of the table ``runs`` of a store, and what else
the store has of it (``metrics``, ``requests`` and so on) as lists of structs. A file is called by the runs in it, so that
who makes the same batch again writes the same file. It is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay import _forebay
from forebay.errors import InputError, RunError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

#: Columns of a table as ``_forebay`` gives them: name, type of the bytes that the values are, and values.
Columns = list[tuple[str, str | None, Any]]


class Job(NamedTuple):
    """A run that is wanted."""

    #: Digest of all that can influence the run, in hex.
    key: str
    arm: str
    cell: str
    seed: int


class Kept(NamedTuple):
    """Where a run is; the least of several is the best."""

    is_invalid: bool
    batch: str


class Stored:
    """The rows at one place.

    Args:
        out: A folder, or a URI such as ``s3://bucket/folder?endpoint_override=host:port&scheme=http``.

    Raises:
        InputError: There can be no rows at ``out``.
    """

    def __init__(self, out: str) -> None:
        from pyarrow import fs

        self.out = out
        try:
            if "://" in out:
                self._filesystem, root = fs.FileSystem.from_uri(out)
            else:
                self._filesystem, root = fs.LocalFileSystem(), os.path.abspath(out)
            #: Folder of the report: that of the rows, where it is on this machine.
            self.folder = Path(root) if isinstance(self._filesystem, fs.LocalFileSystem) else None
            self._root = f"{root.rstrip('/')}/runs"
            if self.folder is not None:
                self._filesystem.create_dir(self._root, recursive=True)
        except (OSError, ValueError) as error:
            allowed = "a folder that can be made and written, or a URI such as s3://bucket/folder"
            raise InputError(f"out = {out!r}: {error}: allowed is {allowed}") from error

    def put(self, jobs: Sequence[Job], tables: Sequence[tuple[str, Columns]]) -> str:
        """Keeps the rows of these jobs, in their order; gives the batch.

        Raises:
            RunError: The rows cannot be written.
        """
        import pyarrow as pa
        from pyarrow import parquet

        batch = hashlib.sha256("".join(job.key for job in jobs).encode()).hexdigest()[:32]
        buffer = pa.BufferOutputStream()
        parquet.write_table(_nested(jobs, batch, tables), buffer, compression="zstd")
        path = self._path(batch)
        # An object of a bucket is there once it is whole. A file is there at once, so it has another name until then.
        written = path if self.folder is None else f"{path}.{uuid.uuid4().hex}.partial"
        try:
            with self._filesystem.open_output_stream(written) as stream:
                stream.write(buffer.getvalue())
            if written != path:
                self._filesystem.move(written, path)
        except OSError as error:
            raise RunError(f"{self.out}: {error}") from error
        return batch

    def check(self, batch: str) -> None:
        """Refuses a folder that another machine, which has written ``batch``, sees otherwise."""
        if self.folder is not None and not os.path.exists(self._path(batch)):
            allowed = "a folder that all machines share, or a URI such as s3://bucket/folder"
            raise InputError(
                f"out = {self.out!r}: what a worker wrote is not here: allowed is {allowed}"
            )

    def index(self) -> dict[str, Kept]:
        """Where runs are, by key.

        Raises:
            RunError: A file is none of a sweep.
        """
        kept: dict[str, Kept] = {}
        for rows in self._batches(None, columns=["key", "batch", "valid"]):
            columns = (column.to_pylist() for column in rows.columns)
            for key, batch, valid in zip(*columns, strict=True):
                this = Kept(not valid, batch)
                kept[key] = min(this, kept.get(key, this))
        return kept

    def tables(self, batch: str, keys: Iterable[str]) -> dict[str, list[list[Any]]]:
        """The rows of a batch with one of ``keys``, by table of a store: its columns as ``_forebay.adopt`` takes them."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        is_wanted = ds.field("key").isin(list(keys))
        found = list(self._batches([self._path(batch)], filter=is_wanted))
        return _flat(pa.Table.from_batches(found, schema=_schema()))

    def dataset(self, files: Sequence[Any] | None = None) -> ds.Dataset:
        """These files, or all of them, for what reads datasets of Arrow."""
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


def parts() -> list[str]:
    """The tables that are columns of lists."""
    return [table for table, _ in _forebay.schema()[1:]]


def _types() -> dict[str, dict[str, pa.DataType]]:
    """The types of the columns of each table, by name; the table of runs is the first."""
    import pyarrow as pa

    kinds = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string()}
    return {table: {name: kinds[kind] for name, kind in of} for table, of in _forebay.schema()}


def _schema() -> pa.Schema:
    import pyarrow as pa

    fields = [pa.field("key", pa.string()), pa.field("batch", pa.string())]
    for table, columns in _types().items():
        # What ties rows together is where they are.
        of_table = [pa.field(name, it) for name, it in columns.items() if name not in ("id", "run")]
        if table == "runs":
            fields += of_table
        else:
            # Parquet calls it so, whatever it was called before.
            element = pa.field("element", pa.struct(of_table))
            fields.append(pa.field(table, pa.list_(element)))
    return pa.schema(fields)


def _nested(
    jobs: Sequence[Job], batch: str, tables: Sequence[tuple[str, Columns]]
) -> pa.Table:
    """The rows that ``tables`` are, one a job."""
    import numpy as np
    import pyarrow as pa

    types, schema = _types(), _schema()
    columns: dict[str, Any] = {"key": [job.key for job in jobs], "batch": [batch] * len(jobs)}
    ids = np.empty(0)
    for table, given in tables:
        arrays = {name: _array(kind, values, types[table][name]) for name, kind, values in given}
        if table == "runs":
            ids = arrays["id"].to_numpy()
            columns |= arrays
            continue
        of_run = arrays["run"].to_numpy()
        order = np.argsort(of_run, kind="stable")
        starts = np.searchsorted(of_run[order], ids)
        of_list = schema.field(table).type
        fields = list(of_list.value_type)
        struct = pa.StructArray.from_arrays([arrays[field.name] for field in fields], fields=fields)
        offsets, rows = pa.array([*starts, len(order)], pa.int32()), struct.take(pa.array(order))
        columns[table] = pa.ListArray.from_arrays(offsets, rows, type=of_list)
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def _array(kind: str | None, values: Any, to: pa.DataType) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    # A column of whole numbers some of which are missing comes as one of floats, with NaN there.
    plain = values if kind is None else np.frombuffer(values, dtype=kind)
    return pa.array(plain, from_pandas=True).cast(to)


def _flat(whole: pa.Table) -> dict[str, list[list[Any]]]:
    """The tables that were nested, each as its columns."""
    import pyarrow.compute as pc

    tables: dict[str, list[list[Any]]] = {}
    for table, types in _types().items():
        of: Mapping[str, list[Any]]
        if table == "runs":
            of = {name: whole[name].to_pylist() for name in types if name != "id"}
            of = {"id": list(range(whole.num_rows)), **of}
        else:
            lists = whole[table].combine_chunks()
            rows = lists.flatten()
            of = {name: rows.field(name).to_pylist() for name in types if name != "run"}
            of = {"run": pc.list_parent_indices(lists).to_pylist(), **of}
        tables[table] = [of[name] for name in types]
    return tables
