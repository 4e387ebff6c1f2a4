"""Messages, bars and silence, on a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from remargin.progress import end_live, is_live, say, show, show_live, silenced, tell, track

PROGRAM = r"""
import sys, time
from remargin.progress import end_live, show_live, silenced, tell, track
quiet = "--quiet" in sys.argv
with silenced(quiet):
    for number in track(range(4), "counting", total=4):
        time.sleep(0.3)
    for number in track(range(2), "of [/b]a[red]\x1b[2J", total=2):
        time.sleep(0.2)
        for inner in track(range(2), "inside", total=2):
            pass
    for group in track([[1, 2], [3]], "weighing", total=3, size=len):
        time.sleep(0.3)
    if not quiet:
        show_live("a live line " + 100 * "x")
        tell("a message")
        show_live("another")
        end_live()
"""


def on_a_terminal(*options: str) -> str:
    """What the program shows on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, *options], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 1024)
        except OSError:  # its end
            break
        if not part:
            break
        shown += part
    assert program.wait() == 0
    os.close(ours)
    return shown.decode()


def test_a_bar_has_a_rate_and_the_time_that_is_left() -> None:
    shown = on_a_terminal()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert re.search(r"counting .* 2/4 +[\d.]+/s 0:00:\d\d left 0:00:\d\d", text)
    assert re.search(r"weighing .* 2/3 ", text)
    assert "of [/b]a[red]\\x1b[2J" in text  # neither markup of rich nor a sequence for the terminal
    assert "\x1b[2J" not in shown
    assert "inside" not in text  # it would be drawn over the bar around it
    assert max(map(len, re.split(r"[\r\n]+", text))) <= 80


def test_a_message_takes_the_place_of_a_live_line() -> None:
    shown = on_a_terminal()
    after = shown[shown.index("a live line") :]
    assert re.fullmatch(r"a live line x+\x1b\[K\r\x1b\[Ka message\r\n\ranother\x1b\[K\r\n", after)
    assert len(re.match(r"a live line x+", after)[0]) == 79  # type: ignore[index]


def test_silence_is_silent_on_a_terminal_too() -> None:
    assert on_a_terminal("--quiet") == ""


def test_elsewhere_there_are_no_bars(capsys: pytest.CaptureFixture[str]) -> None:
    assert not is_live()
    assert list(track("abc", "counting", total=3)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_silence_keeps_warnings_errors_and_results(capsys: pytest.CaptureFixture[str]) -> None:
    with silenced():
        for line in ("message", "WARNING: careful"):
            tell(line)
            say(line)
        tell("an error", error=True)
        show("a result")
        assert list(track("ab", "counting", show=True)) == ["a", "b"]
        with silenced(False):  # inside, nobody makes it loud again
            tell("message")
    tell("after")
    assert capsys.readouterr() == ("a result\nafter\n", "WARNING: careful\nWARNING: careful\nan error\n")


def test_a_live_line_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show_live("step 1")
    end_live()
    end_live()  # which is gone
    assert capsys.readouterr().err == "\rstep 1\x1b[K\n"
