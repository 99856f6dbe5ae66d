"""A real S3 server over HTTP, in a process of its own."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import boto3
from botocore.config import Config

from tests.support.s3_app import REQUESTS

ROOT = Path(__file__).resolve().parents[2]
REGION = "us-east-1"


@dataclass(frozen=True)
class S3Root:
    """A place for tables in a bucket that one test has for itself."""

    bucket: str
    prefix: str
    options: dict[str, str]

    @property
    def url(self) -> str:
        """The address, as Lance and Pennon know it."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def arguments(self) -> list[str]:
        """The arguments of a server whose tables are there."""
        return ["--root", self.url, "--storage-options", json.dumps(self.options), "--vend-credentials"]


class S3Server:
    """A running server; its key is made for it and known to nothing else."""

    def __init__(self) -> None:
        self.key_id = f"test{secrets.token_hex(8)}"
        self.secret = secrets.token_hex(16)
        self._process: subprocess.Popen[str] | None = None
        self.endpoint = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.s3_app", self.key_id],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        # Empty if the process died; what it had to say about it is on our own standard error then.
        port = self._process.stdout.readline().strip()
        if not port:
            self.stop()
            raise RuntimeError("The S3 server did not start")
        self.endpoint = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the server."""
        assert self._process is not None, "The server is not running"
        return self._process.pid

    @property
    def options(self) -> dict[str, str]:
        """Storage options with which Lance reaches the server."""
        return {
            "aws_endpoint": self.endpoint,
            "aws_region": REGION,
            "aws_access_key_id": self.key_id,
            "aws_secret_access_key": self.secret,
            "allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
        }

    def client(self) -> Any:
        """Return a client of the server that does not retry."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self.key_id,
            aws_secret_access_key=self.secret,
            config=Config(signature_version="s3v4", retries={"max_attempts": 0}, s3={"addressing_style": "path"}),
        )

    def create_root(self, prefix: str = "tables") -> S3Root:
        """Create an empty bucket and return a place in it."""
        bucket = f"test-{secrets.token_hex(6)}"
        self.client().create_bucket(Bucket=bucket)
        return S3Root(bucket, prefix, self.options)

    def keys(self, root: S3Root, folder: str) -> set[str]:
        """Return the keys of the objects in a folder of a place, few as they are, and of those that were only begun."""
        client, where = self.client(), {"Bucket": root.bucket, "Prefix": f"{root.prefix}/{folder}/"}
        found = client.list_objects_v2(**where).get("Contents", [])
        begun = client.list_multipart_uploads(**where).get("Uploads", [])
        return {str(item["Key"]) for item in [*found, *begun]}

    def take_requests(self) -> list[str]:
        """Return the requests since the last call, each as a method and a path."""
        with urlopen(f"{self.endpoint}{REQUESTS}") as answer:
            return str(answer.read().decode()).splitlines()

    def remove_root(self, root: S3Root) -> None:
        """Delete a bucket with all that is in it."""
        client = self.client()
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=root.bucket):
            keys = [{"Key": found["Key"]} for found in page.get("Contents", [])]
            if keys:
                client.delete_objects(Bucket=root.bucket, Delete={"Objects": keys})
        client.delete_bucket(Bucket=root.bucket)

    def stop(self) -> None:
        """Tell the server to end, and wait until it has."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # closes its input, which is what ends it, and waits
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
