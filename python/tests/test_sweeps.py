"""Sweeps: on threads, processes and Ray, in folders and buckets, and after kills."""

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import figures

import forebay
from forebay import _forebay

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from forebay.sweeps.batches import Batches
from forebay.sweeps.stored import Job, Stored
from forebay.sweeps.work import Work, run_packed

SEEDS = "1..6"


def sweep(plan, out, **options):
    return forebay.sweep(plan, options.pop("seeds", SEEDS), out, progress=False, **options)


def told_of(plan, out, **options):
    """The results that a sweep reports, in the order of the runs."""
    told = []
    seeds = options.pop("seeds", SEEDS)
    forebay.sweep(plan, seeds, out, progress=lambda *of_run: told.append(of_run), **options)
    return [ending for _, _, _, _, ending in sorted(told, key=lambda it: it[1])]


def ended(made):
    """The results of the runs of a sweep, by arm and seed."""
    rows = made.sql("SELECT arm, seed, reasons FROM runs ORDER BY ALL").fetchall()
    return {(arm, seed): json.loads(reasons) for arm, seed, reasons in rows}


def calling(name, at_start):
    """An algorithm that calls a function when a connection starts."""

    @forebay.algorithm(name)
    class Calls:
        """Ten segments"""

        def init(self, start):
            at_start()
            self.cwnd = 10 * start.mss_bytes

        def on_measurement(self, now_ns, measurement):
            return forebay.Limits(cwnd_bytes=self.cwnd)

        def on_event(self, now_ns, event, value):
            return None


