"""What must not leave the house: home folders, user names, tokens. And what must stay readable."""

import json

import pytest

from kit.results.scrub import Scrubber, scrubber_for

SCRUB = Scrubber(["/data/people/annabel"], ["annabel"], ["s3cr3t-value-77"], [b"case", b"passed"])


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/home/annabel/x.py", "~/x.py"),
        ("/home/someone-else/x.py", "~/x.py"),
        ("/Users/annabel/x.py", "~/x.py"),
        ("/root/.cache/kit", "~/.cache/kit"),
        ('"/root"', '"~"'),
        ("/data/people/annabel/kit", "~/kit"),
        ("/mnt/home/annabel/kit", "/mnt/home/$USER/kit"),
        ("PATH=/usr/bin:/home/ben/bin", "PATH=/usr/bin:~/bin"),
        ("host:/home/ben/x file:///home/ben/y", "host:~/x file://~/y"),
        ("/scratch/annabel/run", "/scratch/$USER/run"),
        ("run by annabel on lab-7", "run by $USER on lab-7"),
        ("--token s3cr3t-value-77 now", "--token [removed] now"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345", "HF_TOKEN=[removed]"),
        ("ghp_" + "a1" * 18, "[removed]"),
        ("Authorization: Bearer abcdefghijkl.mnop", "Authorization: Bearer [removed]"),
        ("'password': 'correct-horse-1'", "'password': '[removed]'"),
        ('{\\"api_key\\": \\"0123456789abcdef\\"}', '{\\"api_key\\": \\"[removed]\\"}'),
        ("https://ann:pass@example.org/x", "https://example.org/x"),
    ],
)
def test_taken_out(text: str, clean: str) -> None:
    assert SCRUB(text.encode()).decode() == clean


@pytest.mark.parametrize(
    "text",
    [
        "'api_key': None, 'max_total_tokens': 4096, 'skip_tokenizer_init': True",
        '{"name":"wrong_tokens","value":0.0,"note":"token ids that are not the prompt\'s"}',
        "/opt/root/x /usr/lib/python3/site-packages/annabelle /roots",
        "https://example.org/home/page?x=1",
        "max_abs_error = 0.3 nat, limit <= 0.1 (peer), margin ×0.333",
    ],
)
def test_left_alone(text: str) -> None:
    assert SCRUB(text.encode()).decode() == text


def test_a_user_called_like_a_word_of_kit_is_replaced_in_paths_only() -> None:
    scrub = Scrubber([], ["passed"], [], [b"passed"])
    assert scrub(b'{"status":"passed","path":"/scratch/passed/x"}') == b'{"status":"passed","path":"/scratch/$USER/x"}'


def test_what_the_process_and_the_files_tell() -> None:
    files = {"events.jsonl": b'{"event":"x","a":"/home/ben/k by ben and carla for event x"}', "logs/s.log": b"\xff ben"}
    scrub = scrubber_for(files, {"USER": "carla", "HOME": "/srv/homes/carla", "MY_API_KEY": "k-0123456789"})
    assert json.loads(scrub(files["events.jsonl"]))["a"] == "~/k by $USER and $USER for event x"
    assert scrub(files["logs/s.log"]) == b"\xff $USER"
    assert scrub(b"/srv/homes/carla/x k-0123456789") == b"~/x [removed]"
