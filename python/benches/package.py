"""Size and import time of the Python package: `make wheel`."""

import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROCESSES = 9
IMPORT = "import time; began = time.perf_counter(); import forebay; print(time.perf_counter() - began)"


def main():
    wheel = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin/python"
        # Without other packages: an import that needs numpy would fail.
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True)
        times_ms = []
        for _ in range(1 + PROCESSES):
            told = subprocess.run([python, "-c", IMPORT], check=True, capture_output=True, cwd=folder)
            times_ms.append(float(told.stdout) * 1e3)
    # The first import compiles the module.
    times_ms = times_ms[1:]
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.2f} MB", end=", ")
    print(f"imported in {statistics.median(times_ms):.1f} ms ({min(times_ms):.1f} to {max(times_ms):.1f})")


if __name__ == "__main__":
    main()
