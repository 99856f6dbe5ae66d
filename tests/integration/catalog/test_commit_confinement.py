"""What a commit refuses: anything but a sound manifest, staged in its own place. And then nothing was touched."""

from __future__ import annotations

import os
import shutil
import struct
import uuid
from pathlib import Path
from typing import Any

import lance
import pytest
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError, TableBranchNotFoundError

from pennon.storage.layout import manifest_name
from tests.integration.catalog.lakes import Lake, Staged, files_below, rows, stage_in, tag_of
from tests.support.manifest_edits import edit_manifest

NAME = f"{manifest_name(3, 'V2')}-{uuid.uuid4()}"


@pytest.fixture
def target(lake: Lake) -> Lake:
    """A lake with a table of two versions, a staged third one, and another table with one staged as well."""
    lake("CreateNamespace", "a")
    for name in ("a$t", "a$other"):
        lake.write(name)
        lake.write(name, mode="append")
    return lake


def refuse(
    lake: Lake, error: type[Exception] | tuple[type[Exception], ...] = InvalidInputError, **request: Any
) -> None:
    """Ask for a commit that must be refused, and make sure that nothing has changed."""
    before = lake.state(), files_below(lake.root.parent)
    with pytest.raises(error):
        lake("CreateTableVersion", "a$t", **{"version": 3, **request})
    after = lake.state(), files_below(lake.root.parent)
    assert _without_catalog(after) == _without_catalog(before)


def _without_catalog(state: tuple[Any, dict[str, str]]) -> tuple[Any, dict[str, str]]:
    return state[0], {name: digest for name, digest in state[1].items() if "catalog.db" not in name}


class TestPaths:
    def test_a_path_to_anything_else_is_refused(self, target: Lake, tmp_path: Path) -> None:
        staged, other = target.stage("a$t"), target.stage("a$other")
        outside = tmp_path / NAME
        shutil.copy(staged.file, outside)
        folder = target.folder("a$t")
        in_data = folder / "data" / NAME
        shutil.copy(staged.file, in_data)
        data_file = next(file for file in (folder / "data").iterdir() if file.suffix == ".lance")
        store = str(folder).lstrip("/")
        for path in (
            "",
            "/",
            NAME,
            f"_versions/{NAME}",
            f"./{store}/_versions/{staged.file.name}",
            # other tables, files and folders
            other.path,
            str(outside).lstrip("/"),
            str(in_data).lstrip("/"),
            str(data_file).lstrip("/"),
            f"{store}/_versions",
            f"{store}/_versions/",
            f"{store}/_versions/latest_version_hint.json",
            f"{store}/_versions/{manifest_name(1, 'V2')}",
            f"{store}/_versions/{manifest_name(2, 'V2')}",
            f"{store}/_versions/{manifest_name(3, 'V2')}",
            f"{store}/_versions/{staged.file.name}/",
            f"{store}/_versions/sub/{staged.file.name}",
            f"{store}/tree/dev/_versions/{staged.file.name}",
            # ways around
            f"{store}/_versions/../_versions/{staged.file.name}",
            f"{store}/_versions/./{staged.file.name}",
            f"{store}/_versions//{staged.file.name}",
            f"{store}//_versions/{staged.file.name}",
            f"{store}/_versions/../../{other.file.parent.parent.name}/_versions/{other.file.name}",
            f"//{store}/_versions/{staged.file.name}",
            f"file:///{store}/_versions/{staged.file.name}",
            f"file://{store}/_versions/{staged.file.name}",
            f"s3://bucket/{store}/_versions/{staged.file.name}",
            f"{store}/_versions/%2e%2e/{staged.file.name}",
            f"{store}/_versions%2F{staged.file.name}",
            f"{store.replace('/', '%2F')}/_versions/{staged.file.name}",
            f"{store}/_versions\\{staged.file.name}",
            f"{store.upper()}/_versions/{staged.file.name}",
            f" {store}/_versions/{staged.file.name}",
            # names that are almost those of a staged manifest
            f"{store}/_versions/{staged.file.name}\n",
            f"{store}/_versions/{staged.file.name}\0",
            f"{store}/_versions/{staged.file.name}x",
            f"{store}/_versions/{staged.file.name[:-1]}",
            f"{store}/_versions/{manifest_name(3, 'V2')}-x",
            f"{store}/_versions/{manifest_name(3, 'V2')}-{'0' * 36}",
            f"{store}/_versions/3.manifest",
            f"{store}/_versions/-{staged.file.name}",
            f"{store}/_versions/٣.manifest-{uuid.uuid4()}",
            f"{store}/_versions/99999999999999999999.manifest-{uuid.uuid4()}",
            "x" * 100_000,
        ):
            refuse(target, manifest_path=path)
        target.commit("a$t", staged)

    def test_the_manifest_of_another_version_is_refused(self, target: Lake) -> None:
        folder = target.folder("a$t")
        for number in (1, 2, 4, 0):
            name = folder / "_versions" / f"{manifest_name(number, 'V2')}-{uuid.uuid4()}"
            shutil.copy(folder / "_versions" / manifest_name(2, "V2"), name)
            refuse(target, manifest_path=str(name).lstrip("/"))
            name.unlink()

    def test_a_link_instead_of_a_manifest_is_refused(self, target: Lake, tmp_path: Path) -> None:
        staged = target.stage("a$t")
        outside = tmp_path / "outside.manifest"
        staged.file.rename(outside)
        staged.file.symlink_to(outside)
        refuse(target, manifest_path=staged.path)
        assert outside.is_file()

    def test_a_folder_instead_of_a_manifest_is_refused(self, target: Lake) -> None:
        folder = target.folder("a$t") / "_versions" / NAME
        folder.mkdir()
        refuse(target, manifest_path=str(folder).lstrip("/"))

    def test_a_branch_does_not_widen_the_place(self, target: Lake) -> None:
        staged = target.stage("a$t")
        for branch in ("..", "dev/../..", "../../..", "/", "x/../../../_versions", "dev\0"):
            refuse(target, manifest_path=staged.path, branch=branch)
        refuse(target, TableBranchNotFoundError, manifest_path=staged.path, branch="dev")


