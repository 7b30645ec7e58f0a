from pathlib import Path

from kit.events import CaseStarted, EventLog, EventReader, SessionStarted, parse_event

EVENTS = [SessionStarted(session="s", pid=i) for i in range(5)]


def write(path: Path) -> bytes:
    log = EventLog(path)
    for event in EVENTS:
        log.append(event)
    log.close()
    return path.read_bytes()


def test_events_come_back_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path / "e")
    assert EventReader(tmp_path / "e").new() == EVENTS


def test_a_file_that_does_not_exist_yet_has_no_events(tmp_path: Path) -> None:
    reader = EventReader(tmp_path / "e")
    assert reader.new() == []
    write(tmp_path / "e")
    assert reader.new() == EVENTS


def test_every_truncation_gives_the_whole_events_before_it(tmp_path: Path) -> None:
    data = write(tmp_path / "whole")
    for cut in range(len(data) + 1):
        path = tmp_path / "cut"
        path.write_bytes(data[:cut])
        reader = EventReader(path)
        complete = data[:cut].count(b"\n")
        assert reader.new() == EVENTS[:complete]
        found = reader.rest()
        assert found in ([], EVENTS[complete : complete + 1])
        assert reader.damaged <= 1


def test_a_line_arriving_in_pieces_is_one_event(tmp_path: Path) -> None:
    path = tmp_path / "e"
    line = EVENTS[0].model_dump_json().encode() + b"\n"
    reader = EventReader(path)
    found = []
    for i in range(len(line)):
        with path.open("ab") as file:
            file.write(line[i : i + 1])
        found += reader.new()
    assert found == EVENTS[:1]
    assert reader.damaged == 0


def test_rubbish_is_counted_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "e"
    good = CaseStarted(session="s", case="c")
    path.write_bytes(b"\xff\xfe\n{}\n" + good.model_dump_json().encode() + b'\n{"event":"other"}\n\n[1')
    reader = EventReader(path)
    assert reader.rest() == [good]
    assert reader.damaged == 4


def test_an_event_with_an_unknown_key_is_no_event() -> None:
    assert parse_event('{"event":"case-started","at":1,"session":"s","case":"c","verdict":"passed"}') is None
