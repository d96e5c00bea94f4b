"""Runs, and results read from their folder."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import figures

import forebay


def test_a_run_has_metrics_and_a_report(result):
    assert result.valid and len(result.runs) == 2
    assert [run["seed"] for run in result.runs] == [1, 2]
    assert result.runs[0]["flows"][0]["metrics"]["goodput_mbps"] > 6
    assert result.summary[0]["runs"] == 2
    assert result.report.is_file()


def test_threads_and_a_second_call_change_nothing(plan, result, tmp_path):
    threads = forebay.run(plan, out=tmp_path, jobs=2, progress=False)
    assert figures(threads) == figures(result)
    told = []
    again = forebay.run(plan, out=tmp_path, progress=lambda *progress: told.append(progress))
    assert figures(again) == figures(result)
    assert [(number, total, ending) for _, number, total, _, ending in told] == [
        (1, 2, "in the store"),
        (2, 2, "in the store"),
    ]
    assert figures(forebay.load(tmp_path)) == figures(result)


def test_command_gives_identical_figures(tmp_path):
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[2] / "target"))
    programs = [it for it in target.glob("*/forebay") if it.is_file()]
    if not programs:
        pytest.skip(f"no program forebay in {target} (cargo build)")
    program = max(programs, key=lambda it: it.stat().st_mtime)
    sets = {"stop": "3s", "warmup": "1s"}
    arguments = [argument for it in sets.items() for argument in ("--set", "=".join(it))]
    command = [program, "run", "bundler/queue_shift", "--backend", "sim", "--seed", "1", "--json"]
    command += ["--arms", "copa_sfq", "--out", tmp_path / "command", *arguments]
    done = subprocess.run(command, capture_output=True, check=True)
    plan = forebay.Plan("bundler/queue_shift", sets).with_arms(["copa_sfq"])
    result = forebay.run(plan, seeds=1, out=tmp_path / "python", progress=False)
    theirs = json.loads(done.stdout)
    for part in ("metrics", "flows", "links", "bundles"):
        assert result.runs[0][part] == theirs["runs"][0][part]
    assert [arm["metrics"] for arm in result.summary] == [arm["metrics"] for arm in theirs["summary"]]


def test_tables_are_columns(result):
    metrics = result.metrics
    is_goodput = (metrics["metric"] == "goodput_mbps") & (metrics["part"] == "flow")
    assert list(metrics["value"][is_goodput]) == [
        run["flows"][0]["metrics"]["goodput_mbps"] for run in result.runs
    ]
    runs = result.table("runs")
    assert runs["id"].dtype == np.int64 and list(runs["seed"]) == [1, 2]
    samples = result.table("samples")
    assert samples["value"].dtype == np.float64 and samples.rows == len(samples["at_s"]) > 0
    with pytest.raises(forebay.InputError, match="allowed is one of plans"):
        result.table("nothing")


def test_a_series_is_over_time(result):
    run = int(result.table("runs")["id"][0])
    times, packets = result.series(run, "link", "forward", "queue_packets")
    assert times.shape == packets.shape and times[-1] > 3 and packets.max() > 0
    for asked, match in [
        ((run, "link", "forward", "nothing"), "quantity = 'nothing': allowed is one of .*queue_packets"),
        ((run, "link", "backward", "queue_packets"), "name = 'backward': allowed is one of forward"),
        ((run, "lnk", "forward", "queue_packets"), "part = 'lnk': allowed is one of flow, link"),
        ((99, "link", "forward", "queue_packets"), "run = 99: allowed is one of 1, 2"),
    ]:
        with pytest.raises(forebay.InputError, match=match):
            result.series(*asked)


def test_frames_have_the_rows(result):
    pytest.importorskip("pyarrow")
    frame = pytest.importorskip("polars")
    table = result.table("runs")
    assert table.to_arrow().num_rows == 2
    assert table.to_polars()["arm"].dtype == frame.String
    assert list(table.to_pandas()["seed"]) == [1, 2]
    assert result.metrics.to_polars().height == result.metrics.rows
    whole = pytest.importorskip("pandas").DataFrame(result.metrics)
    assert whole.shape == (result.metrics.rows, 9) and whole.equals(result.metrics.to_pandas())


def test_notebooks_show_tables(plan, result):
    assert forebay.compare(result, result)._repr_html_().startswith("<p>")
    page = result._repr_html_()
    assert "<td>cubic</td>" in page and "goodput_mbps" in page and "2 valid runs of 2" in page
    rows = result.metrics._repr_html_()
    assert rows.count("<tr>") == 21 and f"and {result.metrics.rows - 20} rows more" in rows
    odd = forebay.Table({"name": np.array(["<b>", None], dtype=object)})
    assert "&lt;b&gt;" in odd._repr_html_() and odd.rows == 2


def test_equal_folders_are_equal_and_others_are_not(plan, result, tmp_path):
    assert not forebay.compare(result, result).document["changed"]
    with pytest.raises(forebay.InputError, match="level = 2"):
        forebay.compare(result, result, level=2)
    with pytest.raises(forebay.InputError, match="no results.sqlite"):
        forebay.compare(result, tmp_path)


@pytest.mark.parametrize("seeds", ["3..1", "x", range(0), range(0, 9, 2)])
def test_seeds_that_are_no_range_are_refused(plan, seeds, tmp_path):
    with pytest.raises(forebay.InputError, match="seeds"):
        forebay.run(plan, seeds=seeds, out=tmp_path / "none", progress=False)
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_benchmark_scores_and_a_search_finds(tmp_path):
    sets = {"stop": "3s", "warmup": "1s"}
    found = forebay.bench(
        "newreno", only=["deep_buffers"], sets=sets, seeds=1, out=tmp_path / "bench", progress=False
    )
    assert found.report.is_file() and list(found.results) == ["ccperf/deep_buffers"]
    assert found.results["ccperf/deep_buffers"].valid
    with pytest.raises(forebay.InputError, match="ccperf, rfc9743"):
        forebay.bench("newreno", suite="none")
    worst = forebay.search("newreno", space="alone", runs=3, out=tmp_path / "search", progress=False)
    assert Path(worst["plan"]).is_file() and worst["worst"]["value"] <= 1
    with pytest.raises(forebay.InputError, match="metric"):
        forebay.search("newreno", metric="beauty", out=tmp_path)
