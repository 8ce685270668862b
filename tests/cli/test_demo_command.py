"""`apas demo` runs offline, tells its story, and repeats itself for the same seed."""

from __future__ import annotations

import os
import subprocess
import sys


def demo(folder, *words):
    environment = {
        **os.environ,
        "NO_COLOR": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "apas", "demo", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_demo(tmp_path):
    first, second = demo(tmp_path), demo(tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert "CERTIFIED" in first.stdout
    assert "12 of 12 of the safe raise" in first.stdout
    assert "Safe raise: 12 rows: 12 CERTIFIED" in first.stdout
    assert not list(tmp_path.iterdir())  # this first demo writes nothing