@pytest.fixture(scope="module")
def whole(plan, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    return forebay.run(plan, seeds=SEEDS, out=out, progress=False)


@pytest.fixture(scope="module")
def threads(plan, tmp_path_factory):
    return sweep(plan, tmp_path_factory.mktemp("threads"), jobs=2)


@pytest.fixture(scope="module")
def cluster():
    """Ray with two workers, which the sweeps of a test find."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray")
    for left in (2, 1, 0):
        try:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
            break
        except Exception:
            # Ray allows its processes 30 s to start; a busy machine may need longer.
            ray.shutdown()
            if not left:
                raise
    yield ray
    ray.shutdown()


@pytest.fixture
def bucket(monkeypatch):
    """A folder of a bucket of an S3 server."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    from pyarrow import fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server.start()
    endpoint = "{}:{}".format(*server.get_host_and_port())
    where = {"endpoint_override": endpoint, "scheme": "http", "region": "us-east-1"}
    fs.S3FileSystem(**where, allow_bucket_creation=True).create_dir("sweeps")
    yield "s3://sweeps/cubic?" + "&".join("=".join(it) for it in where.items())
    server.stop()


@pytest.mark.parametrize("on", ["threads", "processes"])
def test_figures_are_those_of_one_call(plan, whole, tmp_path, on):
    made = sweep(plan, tmp_path, on=on, jobs=2)
    assert made.valid and not list(tmp_path.glob("runs/*.partial"))
    assert figures(made.result()) == figures(whole)
    assert made.result().summary == whole.summary


def test_cluster_gives_figures_of_one_call(plan, whole, tmp_path, cluster):
    made = sweep(plan, tmp_path, on="ray")
    assert figures(made.result()) == figures(whole)
    assert told_of(plan, tmp_path, on="ray") == ["in the store"] * 6
    assert cluster.is_initialized(), "the caller ends the cluster that it started"
    with pytest.raises(forebay.InputError, match="connected already"):
        sweep(plan, tmp_path, seeds="7..8", on="ray://127.0.0.1:10001")


def test_existing_runs_are_reused_by_every_engine(plan, threads):
    before = {file: file.stat().st_mtime_ns for file in Path(threads.out, "runs").iterdir()}
    assert told_of(plan, threads.out, on="processes") == ["in the store"] * 6
    more = told_of(plan, threads.out, seeds="5..8")
    assert more == ["in the store", "in the store", "valid", "valid"]
    for file, at_ns in before.items():
        assert file.stat().st_mtime_ns == at_ns


def test_queries_see_the_runs_of_the_sweep_alone(plan, whole, threads):
    sweep(plan.with_sets({"bottleneck.rtt": "20ms"}), threads.out, seeds="1..2")
    seeds = threads.sql("SELECT seed FROM runs WHERE valid = 1 ORDER BY seed").fetchall()
    assert seeds == [(seed,) for seed in range(1, 7)]
    query = "SELECT value FROM metrics WHERE part = 'flow' AND metric = 'goodput_mbps' ORDER BY seed"
    goodput = [run["flows"][0]["metrics"]["goodput_mbps"] for run in whole.runs]
    assert [value for (value,) in threads.sql(query).fetchall()] == goodput
    # Columns with missing values keep their type.
    requests = threads.sql("FROM requests")
    types = dict(zip(requests.columns, map(str, requests.types), strict=True))
    assert types["finished_ns"] == "BIGINT" and types["slowdown"] == "DOUBLE"


def test_requests_come_back_as_they_were(tmp_path):
    sets = {"stop": "3s", "warmup": "1s"}
    plan = forebay.Plan("bundler/main", sets).with_arms(["status_quo"])
    one = forebay.run(plan, seeds=1, out=tmp_path / "one", progress=False)
    made = sweep(plan, tmp_path / "rows", seeds=1).result(tmp_path / "taken")
    for table in ("requests", "transitions", "flows", "links", "bundles", "metrics"):
        ours, theirs = made.table(table).to_pandas(), one.table(table).to_pandas()
        assert ours.equals(theirs), table


def queue_over_time(result, seed):
    # Runs are numbered in the order of their ends.
    runs = result.table("runs")
    (run,) = runs["id"][runs["seed"] == seed]
    return result.series(int(run), "link", "forward", "queue_packets")


def test_over_time_keeps_samples(plan, whole, tmp_path):
    short = sweep(plan, tmp_path)
    folder = short.store(tmp_path / "taken")
    assert told_of(plan, tmp_path, over_time=True) == ["valid"] * 6
    assert told_of(plan, tmp_path, over_time=True) == ["in the store"] * 6
    assert told_of(plan, tmp_path) == ["in the store"] * 6
    made = sweep(plan, tmp_path)
    assert made.sql("SELECT count(*) FROM series").fetchall() == [(whole.table("samples").rows,)]
    # The samples are added to the existing runs.
    result = made.result(folder)
    assert len(result.table("runs")["id"]) == 6
    for seed in range(1, 7):
        one, other = (queue_over_time(it, seed) for it in (result, whole))
        assert len(one[0]) > 0 and all((a == b).all() for a, b in zip(one, other, strict=True))


def test_stale_partial_files_are_removed(plan, tmp_path):
    def partial(name, age_s):
        file = tmp_path / "runs" / f"{name}.parquet.{'0' * 32}.partial"
        file.write_bytes(b"PAR1")
        at_s = time.time() - age_s
        os.utime(file, (at_s, at_s))
        return file

    (tmp_path / "runs").mkdir()
    old, young = partial("old", 3700), partial("young", 3500)
    other = tmp_path / "runs/mine.partial"
    other.touch()
    os.utime(other, (0, 0))
    assert sweep(plan, tmp_path, seeds="1..1").valid
    assert not old.exists() and young.exists() and other.exists()


def test_a_file_that_cannot_be_written_leaves_nothing(plan, tmp_path, monkeypatch):
    synced = []

    def fsync(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        if len(synced) == 5:
            raise OSError(errno.EIO, "no disk")

    monkeypatch.setattr(os, "fsync", fsync)
    jobs = [Job(*job) for job in _forebay.jobs(plan._native, "1..2")]
    out = tmp_path / "out"
    work = Work(plan, str(out))
    work.run(jobs[:1], _forebay.Stop())
    # Folder names are synced before the contents of the folder.
    assert synced[:2] == [str(out), str(tmp_path)]
    assert synced[2].endswith(".partial") and synced[3] == str(out / "runs")
    (whole,) = out.glob("runs/*")
    with pytest.raises(forebay.RunError, match="no disk"):
        work.run(jobs[1:], _forebay.Stop())
    assert list(out.glob("runs/*")) == [whole]


def test_a_run_in_two_batches_counts_once(plan, tmp_path):
    jobs = [Job(*job) for job in _forebay.jobs(plan._native, "1..3")]
    work = Work(plan, str(tmp_path))
    batches = {work.run(some, _forebay.Stop()).batch for some in (jobs[:2], jobs[1:])}
    assert len(batches) == len(list(tmp_path.glob("runs/*.parquet"))) == 2
    made = sweep(plan, tmp_path, seeds="1..3")
    assert made.sql("SELECT count(*) FROM runs").fetchall() == [(3,)]
    assert len(made.result().runs) == 3


def test_failed_run_does_not_replace_valid_run(plan, tmp_path):
    (job,) = [Job(*job) for job in _forebay.jobs(plan._native, "1..1")]
    work = Work(plan, str(tmp_path))
    assert work.run([job], _forebay.Stop()).endings == ["valid"]
    assert work.give_up(job, "its worker ended").endings == ["failed: its worker ended"]
    assert sweep(plan, tmp_path, seeds="1..1").valid


def kills(plan, out, on):
    """Makes a plan two of whose runs kill their worker, on any engine."""
    calling("killer", lambda: os.kill(os.getpid(), signal.SIGKILL))
    both = plan.with_algorithms(["newreno", "killer"])
    made = sweep(both, out, seeds="1..2", on=on, jobs=2)
    assert not made.valid
    for (arm, _), reasons in ended(made).items():
        assert reasons == [] if arm == "newreno" else reasons[0].startswith("failed: its worker")
    runs = made.result().runs
    assert [run["valid"] for run in runs] == [run["arm"] == "newreno" for run in runs]
    # A failed run is tried again on request.
    assert told_of(both, out, seeds="1..2", on=on).count("in the store") == 4
    calling("killer", lambda: None)
    assert sweep(both, out, seeds="1..2", on=on, retry_failed=True).valid


@pytest.mark.slow
def test_run_that_kills_process_is_stored_failed(plan, tmp_path):
    kills(plan, tmp_path, "processes")


@pytest.mark.slow
def test_run_that_kills_cluster_worker_is_found(plan, tmp_path, cluster):
    kills(plan, tmp_path, "ray")


@pytest.mark.parametrize("on", ["processes", "ray"])
def test_a_worker_that_is_killed_costs_no_run(plan, tmp_path, on, request):
    if on == "ray":
        request.getfixturevalue("cluster")
    mark = tmp_path / "mark"

    def once():
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    calling("once", once)
    made = sweep(plan.with_algorithms(["once"]), tmp_path / "rows", on=on, jobs=2)
    assert made.valid and mark.exists()
    keys = "SELECT count(*), count(DISTINCT key) FROM runs"
    assert made.sql(keys).fetchall() == [(6, 6)]


#: A sweep that prints the result of each run.
SCRIPT = """
import sys
import forebay
from conftest import DOCUMENT

def told(what, number, total, share, ending):
    print(ending, flush=True)

if __name__ == "__main__":
    forebay.sweep(DOCUMENT, "1..60", "rows", on=sys.argv[1], jobs=2, progress=told)
"""


def parent_of(process):
    """The id of a running process's parent; None if the process has ended."""
    try:
        state, parent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(parent)


@pytest.mark.parametrize("on", ["threads", "processes"])
def test_killed_sweep_continues(plan, tmp_path, on):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(
        [sys.executable, script, on], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    ) as child:
        assert child.stdout.readline() == "valid\n"
        processes = [it.name for it in Path("/proc").iterdir() if it.name.isdigit()]
        workers = [process for process in processes if parent_of(process) == child.pid]
        child.kill()
    assert on == "threads" or workers
    deadline_s = time.monotonic() + 60
    while any(parent_of(worker) is not None for worker in workers):
        assert time.monotonic() < deadline_s, "workers end with the sweep"
        time.sleep(0.1)
    endings = told_of(plan, tmp_path / "rows", seeds="1..60")
    assert set(endings) <= {"valid", "in the store"} and "in the store" in endings
    made = sweep(plan, tmp_path / "rows", seeds="1..60")
    keys = "SELECT count(*), count(DISTINCT key) FROM runs WHERE valid = 1"
    assert made.sql(keys).fetchall() == [(60, 60)]


@pytest.mark.parametrize("on", ["threads", "processes"])
def test_rows_may_be_in_a_bucket(plan, whole, bucket, tmp_path, on):
    made = sweep(plan, bucket, on=on, jobs=2)
    assert figures(made.result(tmp_path)) == figures(whole)
    assert told_of(plan, bucket) == ["in the store"] * 6
    assert made.sql("SELECT count(*) FROM runs").fetchall() == [(6,)]


@pytest.mark.parametrize("on", ["threads", "processes"])
def test_an_exception_of_an_algorithm_ends_a_sweep(plan, tmp_path, on):
    def fail():
        raise LookupError("no idea")

    calling("fails", fail)
    with pytest.raises(LookupError, match="no idea"):
        sweep(plan.with_algorithms(["fails"]), tmp_path, on=on, jobs=2)
    assert not list(tmp_path.glob("runs/*"))


def test_refuses_workers_of_other_build_or_files(plan, tmp_path):
    jobs = [Job(*job) for job in _forebay.jobs(plan._native, "1..1")]
    packed = Work(plan, str(tmp_path)).packed()
    assert run_packed(packed, jobs).endings == ["valid"]
    commit, _, *rest = pickle.loads(packed)
    with pytest.raises(forebay.RunError, match="same wheel"):
        run_packed(pickle.dumps((commit, "other", *rest)), jobs)
    with pytest.raises(forebay.InputError, match="seed 1: this run differs between"):
        run_packed(packed, [jobs[0]._replace(key="0" * 64)])
    with pytest.raises(forebay.InputError, match="folder that all machines share"):
        Stored(str(tmp_path)).check("nothing")


def test_invalid_arguments_are_refused_before_any_run(plan, tmp_path):
    (tmp_path / "file").touch()
    for wrong, match in [
        ({"on": "dask"}, "threads, processes, ray"),
        ({"jobs": 0}, "jobs = 0: allowed is 1 to 1024"),
        ({"seeds": "3..1"}, "seeds"),
        ({"out": tmp_path / "file"}, "out = .*allowed is a folder"),
        ({"out": "nowhere://bucket"}, "out = 'nowhere://bucket'.*allowed is"),
    ]:
        with pytest.raises(forebay.InputError, match=match):
            sweep(plan, **{"out": tmp_path / "rows", **wrong})
    assert not list(tmp_path.glob("rows/runs/*"))


def test_foreign_files_are_reported(plan, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/other.parquet").write_text("no Parquet")
    with pytest.raises(forebay.RunError, match="other.parquet"):
        sweep(plan, tmp_path)


def test_ten_thousand_runs_have_distinct_keys(plan):
    jobs = _forebay.jobs(plan._native, "1..10000")
    assert len({key for key, *_ in jobs}) == len(jobs) == 10_000


def test_a_plan_goes_to_another_process_whole():
    plan = forebay.Plan("bundler/queue_shift", {"stop": "10s"}).with_arms(["copa_sfq"])
    for one in (plan, plan.grid({"bottleneck.rtt": ["10ms", "80ms"]})):
        other = pickle.loads(pickle.dumps(one))
        assert _forebay.jobs(other._native, "1..2") == _forebay.jobs(one._native, "1..2")


def test_command_line_makes_sweep_and_reports_mistakes(tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "forebay.sweeps", "bundler/queue_shift", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    sets = ["--set", "stop=3s", "--set", "warmup=1s", "--arms", "copa_sfq", "--seeds", "1..2"]
    done = run(*sets, "--out", "rows", "--store", "taken", "--sources", _forebay.SOURCES)
    assert done.returncode == 0, done.stderr
    taken = forebay.load(tmp_path / "taken")
    assert [(run["arm"], run["seed"]) for run in taken.runs] == [("copa_sfq", 1), ("copa_sfq", 2)]
    for arguments, match in [
        (["--sources", "other"], "allowed is the commit of the program"),
        (["--arms", "nobody"], "copa_sfq"),
        (["--set", "stop"], "--set stop: allowed is KEY=VALUE"),
        (["--set", "stop=soon"], "soon"),
    ]:
        done = run(*arguments)
        assert done.returncode == 2 and match in done.stderr, done.stderr


def jobs_of(count):
    return [Job(str(number), "arm", "", number) for number in range(count)]


def test_batches_shrink_towards_the_end():
    batches = Batches(jobs_of(1000))
    first = batches.take(2)
    assert len(first.jobs) == 1, "the duration of a run is unknown"
    batches.made(first, 1 / 64)
    sizes = []
    while batches:
        batch = batches.take(2)
        sizes.append(len(batch.jobs))
        batches.made(batch, len(batch.jobs) / 64)
    assert sizes[0] == 96 and sizes[-1] == 1 and sum(sizes) == 999
    assert sizes == sorted(sizes, reverse=True)


def test_halving_finds_run_that_kills_worker():
    batches = Batches(jobs_of(64))
    batches.made(batches.take(1), 0.001)
    made, found = 1, []
    while batches:
        batch = batches.take(1)
        if any(job.seed == 37 for job in batch.jobs):
            found += filter(None, [batches.lost(batch, "killed")])
        else:
            made += len(batch.jobs)
            batches.made(batch, 0.001 * len(batch.jobs))
    assert made == 63 and [job.seed for job in found] == [37]


def test_failed_machine_does_not_end_sweep():
    batches = Batches(jobs_of(1000))
    under_way = [batches.take(64) for _ in range(64)]
    assert [batches.lost(batch, "its machine ended") for batch in under_way] == [None] * 64


def test_workers_that_always_end_stop_sweep():
    batches = Batches(jobs_of(64))
    with pytest.raises(forebay.RunError, match="workers in a row have ended, the last: killed"):
        while batches:
            batches.lost(batches.take(1), "killed")
