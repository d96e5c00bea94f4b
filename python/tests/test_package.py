"""The package itself: its stub, its charts, ctrl-C, notebooks."""

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from conftest import DOCUMENT

import forebay
from forebay import charts

REPOSITORY = Path(__file__).parents[2]

#: A run of minutes that prints a line when it has begun.
LONG = """
import signal
import forebay
from conftest import DOCUMENT

# A caller that starts tests in the background may have them ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)

def told(what, number, total, share, ending):
    if share > 0:
        print("under way", flush=True)

sets = {"stop": "600s", "bottleneck.rate": "1Gbit/s", "bottleneck.qdisc.limit": "3000p"}
try:
    forebay.run(forebay.Plan(DOCUMENT, sets), jobs=2, out="out", progress=told)
except KeyboardInterrupt:
    print("interrupted", len(forebay.load("out").runs), flush=True)
"""


def test_ctrl_c_ends_runs_that_leave_nothing(tmp_path):
    environment = {"PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(
        [sys.executable, "-c", LONG], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    ) as child:
        assert child.stdout.readline() == "under way\n"
        child.send_signal(signal.SIGINT)
        rest, _ = child.communicate(timeout=60)
    assert rest.splitlines()[-1] == "interrupted 0"


def test_importing_needs_no_library():
    heavy = ["numpy", "pandas", "polars", "pyarrow", "duckdb", "ray", "altair", "IPython"]
    heavy += ["multiprocessing", "concurrent.futures"]
    script = f"import sys, forebay; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_stub_matches_module(tmp_path):
    pytest.importorskip("mypy")
    # Reading the types of all optional libraries takes ten times as long.
    (tmp_path / "mypy.ini").write_text("[mypy]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy.stubtest", "forebay._forebay", "--mypy-config-file", "mypy.ini"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_type_checkers_know_the_keys_of_plans(tmp_path):
    pytest.importorskip("mypy")
    shutil.copy(REPOSITORY / "python/forebay/keys.py", tmp_path)
    right = f"from keys import PlanKeys\nplan: PlanKeys = {DOCUMENT!r}\n"
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "plan.py"]
    for text, found in [
        (right, ""),
        (right.replace("'rate'", "'rat'"), 'Extra key "rat"'),
        (right.replace("'greedy'", "'greed'"), 'item "traffic" has type'),
    ]:
        (tmp_path / "plan.py").write_text(text)
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode == 0) == (found == "") and found in done.stdout, done.stdout


@pytest.mark.slow
def test_the_package_has_types_that_are_checked_strictly(tmp_path):
    # The optional libraries whose types mypy reads.
    for library in ("mypy", "altair", "duckdb", "gymnasium", "IPython", "onnx", "polars", "ray"):
        pytest.importorskip(library)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, "python/forebay"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr


def test_figures_of_the_report_are_charts(result, tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    figures = charts.figures(result)
    assert figures and all(figure.caption for figure in figures)
    queues = charts.figures(result, "QUEUE")
    assert 0 < len(queues) < len(figures) and all("queue" in it.caption.lower() for it in queues)
    with pytest.raises(forebay.InputError, match="only = 'beauty': allowed is a part of one of: "):
        charts.figures(result, only="beauty")
    figures[0].chart.save(tmp_path / "figure.svg")
    assert "<svg" in (tmp_path / "figure.svg").read_text()


#: Extra libraries that single notebooks need.
EXTRAS = {
    "a_sweep_on_ray": ["ray"],
    "ten_minutes": ["altair"],
    "training_a_policy": ["gymnasium", "onnx"],
}


def marked(file):
    marks = [] if file.stem == "your_own_algorithm" else [pytest.mark.slow]
    return pytest.param(file, id=file.stem, marks=marks)


@pytest.mark.parametrize(
    "file", [marked(file) for file in sorted((REPOSITORY / "docs/notebooks").glob("*.ipynb"))]
)
def test_a_notebook_runs_to_its_end(file, tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    for library in EXTRAS.get(file.stem, ()):
        pytest.importorskip(library)
    notebook = nbformat.read(file, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, resources=resources).execute()


def test_rows_of_charts_are_named(result):
    alt = pytest.importorskip("altair")
    began_s = time.perf_counter()
    rows = [{"x": number, "y": number % 7} for number in range(20_000)]
    encoding = {name: {"field": name, "type": "quantitative"} for name in "xy"}
    chart = charts._chart(alt, {"mark": "line", "encoding": encoding, "data": {"values": rows}})
    document = chart.properties(width=900).to_dict()
    # Checking each row would take a minute.
    assert time.perf_counter() - began_s < 10
    assert document["width"] == 900 and document["datasets"][document["data"]["name"]] == rows


def test_package_has_commit_and_version():
    assert forebay.COMMIT
    workspace = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]
    assert forebay.__version__ == workspace["version"]


def test_import_is_lazy_and_names_resolve():
    code = (
        "import sys; before = set(sys.modules); import forebay; "
        "print(*sorted(name for name in set(sys.modules) - before if name.startswith('forebay')))\n"
        "print(all(getattr(forebay, name) is not None for name in forebay.__all__), set(forebay.__all__) <= set(dir(forebay)))"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.splitlines() == ["forebay forebay._forebay", "True True"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        forebay.nothing  # noqa: B018
