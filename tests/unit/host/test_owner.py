"""Whether the kit that started a container still lives: certain, or left alone."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import requests

from kit.host import leftovers
from kit.host.container import OWNER_LABEL, RUN_LABEL
from kit.host.owner import Owner

ME = Owner.myself()


def other_process() -> tuple["subprocess.Popen[str]", Owner]:
    """A process that says who it is, and waits."""
    code = "from kit.host.owner import Owner; print(Owner.myself().label, flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    owner = Owner.read(child.stdout.readline())
    assert owner is not None
    return child, owner


def test_a_process_that_lives_is_not_gone_and_one_that_was_killed_is() -> None:
    child, owner = other_process()
    assert owner.pid == child.pid
    assert owner.gone(ME) is False
    child.kill()
    deadline = time.monotonic() + 5
    while not owner.gone(ME):  # a zombie by now, which nobody has waited for
        assert time.monotonic() < deadline
    child.wait()
    assert owner.gone(ME) is True


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({}, False),
        ({"start": ME.start + 1}, True),  # the pid was given to another process
        ({"boot": "before", "pid": 1}, True),
        ({"boot": "before", "machine": "elsewhere"}, None),
        ({"machine": "elsewhere"}, False),  # renamed since; the boot id is what counts
        ({"namespace": "pid:[7]", "pid": 1}, None),
    ],
)
def test_what_cannot_be_known_is_not_taken_for_gone(change: dict[str, object], gone: bool | None) -> None:
    assert ME.model_copy(update=change).gone(ME) is gone


@pytest.mark.parametrize("label", ["", "{}", "not kit's", '{"pid": 1}'])
def test_another_label_is_no_owner(label: str) -> None:
    assert Owner.read(label) is None


class Engine:
    """Containers with these owners, and what was removed."""

    def __init__(self, *owners: Owner) -> None:
        self.removed: list[str] = []
        self.containers = SimpleNamespace(list=lambda **_: [self._container(n, o) for n, o in enumerate(owners)])

    def _container(self, number: int, owner: Owner) -> SimpleNamespace:
        name = f"kit-{number}"
        labels = {RUN_LABEL: str(number), OWNER_LABEL: owner.label}
        return SimpleNamespace(
            name=name, status="running", labels=labels, remove=lambda force, v: self.removed.append(name)
        )


def test_only_what_a_dead_kit_of_this_user_left_is_removed() -> None:
    dead = ME.model_copy(update={"start": ME.start + 1})
    engine = Engine(
        ME, dead, dead.model_copy(update={"user": ME.user + 1}), ME.model_copy(update={"namespace": "pid:[7]"})
    )
    (told,) = leftovers.told(engine)
    assert engine.removed == []
    assert "container kit-1 (running) of run 1" in told.what
    (finding,) = leftovers.removed(engine)
    assert engine.removed == ["kit-1"]
    assert "it was removed" in finding.what
    assert str(os.getpid()) in finding.what


def test_an_engine_that_does_not_answer_is_a_finding() -> None:
    def fail(**_: object) -> None:
        raise requests.ConnectionError("gone")

    (finding,) = leftovers.removed(SimpleNamespace(containers=SimpleNamespace(list=fail)))
    assert "gone" in finding.what
