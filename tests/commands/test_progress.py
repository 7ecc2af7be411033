"""What is told of how far a command is."""

import io

import pytest
from rich.console import Console

from davylamp.commands.progress import ProgressLines, duration, show_progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_file_gets_a_line_a_minute_and_what_was_there_says_nothing_about_the_speed():
    lines, clock = [], Clock()
    progress = ProgressLines(110, lines.append, clock)
    progress.add("", 10)
    for clock.now, images in ((30, 5), (59, 5), (60, 10), (119, 1), (130, 4), (500, 0)):
        progress.add("art:pgd", images)
    assert lines == [
        "20 of 100 images in 1 min, about 4 min left; art:pgd",
        "25 of 100 images in 2 min, about 6 min left; art:pgd",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (5399, "90 min"), (5400, "1.5 h"), (36000, "10.0 h")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_terminal_gets_a_bar_over_what_is_left(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr("davylamp.report.text.console.make_console", lambda **_: console)
    with show_progress(12) as progress:
        progress("", 4)
        progress("foolbox:cw", 2)
    text = console.file.getvalue()
    assert "foolbox:cw" in text
    assert "2/8" in text
