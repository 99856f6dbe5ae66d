"""Environments: read from a manifest, and installed."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pennon.functions.environment_manifest import ManifestError
from pennon.pipeline.environments.environment import BuildError, Environment
from tests.support.wheels import Index, make_wheel


def zipped(**files: str) -> str:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.py", text)
    return base64.b64encode(content.getvalue()).decode()


def held(file: Path) -> dict[str, str]:
    return {"name": file.name, "content": base64.b64encode(file.read_bytes()).decode()}


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as opened:
        yield opened


def parse(**manifest: Any) -> Environment:
    return Environment.parse(json.dumps(manifest))


def test_what_geneva_sends_is_understood() -> None:
    parts: dict[str, Any] = {
        "checksum": "e3b0", "conda": None, "conda_environment_path": None, "env_vars": {"A": "1"}, "head_image": None,
        "name": "tea", "pip": ["numpy>=2 ; python_version > '3'", "requests[socks]==2.*"], "pip_extra_index_urls": [],
        "py_modules": [], "requirements_path": None, "skip_site_packages": False, "version": "1", "worker_image": None,
        "zips": [],
    }  # fmt: skip
    found = parse(**parts)
    assert found.requirements == ('numpy>=2; python_version > "3"', "requests[socks]==2.*")
    assert found.variables == {"A": "1"}


def test_an_empty_manifest_asks_for_nothing() -> None:
    assert parse(name="nothing", version="3").is_empty


def test_the_checksum_is_verified() -> None:
    text = json.dumps({"pip": ["numpy"]})
    actual = hashlib.sha256(text.encode()).hexdigest()
    assert Environment.parse(text, actual.upper()) == Environment.parse(text)
    with pytest.raises(ManifestError, match=actual):
        Environment.parse(text, "0" * 64)


@pytest.mark.parametrize(
    ("manifest", "word"),
    [
        ({"pip": ["--index-url=http://evil"]}, "--index-url"),
        ({"pip": ["-r requirements.txt"]}, "requirements.txt"),
        ({"pip": ["git+https://example.com/tea"]}, "git"),
        ({"pip": ["tea @ https://example.com/tea.tar.gz"]}, "tea.tar.gz"),
        ({"pip": ["./tea"]}, "./tea"),
        ({"pip": ["https://example.com/tea-1.tar.gz#tea-1-py3-none-any.whl"]}, "tea-1.tar.gz"),
        ({"pip": ["https://example.com/tea-1.tar.gz?tea-1-py3-none-any.whl"]}, "tea-1.tar.gz"),
        ({"pip": ["https://example.com/tea-1-py3-none-any.whl%2Ftea.tar.gz"]}, "tea.tar.gz"),
        ({"pip": ["https://example.com/tea-1-py3-none-any.whl#egg=tea"]}, "#egg=tea"),
        ({"pip": ["https://example.com/tea-1-py3-none-any.whl ; x"]}, "tea-1"),
        ({"pip": ["https://example.com/${PENNON_DATABASE}/tea-1-py3-none-any.whl"]}, "PENNON_DATABASE"),
        ({"pip": ["https://example.com/tea.whl"]}, "tea.whl"),
        ({"pip": ["tea @ file:///tmp/tea-1-py3-none-any.whl"]}, "file:///tmp"),
        ({"pip": ["file:///tmp/tea-1-py3-none-any.whl"]}, "file:///tmp"),
        ({"pip": ["/tmp/tea-1-py3-none-any.whl"]}, "/tmp/tea"),
        ({"pip": ["tea-1-py3-none-any.whl"]}, "tea-1"),
        ({"pip": ["tea.tar.gz"]}, "tea.tar.gz"),
        ({"pip": ["tea @ git+https://example.com/tea-1-py3-none-any.whl"]}, "git+https"),
        ({"pip": ["tea @ git+ext::sh -c id"]}, "git+ext"),
        ({"pip": ["numpy\n--index-url http://evil"]}, "printable"),
        ({"pip": ["-e ."]}, "-e ."),
        ({"pip": ["a" * 3000]}, "2000"),
        ({"pip": ["numpy"] * 501}, "501"),
        ({"pip": "numpy"}, "must be a list"),
        ({"pip": [3]}, "3"),
        ({"pip_extra_index_urls": ["file:///etc"]}, "file:///etc"),
        ({"py_modules": ["/tmp/tea"]}, "/tmp/tea"),
        ({"py_modules": [{"name": "../tea.py", "content": ""}]}, "../tea.py"),
        ({"py_modules": [{"name": "tea.zip", "content": "AAAA"}]}, "zip file"),
        ({"py_modules": [{"name": "tea.zip", "content": "%"}]}, "base64"),
        ({"py_modules": [{"name": "tea.zip", "content": "ü"}]}, "base64"),
        ({"py_modules": [{"name": 3, "content": ""}]}, "'3'"),
        ({"env_vars": {"SPARK_HOME": "/"}}, "SPARK_HOME"),
        ({"py_modules": ["/tmp/tea-1-py3-none-any.whl"]}, "/tmp/tea-1"),
        ({"py_modules": [{"name": "tea.whl", "content": zipped(tea="")}]}, "not a wheel"),
        ({"py_modules": [{"name": "te\na.py", "content": ""}]}, "plain name"),
        ({"env_vars": {"LD_PRELOAD": "/tmp/x.so"}}, "LD_PRELOAD"),
        ({"env_vars": {"PYTHONPATH": "/tmp"}}, "PYTHONPATH"),
        ({"env_vars": {"A": "a\0b"}}, "NUL"),
        ({"env_vars": {"A=B": "1"}}, "A=B"),
        ({"env_vars": {"A": 1}}, "env_vars"),
        ({"conda": {"dependencies": ["tea"]}}, "conda"),
        ({"requirements_path": "requirements.txt"}, "requirements_path"),
    ],
)
def test_what_cannot_be_is_refused_by_name(manifest: dict[str, Any], word: str) -> None:
    with pytest.raises(ManifestError) as refused:
        parse(**manifest)
    assert word in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "tea", "[" * 100_000])
def test_a_manifest_is_a_json_object(text: str) -> None:
    with pytest.raises(ManifestError):
        Environment.parse(text)


def test_packages_and_modules_are_importable_from_the_folder(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "pennon_test_tea", "1.5")
    modules = [held(wheel), {"name": "cups.zip", "content": zipped(cups="SIZE = 3", saucers="SIZE = 4")}]
    modules.append({"name": "spoon.py", "content": base64.b64encode(b"SIZE = 5").decode()})
    built = tmp_path / "built"
    parse(py_modules=modules).install(built)
    program = "import pennon_test_tea as t, cups, saucers, spoon; print(t.VERSION, cups.SIZE, saucers.SIZE, spoon.SIZE)"
    ended = subprocess.run([sys.executable, "-c", program], cwd=built, capture_output=True, text=True)
    assert ended.stdout.split() == ["1.5", "3", "4", "5"], ended.stderr


def test_what_differs_is_built_apart(tmp_path: Path) -> None:
    checksums = {
        parse(env_vars={"A": "1"}).checksum,
        parse(env_vars={"A": "2"}).checksum,
        parse(pip=["tea==1"]).checksum,
        parse(pip=["tea==2"]).checksum,
    }
    assert len(checksums) == 4
    assert parse(pip=["tea==1"], name="a").checksum == parse(pip=["tea==1"], name="b").checksum


def test_what_python_workers_have_loaded_cannot_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(tmp_path, "numpy", "0.1")
    wheel = make_wheel(tmp_path, "pennon_test_tea", "1.0", requires="numpy==0.1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(BuildError, match=f"constraint\\) numpy=={np.__version__}"):
        parse(py_modules=[held(wheel)]).install(tmp_path / "built")


def test_a_wheel_cannot_bring_in_what_a_manifest_cannot(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "pennon_test_tea", "1.0", requires="evil @ https://example.com/evil.tar.gz")
    with pytest.raises(ManifestError, match=r"evil\.tar\.gz"):
        parse(py_modules=[held(wheel)])


def test_nothing_is_built_for_a_wheel_of_another_server(tmp_path: Path, index: Index) -> None:
    """Such a wheel is seen by pip alone, which for a URL does not care for --only-binary."""
    built = tmp_path / "built.txt"
    index.add_source("evil", f"open({str(built)!r}, 'w').write('ran')")
    index.add(make_wheel(tmp_path, "pennon_test_tea", "1.0", requires=f"evil @ {index.url}/evil-1.0.tar.gz"))
    with pytest.raises(BuildError, match="only wheels can be installed"):
        parse(pip=[f"{index.url}/pennon_test_tea-1.0-py3-none-any.whl"]).install(tmp_path / "target")
    assert not built.exists()


def test_pip_sees_nothing_of_the_worker(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add(make_wheel(tmp_path, "pennon_test_tea", "1.0"))
    for name in ("PENNON_DATABASE", "AWS_SECRET_ACCESS_KEY", "PIP_TARGET", "PYTHONPATH"):
        monkeypatch.setenv(name, "secret-of-the-worker")
    url = f"{index.url}/pennon_test_tea-1.0-py3-none-any.whl"
    parse(pip=[f"pennon_test_tea @ {url}"]).install(tmp_path / "target")
    assert (tmp_path / "target" / "pennon_test_tea.py").exists()
    assert index.environments
    assert not any(b"secret-of-the-worker" in environment for environment in index.environments)


def test_with_configured_indexes_there_are_no_others(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add(make_wheel(tmp_path, "pennon_test_tea", "1.0"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    make_wheel(elsewhere, "pennon_test_tea", "2.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(elsewhere))
    allowed = [f"{index.url}/simple/"]
    text = json.dumps({"pip": ["pennon-test-tea"], "pip_extra_index_urls": [f"{index.url}/simple"]})
    Environment.parse(text, configured_indexes=allowed).install(tmp_path / "target")
    assert "1.0" in (tmp_path / "target" / "pennon_test_tea.py").read_text()
    url = f"{index.url}/pennon_test_tea-1.0-py3-none-any.whl"
    for manifest in (
        {"pip_extra_index_urls": ["https://pypi.org/simple"]},
        {"pip": [url]},
        {"py_modules": [url]},
        {"pip": [f"{index.url}/simple/../pennon_test_tea-1.0-py3-none-any.whl"]},
        {"pip": [f"{index.url}/simple/%2e%2e/pennon_test_tea-1.0-py3-none-any.whl"]},
    ):
        with pytest.raises(ManifestError, match="package_indexes"):
            Environment.parse(json.dumps(manifest), configured_indexes=allowed)


@pytest.mark.parametrize(
    "manifest",
    [
        {"pip_extra_index_urls": ["https://pypi.org/simple"]},
        {"pip": ["https://example.com/tea-1-py3-none-any.whl"]},
        {"pip": ["tea @ https://reader:secret@example.com/tea-1-py3-none-any.whl"]},
    ],
)
def test_credentials_of_configured_indexes_are_not_shown(manifest: dict[str, list[str]]) -> None:
    with pytest.raises(ManifestError, match=r"https://packages\.example\.com:8443/simple/") as refused:
        Environment.parse(
            json.dumps(manifest), configured_indexes=["https://operator:hidden@packages.example.com:8443/simple/"]
        )
    assert "operator" not in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_wheels_of_configured_indexes_need_no_credentials_in_their_url() -> None:
    wheel = "https://Packages.example.com/simple/tea/tea-1-py3-none-any.whl"
    indexes = ["https://operator:hidden@packages.example.com/simple/"]
    assert Environment.parse(json.dumps({"pip": [wheel]}), configured_indexes=indexes).requirements == (wheel,)


def test_executors_import_nothing_heavy_with_a_task() -> None:
    program = (
        "import sys, pennon.pipeline.cluster.tasks; print({'lance', 'numpy', 'pyarrow', 'pyspark'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.strip() == "set()", ended.stderr
