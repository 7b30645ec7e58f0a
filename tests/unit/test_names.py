from kit.names import near_matches, unknown


def test_near_matches_whatever_the_case() -> None:
    assert near_matches("B200", ["MI355X-4gpu", "b200"]) == "did you mean 'b200'?"


def test_all_names_where_none_is_near() -> None:
    assert near_matches("zzz", ["b", "a"]) == "known: a, b"
    assert near_matches("zzz", [f"{n:02d}" for n in range(33)]).endswith("28, 29 and 3 more")


def test_nothing_known() -> None:
    assert near_matches("x", []) == "there is none"


def test_the_fault_reads_as_one_line() -> None:
    assert (
        str(unknown("runtime", "dokcer", ["auto", "docker", "local"]))
        == "unknown runtime 'dokcer'; did you mean 'docker'?"
    )
