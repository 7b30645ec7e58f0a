"""Takes out of a bundle what nobody outside needs: home folders, user names, tokens and passwords.

Works on bytes, so that it takes any log. Replacements hold no quote and no backslash, so JSON stays JSON.
"""

import os
import pwd
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from kit.secrets import is_secret

REMOVED = b"[removed]"
_USER = b"$USER"
_SHORTEST_SECRET = 8
_END = rb"[^/\s\"'\\:,;()\[\]{}<>]+"
_STOP = rb"(?=[/\s\"'\\:,;()\[\]{}<>]|$)"
_COMMON_NAMES = frozenset(
    b"root user users admin ubuntu debian runner nobody home jenkins gitlab github docker build builder ci test".split()
)
_TOKENS = re.compile(
    rb"hf_[A-Za-z0-9]{20,}"
    rb"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    rb"|sk-[A-Za-z0-9_-]{20,}|xox[abeprs]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16}|nvapi-[A-Za-z0-9_-]{20,}|pypi-[A-Za-z0-9_-]{40,}"
    rb"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*"
)
_KEYS_OF_SECRETS = b"token secret passwd password api_key api-key apikey access_key access-key accesskey".split()
_SPELLED = b"|".join(spelling for key in _KEYS_OF_SECRETS for spelling in (key, key.upper(), key.title()))
_KEYED = re.compile(  # without the flag for any case, which would make it three times as slow
    rb"((?:" + _SPELLED + rb")[\"'\\]*\s*[=:]\s*[\"'\\]*)"
    rb"(?!None\b|null\b|[Tt]rue\b|[Ff]alse\b)[A-Za-z0-9_./+~=-]{8,}"
)
_BEARER = re.compile(rb"([Bb]earer\s+|BEARER\s+|[Bb]asic\s+)[A-Za-z0-9_.=+/~-]{12,}")
_IN_URL = re.compile(rb"://[^/\s\"'@\\]+@")
_HOME = re.compile(rb"/(?:home|Users)/(" + _END + rb")")
_PATH_BEFORE = re.compile(rb"[\w.+~:/-]*\Z")
_LONGEST_PATH = 1024
_WORDS = re.compile(rb"[A-Za-z0-9_]+")
_KEYS = re.compile(rb'"([\w.-]+)"\s*:')
_NAMING = re.compile(rb'"(?:event|trouble|runtime|source|name|session|case)"\s*:\s*"([^"]*)"')


class Scrubber:
    """Replaces home folders by ``~``, user names by ``$USER``, secrets by ``[removed]``.

    Args:
        homes: home folders beside those below /home, /Users and /root.
        users: user names; common ones, such as root, tell nothing about a person and stay.
        secrets: values that must not appear.
        vocabulary: words that carry meaning here; a user name among them is only replaced as a part of a path.
    """

    def __init__(
        self, homes: Iterable[str], users: Iterable[str], secrets: Iterable[str], vocabulary: Iterable[bytes] = ()
    ) -> None:
        known = set(vocabulary)
        self._secrets = sorted((s.encode() for s in set(secrets) if len(s) >= _SHORTEST_SECRET), key=len, reverse=True)
        folders = {b"/root"} | {home.rstrip("/").encode() for home in homes if home.rstrip("/").count("/") >= 2}
        self._homes = [_literal(folder, rb"[\w.~-]") for folder in sorted(folders, key=len, reverse=True)]
        self._users = []
        for name in sorted({user.encode() for user in users if user}, key=len, reverse=True):
            if name not in _COMMON_NAMES:
                in_paths = bool(known & set(_WORDS.findall(name)))
                self._users.append(_literal(b"/" + name) if in_paths else _word(name))

    def __call__(self, data: bytes) -> bytes:
        """`data` without them."""
        for secret in self._secrets:
            data = data.replace(secret, REMOVED)
        data = _TOKENS.sub(REMOVED, data)
        data = _KEYED.sub(lambda match: match[1] + REMOVED, data)
        data = _BEARER.sub(lambda match: match[1] + REMOVED, data)
        data = _IN_URL.sub(b"://", data)
        for home in self._homes:
            data = home.sub(b"~", data)
        data = _HOME.sub(_without_name, data)
        for user in self._users:
            data = user.sub(lambda match: b"/" + _USER if match[0].startswith(b"/") else _USER, data)
        return data


def _literal(text: bytes, not_after: bytes = b"") -> re.Pattern[bytes]:
    """`text` as whole parts of a path. The literal goes first, since `re` finds patterns fast that begin with one."""
    before = rb"(?<!" + not_after + re.escape(text) + rb")" if not_after else b""
    return re.compile(re.escape(text) + before + _STOP)


def _word(name: bytes) -> re.Pattern[bytes]:
    return re.compile(re.escape(name) + rb"(?<![A-Za-z0-9_]" + re.escape(name) + rb")(?![A-Za-z0-9_])")


def _without_name(match: re.Match[bytes]) -> bytes:
    """A folder below /home or /Users: ``~`` at the root, the path with ``$USER`` below another folder; a URL stays."""
    before = _PATH_BEFORE.search(match.string, max(0, match.start() - _LONGEST_PATH), match.start())
    inner = before[0].rpartition(b":")[2] if before else b""
    if inner in (b"", b"/var", b"//"):  # the last one: file:///home/…
        return b"~"
    is_path = inner.startswith(b"/") and not inner.startswith(b"//")
    return match[0][: match.start(1) - match.start()] + _USER if is_path else match[0]


def _named_in_paths(data: bytes) -> set[str]:
    """The names of home folders in `data`."""
    return {match[1].decode(errors="ignore") for match in _HOME.finditer(data) if _without_name(match) != match[0]}


def scrubber_for(files: Mapping[str, bytes], environment: Mapping[str, str] | None = None) -> Scrubber:
    """A scrubber for the files of one run: knows this process's user, home and secrets, and names in paths below /home.

    Args:
        environment: variables of this process, by default `os.environ`.
    """
    given = os.environ if environment is None else environment
    users = {given.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}
    homes = {given.get("HOME", ""), str(Path.home())}
    try:
        entry = pwd.getpwuid(os.getuid())
        users.add(entry.pw_name)
        homes.add(entry.pw_dir)
    except KeyError:
        pass
    for data in files.values():
        users |= _named_in_paths(data)
    secrets = {value for name, value in given.items() if is_secret(name)}
    return Scrubber(homes, users, secrets, _vocabulary(files))


def _vocabulary(files: Mapping[str, bytes]) -> set[bytes]:
    """Every word of plan, profile and waivers; of the rest, JSON keys, and the values of those that name things."""
    words: set[bytes] = set()
    for name, data in files.items():
        if name in ("plan.json", "profile.json", "waivers.json"):
            words |= set(_WORDS.findall(data))
        elif name.endswith((".json", ".jsonl")):
            for text in set(_KEYS.findall(data)) | set(_NAMING.findall(data)):
                words |= set(_WORDS.findall(text))
    return words
