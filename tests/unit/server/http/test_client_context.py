"""The context of a request: the client's own words, and nothing of what is secret or of the wire."""

from __future__ import annotations

from typing import Any

from pennon.server.http.client_context import client_context
from tests.unit.server.exchanges import exchange


def test_all_three_ways_to_send_it_count() -> None:
    request = exchange(headers={"x-lance-ctx-trace": "1", "X-Lance-Ctx-Job": "2", "team": "blue"})
    context = client_context(request, {"context": {"body": "3"}}, {"team"})
    assert context == {"trace": "1", "job": "2", "header.team": "blue", "body": "3"}


def test_a_header_wins_over_the_body() -> None:
    request = exchange(headers={"x-lance-ctx-trace": "header"})
    assert client_context(request, {"context": {"trace": "body"}}) == {"trace": "header"}


def test_headers_are_left_out_that_no_setting_names_and_secrets_always() -> None:
    names = ["authorization", "x-api-key", "cookie", "Proxy-Authorization", "x-amz-security-token", "X-Auth-Token"]
    others = ["host", "user-agent", "x-request-id", "cf-access-assertion", "x-session", "x-userinfo"]
    headers = dict.fromkeys([*names, *others], "hush")
    assert client_context(exchange(headers=headers), {}, {name.lower() for name in names}) == {}
    stated = {f"header.{name}": "hush" for name in [*names, *others]}
    sent: dict[str, Any] = {"context": {**stated, "header.X-Team": "blue", "token_count": "7"}}
    assert client_context(exchange(), sent, {"x-team"}) == {"header.X-Team": "blue", "token_count": "7"}


def test_what_is_no_map_of_texts_is_left_out() -> None:
    wrongs: list[Any] = ["text", ["list"], 7, None, {"a": 1, "b": None, "c": ["x"]}]
    for wrong in wrongs:
        assert client_context(exchange(), {"context": wrong}) == {}


def test_it_is_no_longer_than_it_may_be() -> None:
    many: dict[str, Any] = {f"{number:04}" * 2000: "x" * 5000 for number in range(1000)}
    context = client_context(exchange(), {"context": many})
    assert len(context) == 64
    assert {(len(key), len(value)) for key, value in context.items()} == {(1024, 1024)}
