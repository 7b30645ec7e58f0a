"""A model hub on this machine: the endpoints of the hub that huggingface_hub asks, with every way to fail that a test wants.

Large files (LFS) are answered by a redirect to another origin, as the real hub does.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

_PAGE = 2
_INFO = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)/revision/([^/]+)")
_TREE = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)/tree/([^/]+)")
_RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_CDN = re.compile(r"/cdn/([0-9a-f]{64})")


@dataclass(frozen=True)
class Seen:
    """One request: method, path without query, and three of its headers."""

    method: str
    path: str
    range: str | None
    authorization: str | None
    encoding: str | None


@dataclass
class Repository:
    """One repository of one commit.

    Attributes:
        files: content by path. large: paths that are kept as LFS files.
        served: what is sent instead of a file, by path.
        token: the only one that is given the files; empty: everybody is.
    """

    type: str
    name: str
    commit: str
    files: dict[str, bytes]
    large: set[str] = field(default_factory=set)
    served: dict[str, bytes] = field(default_factory=dict)
    token: str = ""


@dataclass
class FakeHub:
    """What it has, how it fails, and what it was asked.

    Attributes:
        breaks: by path, after how many bytes of an answer the connection is cut, once.
        stalls: by path, after how many bytes an answer waits for `go_on`.
        down: answer 503 to everything after a connection was cut.
        status: answer this to everything, unless 0; with `body`.
        ignores_ranges: answer 200 and the whole file to a request for a part.
    """

    url: str = ""
    cdn: str = ""
    repositories: list[Repository] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    breaks: dict[str, int] = field(default_factory=dict)
    stalls: dict[str, int] = field(default_factory=dict)
    down: bool = False
    broken: bool = False
    status: int = 0
    body: bytes = b"{}"
    ignores_ranges: bool = False
    go_on: threading.Event = field(default_factory=threading.Event)
    stalled: threading.Event = field(default_factory=threading.Event)

    def add(self, repository: Repository) -> Repository:
        """Put up a repository."""
        self.repositories.append(repository)
        return repository

    def contents(self, path_end: str) -> list[Seen]:
        """The requests for a file's bytes."""
        return [seen for seen in self.seen if seen.path.endswith(path_end) and "/api/" not in seen.path]


def sha256(content: bytes) -> str:
    """Hex."""
    return hashlib.sha256(content).hexdigest()


def blob_id(content: bytes) -> str:
    """As ``git hash-object`` has it."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def running() -> Iterator[FakeHub]:
    """A hub, and its store of large files on another port."""
    hub = FakeHub()

    class Handler(_Handler):
        state = hub

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    hub.url, hub.cdn = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        hub.go_on.set()
        for server in servers:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: FakeHub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        authorization = self.headers.get("Authorization")
        encoding = self.headers.get("Accept-Encoding")
        self.state.seen.append(Seen(self.command, path, self.headers.get("Range"), authorization, encoding))
        if self.state.status or (self.state.down and self.state.broken):
            return self._answer(self.state.status or 503, self.state.body)
        if match := _CDN.fullmatch(path):
            return self._content_of(match[1])
        for pattern, answer in ((_INFO, self._info), (_TREE, self._tree), (_RESOLVE, self._resolve)):
            if match := pattern.fullmatch(urlsplit(self.path).path):
                return answer(*(unquote(group or "") for group in match.groups()))
        return self._refuse(404, "", f"unknown: {path}")

    def _repository(self, kind: str, name: str, revision: str) -> Repository | None:
        found = [r for r in self.state.repositories if (r.type, r.name) == (kind, name)]
        if not found:
            self._refuse(404, "RepoNotFound", "Repository not found")
        elif revision not in ("main", found[0].commit):
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return found[0]
        return None

    def _info(self, kind: str, name: str, revision: str) -> None:
        if repository := self._repository(kind.removesuffix("s"), name, revision):
            self._answer(200, json.dumps({"id": name, "sha": repository.commit, "siblings": []}).encode())

    def _tree(self, kind: str, name: str, revision: str) -> None:
        repository = self._repository(kind.removesuffix("s"), name, revision)
        if repository is None:
            return
        start = int(parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0])
        entries = [_entry(path, content, path in repository.large) for path, content in repository.files.items()]
        headers = {}
        if start + _PAGE < len(entries):
            next_page = f"{self.state.url}{urlsplit(self.path).path}?recursive=true&cursor={start + _PAGE}"
            headers["Link"] = f'<{next_page}>; rel="next"'
        self._answer(200, json.dumps(entries[start : start + _PAGE]).encode(), headers)

    def _resolve(self, datasets: str, name: str, revision: str, path: str) -> None:
        repository = self._repository("dataset" if datasets else "model", name, revision)
        if repository is None:
            return None
        given = self.headers.get("Authorization") or ""
        if repository.token and given != f"Bearer {repository.token}":
            return self._refuse(403 if given else 401, "GatedRepo", f"Access is restricted; you sent {given!r}")
        if path not in repository.files:
            return self._refuse(404, "EntryNotFound", "Entry not found")
        if path not in repository.large:
            return self._send(path, repository.served.get(path, repository.files[path]), repository.commit)
        digest = sha256(repository.files[path])
        headers = {
            "Location": f"{self.state.cdn}/cdn/{digest}?path={quote(path)}&signature=signed-for-a-while",
            "X-Repo-Commit": repository.commit,
            "X-Linked-Size": str(len(repository.files[path])),
            "X-Linked-ETag": f'"{digest}"',
        }
        return self._answer(302, b"", headers)

    def _content_of(self, digest: str) -> None:
        for repository in self.state.repositories:
            for path, content in repository.files.items():
                if sha256(content) == digest:
                    return self._send(path, repository.served.get(path, content), repository.commit)
        return self._refuse(404, "EntryNotFound", "no such object")

    def _send(self, path: str, content: bytes, commit: str) -> None:
        start, status = 0, 200
        headers = {"ETag": f'"{sha256(content)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if asked and not self.state.ignores_ranges:
            start, status = int(asked[1]), 206
            if start >= len(content):
                return self._answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        body = content[start:]
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return None
        with suppress(ConnectionError):
            if path in self.state.breaks:
                self.wfile.write(body[: self.state.breaks.pop(path)])
                self.state.broken = True
                self.close_connection = True
            elif path in self.state.stalls:
                stall = self.state.stalls.pop(path)
                self.wfile.write(body[:stall])
                self.state.stalled.set()
                self.state.go_on.wait(60)
                self.wfile.write(body[stall:])
            else:
                self.wfile.write(body)
        return None

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self._answer(status, json.dumps({"error": message}).encode(), headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            **(headers or {}),
            "Content-Length": str(len(body)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: requests are in `FakeHub.seen`."""


def _entry(path: str, content: bytes, large: bool) -> dict[str, object]:
    entry: dict[str, object] = {"type": "file", "oid": blob_id(content), "size": len(content), "path": path}
    if large:
        entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
    return entry
