"""Folders on a disk."""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pennon.storage import local
from pennon.storage.local import TRASH, LocalFileIO


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "table" / "_versions").mkdir(parents=True)
    return tmp_path / "table"


@pytest.fixture
def folder(path: Path) -> LocalFileIO:
    return LocalFileIO(str(path))


class TestReading:
    def test_a_file_is_read_and_described(self, folder: LocalFileIO, path: Path) -> None:
        (path / "a.txt").write_bytes(b"content")
        status = (path / "a.txt").stat()
        stored = folder.stat("a.txt")
        assert folder.read("a.txt") == b"content"
        assert stored is not None
        assert (stored.path, stored.size) == ("a.txt", 7)
        assert stored.e_tag == f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-7"'

    def test_what_is_no_file_is_not_read(self, folder: LocalFileIO, path: Path) -> None:
        (path / "file").write_text("x")
        (path / "link").symlink_to(path / "file")
        for name in ("nothing", "_versions", "file/below", "link"):
            with pytest.raises(FileNotFoundError):
                folder.read(name)
        assert folder.stat("nothing") is None
        assert folder.stat("file/below") is None

    def test_files_and_folders_are_listed(self, folder: LocalFileIO, path: Path) -> None:
        (path / "_versions" / "1").write_text("x")
        (path / "_versions" / "sub").mkdir()
        assert [file.path for file in folder.files("_versions")] == ["_versions/1"]
        assert list(folder.files("nothing")) == []
        assert list(folder.files("_versions/1")) == []
        assert folder.folders() == ["_versions"]
        assert LocalFileIO("/nothing/here").folders() == []

    def test_empty_folders_are_recognized(self, folder: LocalFileIO, path: Path) -> None:
        assert not folder.is_empty()
        (path / "_versions").rmdir()
        assert folder.is_empty()
        assert LocalFileIO("/nothing/here").is_empty()


class TestWriting:
    def test_a_file_is_put_once(self, folder: LocalFileIO, path: Path) -> None:
        stored = folder.put_if_absent("deep/er/file", b"first")
        assert stored is not None
        assert stored.size == 5
        assert folder.put_if_absent("deep/er/file", b"second") is None
        assert (path / "deep/er/file").read_bytes() == b"first"
        assert [file.name for file in (path / "deep/er").iterdir()] == ["file"]

    def test_of_many_who_put_a_file_one_does(self, folder: LocalFileIO) -> None:
        with ThreadPoolExecutor(8) as threads:
            done = list(threads.map(lambda n: folder.put_if_absent("file", str(n).encode()), range(32)))
        assert sum(one is not None for one in done) == 1

    def test_a_staged_file_gets_its_final_name(self, folder: LocalFileIO, path: Path) -> None:
        (path / "_versions" / "staged").write_bytes(b"x")
        stored = folder.publish_if_absent("_versions/staged", "_versions/final", b"x")
        assert stored is not None
        assert stored.path == "_versions/final"
        assert [file.name for file in (path / "_versions").iterdir()] == ["final"]

    def test_a_name_that_is_taken_stays_with_its_holder(self, folder: LocalFileIO, path: Path) -> None:
        (path / "_versions" / "staged").write_bytes(b"new")
        (path / "_versions" / "final").write_bytes(b"old")
        assert folder.publish_if_absent("_versions/staged", "_versions/final", b"new") is None
        (path / "_versions" / "staged").unlink()
        assert folder.publish_if_absent("_versions/staged", "_versions/final", b"new") is None
        assert (path / "_versions" / "final").read_bytes() == b"old"

    def test_a_staged_file_that_was_lost_is_written_from_memory(self, folder: LocalFileIO, path: Path) -> None:
        assert folder.publish_if_absent("_versions/staged", "_versions/final", b"content") is not None
        assert (path / "_versions" / "final").read_bytes() == b"content"

    def test_a_removed_folder_is_not_created_again(self, folder: LocalFileIO, path: Path) -> None:
        (path / "_versions").rmdir()
        with pytest.raises(FileNotFoundError):
            folder.publish_if_absent("_versions/staged", "_versions/final", b"content")
        assert not (path / "_versions").exists()


class TestRemoving:
    def test_a_file_is_removed_if_it_is_there(self, folder: LocalFileIO, path: Path) -> None:
        (path / "file").write_text("x")
        folder.remove("file")
        folder.remove("file")
        assert not (path / "file").exists()

    def test_a_folder_goes_with_everything_in_it(self, folder: LocalFileIO, path: Path) -> None:
        (path / "_versions" / "1").write_text("x")
        folder.remove_all()
        folder.remove_all()
        assert not path.exists()
        assert list((path.parent / TRASH).iterdir()) == []

    def test_links_in_it_are_removed_and_not_followed(self, folder: LocalFileIO, path: Path, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "kept").write_text("x")
        (path / "link").symlink_to(tmp_path / "outside")
        folder.remove_all()
        assert (tmp_path / "outside" / "kept").exists()

    def test_a_folder_that_is_itself_a_link_is_unlinked(self, path: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(path)
        LocalFileIO(str(tmp_path / "link")).remove_all()
        assert not (tmp_path / "link").exists()
        assert path.exists()


class TestFlushing:
    """Files reach the disk on systems with other calls for it than Linux."""

    @pytest.fixture
    def flushed(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The calls that flush, in order; each is still made."""
        calls: list[str] = []
        fsync, control = os.fsync, fcntl.fcntl

        def note_fsync(opened: int) -> None:
            calls.append("fsync")
            fsync(opened)

        def note_control(opened: int, command: int) -> int:
            calls.append("fcntl")
            return control(opened, command)

        monkeypatch.setattr(os, "fsync", note_fsync)
        monkeypatch.setattr(fcntl, "fcntl", note_control)
        return calls

    def test_a_system_with_a_full_flush_is_asked_for_that(
        self, path: Path, flushed: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", fcntl.F_GETFD, raising=False)  # a command that Linux knows
        LocalFileIO(str(path), durable=True).put_if_absent("a.txt", b"content")
        assert set(flushed) == {"fcntl"}

    def test_a_file_system_without_a_full_flush_is_flushed_as_far_as_it_can(
        self, path: Path, flushed: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", 10_051, raising=False)  # a command that no system knows
        LocalFileIO(str(path), durable=True).put_if_absent("a.txt", b"content")
        assert flushed.count("fsync") == flushed.count("fcntl") > 0

    def test_many_files_are_flushed_one_by_one_where_a_file_system_cannot_be(
        self, path: Path, flushed: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [f"{number}.txt" for number in range(300)]
        for name in names:
            (path / name).touch()
        LocalFileIO(str(path), durable=True).sync(names)
        assert len(flushed) == 0  # by one call for all of them
        monkeypatch.setattr(local, "_syncfs", lambda: None)
        LocalFileIO(str(path), durable=True).sync(names)
        assert len(flushed) > 300