class TestContents:
    def test_bytes_that_are_no_manifest_are_refused(self, target: Lake) -> None:
        staged = target.stage("a$t")
        sound = staged.file.read_bytes()
        for content in (
            b"",
            b"x",
            b"LANC",
            b"\0" * 1000,
            os.urandom(400),
            sound[:-1],
            sound[: len(sound) // 2],
            sound[1:],
            sound + b"\0",
            sound[:-16] + struct.pack("<Q", 2**64 - 1) + sound[-8:],
            sound[:-16] + struct.pack("<Q", len(sound)) + sound[-8:],
            sound[:-4] + b"CNAL",
        ):
            staged.file.write_bytes(content)
            refuse(target, manifest_path=staged.path)
        staged.file.write_bytes(sound)
        target.commit("a$t", staged)

    def test_a_wrong_size_or_tag_is_refused(self, target: Lake) -> None:
        staged = target.stage("a$t")
        size = staged.file.stat().st_size
        for wrong in (0, size - 1, size + 1, 2**63):
            refuse(target, manifest_path=staged.path, manifest_size=wrong)
        for tag in ("", "x", '"1-2-3"', tag_of(staged.file) + "x"):
            refuse(target, manifest_path=staged.path, e_tag=tag)

    def test_a_manifest_named_by_the_other_scheme_is_refused(self, target: Lake) -> None:
        staged = target.stage("a$t")
        plain = staged.file.with_name(f"3.manifest-{uuid.uuid4()}")
        shutil.copy(staged.file, plain)
        for scheme in (None, "V1", "V2"):
            refuse(target, manifest_path=str(plain).lstrip("/"), naming_scheme=scheme)
        plain.unlink()
        for scheme in ("V1", "V3", "", "x"):
            refuse(target, manifest_path=staged.path, naming_scheme=scheme)
        target.commit("a$t", staged, naming_scheme="V2")

    def test_the_manifest_of_another_branch_is_refused(self, target: Lake) -> None:
        target.open("a$t").create_branch("dev", 2)
        staged = target.stage("a$t")
        moved = target.folder("a$t") / "tree" / "dev" / "_versions" / staged.file.name
        shutil.copy(staged.file, moved)
        refuse(target, manifest_path=str(moved).lstrip("/"), branch="dev")

    def test_a_manifest_with_unknown_feature_flags_is_refused(self, target: Lake) -> None:
        staged = target.stage("a$t")
        sound = staged.file.read_bytes()
        (position,) = struct.unpack_from("<Q", sound, len(sound) - 16)
        (length,) = struct.unpack_from("<I", sound, position)
        # Field 9, the reader's feature flags, with a bit that no reader knows.
        message = sound[position + 4 : position + 4 + length] + b"\x48" + b"\x80\x80\x80\x80\x10"
        changed = sound[:position] + struct.pack("<I", len(message)) + message + sound[-16:]
        staged.file.write_bytes(changed)
        refuse(target, manifest_path=staged.path)

    def test_the_manifest_of_another_table_is_refused(self, target: Lake) -> None:
        other = target.stage("a$other", rows(9))
        stranger = target.folder("a$t") / "_versions" / NAME
        shutil.copy(other.file, stranger)
        refuse(target, ConcurrentModificationError, manifest_path=str(stranger).lstrip("/"))

    def test_a_manifest_whose_data_file_is_missing_is_refused(self, target: Lake) -> None:
        folder = target.folder("a$t")
        before = set(files_below(folder / "data"))
        staged = target.stage("a$t")
        (new,) = set(files_below(folder / "data")) - before
        (folder / "data" / new).unlink()
        refuse(target, ConcurrentModificationError, manifest_path=staged.path)

    @pytest.mark.parametrize("name", [".lance", "..lance", "...lance"])
    def test_a_data_file_whose_blobs_would_be_in_another_folder_is_refused(self, target: Lake, name: str) -> None:
        """A cleanup removes the folder of a data file's blobs, which has the name of the file without the suffix."""
        staged = target.stage("a$t")

        def rename(manifest: Any) -> None:
            file = manifest.fragments[-1].files[0]
            (target.folder("a$t") / "data" / file.path).rename(target.folder("a$t") / "data" / name)
            file.path = name

        staged.file.write_bytes(edit_manifest(staged.file.read_bytes(), rename))
        refuse(target, manifest_path=staged.path)

    @pytest.mark.parametrize("sizes", [(2**63,), (2**64 - 1,), (2**62, 2**62)])
    def test_files_larger_than_the_catalog_can_count_are_refused(self, target: Lake, sizes: tuple[int, ...]) -> None:
        staged = target.stage("a$t", rows(len(sizes)), max_rows_per_file=1)

        def resize(manifest: Any) -> None:
            for fragment, size in zip(reversed(manifest.fragments), sizes, strict=False):
                fragment.files[0].file_size_bytes = size

        staged.file.write_bytes(edit_manifest(staged.file.read_bytes(), resize))
        refuse(target, manifest_path=staged.path)

    def test_a_manifest_above_the_limit_is_refused_before_it_is_read(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path / "lake", max_manifest_bytes=100_000)
        lake("CreateNamespace", "a")
        lake.write("a$t")
        staged = lake.stage("a$t")
        sound = staged.file.read_bytes()
        with staged.file.open("r+b") as file:
            file.truncate(2**40)  # sparse: it takes no space, but reading it would take a terabyte of memory
        with pytest.raises(InvalidInputError, match="max_manifest_bytes"):
            lake("CreateTableVersion", "a$t", version=2, manifest_path=staged.path)
        staged.file.write_bytes(sound)
        lake.commit("a$t", staged)
        lake.close()

    @pytest.mark.parametrize("place", ["data", "_versions"])
    def test_a_folder_that_is_a_link_is_refused(self, target: Lake, place: str) -> None:
        staged = target.stage("a$t")
        folder, other = target.folder("a$t") / place, target.folder("a$other") / place
        for file in folder.iterdir():
            if not (other / file.name).exists():
                shutil.copy2(file, other / file.name)
        folder.rename(folder.with_name("aside"))
        folder.symlink_to(other)
        refuse(target, manifest_path=staged.path)


class TestUnmanaged:
    def test_a_table_that_pennon_does_not_manage_is_as_confined(self, lake: Lake) -> None:
        folder = lake.root / "t.lance"
        lance.write_dataset(rows(), folder)
        lance.write_dataset(rows(), lake.root / "other.lance")
        staged, other = stage_in(folder), stage_in(lake.root / "other.lance")
        lake("TableExists", "t")
        lake("TableExists", "other")
        before = lake.state()
        for path in (other.path, f"{staged.path}/../{staged.file.name}", str(staged.file.parent).lstrip("/"), ""):
            with pytest.raises(InvalidInputError):
                lake("CreateTableVersion", "t", version=2, manifest_path=path)
        for request in (
            {"manifest_size": 1},
            {"e_tag": "x"},
            {"naming_scheme": "V1"},
            {"version": 3},
        ):
            with pytest.raises((InvalidInputError, ConcurrentModificationError)):
                lake.commit("t", staged, **request)
        with pytest.raises(TableBranchNotFoundError):
            lake.commit("t", staged, branch="dev")
        assert lake.state() == before
        garbage = Staged(staged.file, 2)
        garbage.file.write_bytes(b"garbage")
        with pytest.raises(InvalidInputError):
            lake.commit("t", garbage)
        assert lance.dataset(folder).version == 1
