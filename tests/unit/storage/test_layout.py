"""Names inside a Lance table."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from pennon.storage.layout import (
    Scheme,
    check_branch,
    manifest_name,
    parse_manifest_name,
    parse_staged_name,
    versions_folder,
)

schemes = st.sampled_from(["V1", "V2"])


class TestManifestNames:
    @pytest.mark.parametrize(
        ("version", "scheme", "name"),
        [
            (1, "V1", "1.manifest"),
            (10, "V1", "10.manifest"),
            (1, "V2", "18446744073709551614.manifest"),
            (2**64 - 1, "V2", "00000000000000000000.manifest"),
        ],
    )
    def test_they_are_those_of_lance(self, version: int, scheme: Scheme, name: str) -> None:
        assert manifest_name(version, scheme) == name

    @given(st.integers(0, 10**19 - 1), schemes)
    def test_they_stand_for_their_version(self, version: int, scheme: Scheme) -> None:
        parsed = parse_manifest_name(manifest_name(version, scheme))
        assert parsed is not None
        assert (parsed.version, parsed.scheme) == (version, scheme)

    @given(st.integers(0, 10**19 - 1), schemes, st.uuids())
    def test_staged_ones_stand_for_the_version_they_are_meant_for(
        self, version: int, scheme: Scheme, name: uuid.UUID
    ) -> None:
        parsed = parse_staged_name(f"{manifest_name(version, scheme)}-{name}")
        assert parsed is not None
        assert (parsed.version, parsed.scheme) == (version, scheme)
        assert parse_manifest_name(f"{manifest_name(version, scheme)}-{name}") is None

    @pytest.mark.parametrize(
        "name",
        [
            "",
            ".manifest",
            "x.manifest",
            "-1.manifest",
            "1.manifest.tmp",
            "1.manifest\n",
            "/1.manifest",
            "a/1.manifest",
            "..",
            "99999999999999999999.manifest",
            "123456789012345678901.manifest",
            "١.manifest",
            "1_0.manifest",
            " 1.manifest",
            "latest_version_hint.json",
        ],
    )
    def test_nothing_else_stands_for_a_version(self, name: str) -> None:
        assert parse_manifest_name(name) is None
        assert parse_staged_name(name) is None
        assert parse_staged_name(f"{name}-{uuid.uuid4()}") is None

    @given(st.text())
    def test_no_text_breaks_it(self, name: str) -> None:
        parse_manifest_name(name)
        parse_staged_name(name)


class TestBranches:
    @pytest.mark.parametrize("branch", ["dev", "a/b", "v1.0", "A_b-C.d", "x" * 200])
    def test_a_branch_has_a_folder_of_its_own(self, branch: str) -> None:
        assert check_branch(branch) == branch
        assert versions_folder(branch) == f"tree/{branch}/_versions"

    @pytest.mark.parametrize("main", [None, "", "main"])
    def test_the_main_branch_has_that_of_the_table(self, main: str | None) -> None:
        assert check_branch(main) == ""
        assert versions_folder("") == "_versions"

    @pytest.mark.parametrize(
        "branch",
        [
            ".",
            "..",
            "a/..",
            "../a",
            "a/../b",
            "/a",
            "a/",
            "a//b",
            "a b",
            "a\\b",
            "a\0",
            "a\n",
            "ä",
            "x" * 201,
            "%2e%2e",
            "a/.",
        ],
    )
    def test_nothing_leads_out_of_it(self, branch: str) -> None:
        with pytest.raises(InvalidInputError):
            check_branch(branch)

    @given(st.text())
    def test_no_text_leads_out_of_it(self, branch: str) -> None:
        try:
            folder = versions_folder(check_branch(branch))
        except InvalidInputError:
            return
        assert ".." not in folder.split("/")
        assert folder == "_versions" or folder.startswith("tree/")
