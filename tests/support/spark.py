"""Real Sparks as processes of their own: a standalone cluster and a Connect server, on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pyspark

from pennon.pipeline.cluster.java import find_java

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 90.0
STOP_SECONDS = 15.0
#: Short lives are better spent on work than on compiling well.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_DRIVER = {"spark.driver.extraJavaOptions": QUICK_JAVA}
#: The settings of a server with one worker, which is soon ready and follows commits at once. It merges no fragments by
#: itself, because tests count them; those of maintenance have servers of their own.
WORKER = {
    "PENNON_MAINTENANCE_ENABLED": "false",
    "PENNON_WORKERS": "1",
    "PENNON_SPARK_PRESTART": "true",
    "PENNON_SPARK_CONF": json.dumps(QUICK_DRIVER),
    "PENNON_AUTO_BACKFILL_EVERY_SECONDS": "0.5",
    "PENNON_AUTO_REFRESH_EVERY_SECONDS": "0.5",
}
#: A cluster decides which Python runs its tasks; this one has Pennon installed.
STANDALONE = {
    **QUICK_DRIVER,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.executor.memory": "512m",
    "spark.pyspark.python": sys.executable,
}


class SparkProcess:
    """A process of Spark whose log is a file."""

    def __init__(self, folder: Path, name: str, *command: str) -> None:
        self._log = folder / f"{name}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        environment |= {
            "JAVA_HOME": str(find_java()),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder),
            "PYSPARK_PYTHON": sys.executable,
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [SPARK_HOME / "bin" / command[0], *command[1:]],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, pattern: str, times: int = 1) -> str:
        """Wait until the log has a pattern the given number of times, and return its last group."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            found = re.findall(pattern, self._log.read_text(errors="replace"))
            if len(found) >= times:
                return str(found[-1])
            time.sleep(0.05)
        raise RuntimeError(f"Spark did not say {pattern!r}:\n{self._log.read_text(errors='replace')[-4000:]}")

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Group:
    """Processes that start together and end together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[SparkProcess] = []

    def _start(self, name: str, *command: str) -> SparkProcess:
        process = SparkProcess(self._folder, name, *command)
        self._processes.append(process)
        return process

    def _start_all(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self._processes:
            self._processes.pop().close()


#: Executors of the standalone cluster that have a GPU, as far as Spark can tell, and two cores to share out.
WITH_GPU = {
    "spark.executor.cores": "2",
    "spark.executor.memoryOverhead": "256m",
    "spark.executor.resource.gpu.amount": "1",
}


#: Spark soon gives a task that takes longer than others to another host as well, and takes what comes first.
SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
}


class StandaloneCluster(_Group):
    """A master and two workers: one with a core, one with two cores and a GPU that only Spark believes in.

    Each is a host of its own, as far as Spark can tell.
    """

    url: str

    def _start_all(self) -> None:
        ports = ("--port", "0", "--webui-port", "0")
        master = self._start(
            "master", "spark-class", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *ports
        )
        self.url = master.wait_for(r"Starting Spark master at (spark://\S+:[1-9]\d*)")
        gpu = ("--properties-file", self._gpu())
        for name, host, cores, more in (("worker-1", "127.0.0.1", "1", ()), ("worker-2", "localhost", "2", gpu)):
            place = ("--host", host, *ports, "--work-dir", str(self._folder / name))
            size = ("--cores", cores, "--memory", "1g", *more)
            self._start(name, "spark-class", "org.apache.spark.deploy.worker.Worker", *place, *size, self.url)
        master.wait_for(r"Registering worker \S+", times=2)

    def _gpu(self) -> str:
        """Return the settings of a worker with a GPU."""
        script, settings = self._folder / "gpus.sh", self._folder / "gpus.conf"
        script.write_text("""#!/bin/sh\necho '{"name": "gpu", "addresses": ["7"]}'\n""")
        script.chmod(0o755)
        name = "spark.worker.resource.gpu"
        settings.write_text(f"{name}.amount 1\n{name}.discoveryScript {script}\n")
        return str(settings)


class ConnectServer(_Group):
    """A Spark Connect server with two cores; started again, it knows none of its sessions."""

    url: str
    _port = "0"

    def _start_all(self) -> None:
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": self._port,
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.ui.enabled": "false",
        }
        options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        main = "org.apache.spark.sql.connect.service.SparkConnectServer"
        command = ("spark-submit", "--class", main, "--master", "local[2,4]", *options, "spark-internal")
        server = self._start("connect", *command)
        self._port = server.wait_for(r"Spark Connect server started at: \S+:(\d+)")
        self.url = f"sc://127.0.0.1:{self._port}"

    def restart(self) -> None:
        self.__exit__()
        self.__enter__()
