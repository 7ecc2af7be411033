"""What is told of how far a command is, and how long the rest will take."""

import io
import os
import pty
import re
import sys
import threading
from contextlib import suppress

import pytest
from rich.console import Console

import davylamp
from davylamp.adapters import find_implementation
from davylamp.engine.query_estimates import expected_passes
from davylamp.errors import WrongType
from davylamp.report.text import progress as module
from davylamp.report.text.eta import TimeLeft, duration
from davylamp.report.text.progress import Advance, ProgressLines, describe_runs, show_progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def reporter(total, work=None):
    lines, clock = [], Clock()
    pace = TimeLeft(total, work or {}, clock)
    return Advance(pace, ProgressLines(pace, lines.append, clock).look), pace, lines, clock


def test_a_file_gets_a_line_a_minute_and_what_was_there_says_nothing_about_the_speed():
    progress, _, lines, clock = reporter(110)
    progress("", 10)
    for clock.now, images in ((30, 5), (59, 5), (60, 10), (119, 1), (130, 4), (500, 0)):
        progress("art:pgd", images)
    assert lines == [
        "20 of 100 images in 1 min, about 4 min left; art:pgd",
        "25 of 100 images in 2 min, about 6 min left; art:pgd",
    ]


def test_the_time_left_is_of_the_attacks_that_are_left_not_of_cheap_passes():
    """10 clean images of a second together; then 10 of 100 passes each: 100 seconds, not one."""
    progress, pace, _, clock = reporter(20, {"clean": (10, 1.0), "pgd": (10, 100.0)})
    assert pace.seconds_left is None
    progress("clean", 0)
    clock.now = 1.0
    progress("clean", 10)
    assert pace.seconds_left == pytest.approx(100.0)
    progress("pgd", 0)
    clock.now = 41.0
    progress.asked("pgd", 200)  # two images' worth in 40 seconds: 20 seconds each, not 10
    assert pace.partly == pytest.approx(2.0)
    assert pace.seconds_left == pytest.approx(160.0)


def test_passes_that_were_measured_replace_those_that_were_expected():
    progress, pace, _, clock = reporter(4, {"cw": (4, 1000.0)})
    progress("cw", 0)
    clock.now = 10.0
    progress.asked("cw", 200)
    progress("cw", 2)
    assert pace.seconds_left == pytest.approx(10.0)
    clock.now = 15.0
    progress.asked("cw", 100)
    assert pace.partly == pytest.approx(1.0)
    assert pace.seconds_left == pytest.approx(5.0)


def test_images_that_no_attack_has_fooled_still_take_all_that_are_left():
    """8 images, attacks of 2 and of 80 passes, 0.1 s a pass: 2 are left: they take 16 s more, not 0.4 s."""
    name = "worst-case(foolbox:fgsm,foolbox:pgd)"
    progress, pace, _, clock = reporter(8, {name: (8, 82.0)})
    progress(name, 0)
    clock.now = 1.6
    progress.asked(name, 16)
    progress(name, 6)
    assert pace.seconds_left == pytest.approx(16.0)
    clock.now = 9.6
    progress.asked(name, 80)
    assert pace.seconds_left == pytest.approx(8.0)
    assert pace.done + pace.partly == pytest.approx(7.0, abs=0.1)
    progress.asked(name, 80)
    clock.now = 17.6
    progress(name, 2)
    assert pace.seconds_left == pytest.approx(0.0)


def test_later_shards_of_a_worst_case_cost_what_finished_ones_did():
    name = "worst-case(foolbox:fgsm,foolbox:pgd)"
    progress, pace, _, clock = reporter(8, {name: (8, 82.0)})
    progress(name, 0)
    clock.now = 16.8
    progress.asked(name, 168)  # 2 passes for each of 4 images, 80 for each of the 2 that were left
    progress(name, 4)
    progress(name, 0)
    assert pace.seconds_left == pytest.approx(0.1 * 4 * 82)  # at most: nothing of it is fooled yet
    progress.asked(name, 8)
    clock.now = 17.6
    progress(name, 2)
    assert pace.seconds_left == pytest.approx(0.1 * 2 * 80)


@pytest.mark.parametrize("width", [80, 100])
def test_a_bar_breaks_no_number(monkeypatch, width):
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr("davylamp.report.text.console.make_console", lambda **_: console)
    monkeypatch.setattr(module, "_EARLY", 0.0)
    names = ",".join(f"foolbox:attack-{place}" for place in range(12))
    with show_progress(100_000) as progress:
        for name in ("clean predictions of torchvision:a-model-with-a-very-long-name", f"worst-case({names})"):
            progress(name, 50_000)
    lines = re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", console.file.getvalue())
    shown = [line for line in lines if "left" in line]
    assert shown
    assert all(re.search(r"\d+/100000 0:00:0\d about \d+ s left$", line) for line in shown), shown
    assert shown[-1].startswith("worst-case(foolbox:attack")
    assert "attack-1," not in shown[-1]


def test_what_is_kept_is_left_out_of_the_time_by_its_name():
    progress, pace, _, clock = reporter(20, {"cheap": (10, 1.0), "dear": (10, 100.0)})
    progress.skip("dear", 10)
    progress("cheap", 0)
    clock.now = 5.0
    progress("cheap", 5)
    assert (pace.total, pace.seconds_left) == (10, pytest.approx(5.0))


def test_a_long_batch_gets_lines_before_an_image_is_done():
    progress, _, lines, clock = reporter(8, {"square": (8, 1000.0)})
    progress("square", 0)
    for clock.now in range(0, 200, 10):
        progress.asked("square", 100)
    assert lines[0] == "0 of 8 images in 1 min, about 10 min left; square"
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("name", "parameters", "passes"),
    [
        ("foolbox:pgd", {"steps": 7}, 14),
        ("foolbox:pgd", {}, 80),
        ("foolbox:pgd", {"steps": 40, "max_queries": 30}, 30),
        ("torchattacks:fgsm", {}, 2),
        ("foolbox:cw", {"steps": 100, "binary_search_steps": 5}, 1000),
        ("torchattacks:vmi-fgsm", {"steps": 10, "samples": 5}, 100),
        ("pyautoattack:apgd-t", {"steps": 10, "restarts": 1, "candidates": 3}, 40),
    ],
)
def test_expected_passes(name, parameters, passes):
    row = find_implementation(name)
    assert expected_passes(row, parameters, next(iter(row.classes))) == passes


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (5399, "90 min"), (5400, "1.5 h"), (36000, "10.0 h")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_terminal_gets_a_bar_over_what_is_left(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr("davylamp.report.text.console.make_console", lambda **_: console)
    monkeypatch.setattr(module, "_EARLY", 0.0)
    with show_progress(12) as progress:
        progress("", 4)
        progress("foolbox:cw", 2)
        progress("foolbox:cw", 6)
    text = console.file.getvalue()
    assert "foolbox:cw" in text
    assert "8/8" in text
    assert "left" in text


def test_expected_queries_of_hopskipjump_grow_with_its_steps():
    """Chen et al. 2020 evaluate the first number of points times sqrt(t) in step t; ART used 2508 for 10 steps."""
    assert 1500 < expected_passes(find_implementation("art:hopskipjump"), {"steps": 10}, "l2") < 4000
    few = {"steps": 4, "initial_evaluations": 10, "max_evaluations": 15}
    assert expected_passes(find_implementation("foolbox:hopskipjump"), few, "l2") == pytest.approx(
        10 + 14.14 + 15 + 15, abs=0.1
    )


def test_runs_are_announced_only_if_an_attack_is_run_by_several_libraries():
    several = ["art:pgd", "foolbox:pgd", "foolbox:fgsm", "best(art:pgd)", "best(foolbox:pgd)", "worst-case(a:b,c:b)"]
    text = describe_runs(several, models=2)
    assert text == "6 runs on 2 models: pgd by art, foolbox; best(pgd) by art, foolbox"
    assert describe_runs(["foolbox:pgd", "foolbox:fgsm", "art:cw"]) == ""


LIBRARIES = ["foolbox", "torchattacks"]


def _stderr(folder, *, terminal, **keywords):
    """What two calls write to standard error, which is a terminal of 80 columns or a pipe."""
    reading, writing = pty.openpty() if terminal else os.pipe()
    parts = []

    def read():
        with suppress(OSError):  # the other end of a terminal is closed
            while part := os.read(reading, 4096):
                parts.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    model, data = davylamp.load_model("demo:digits-cnn"), davylamp.load_data("demo:digits", limit=4)
    given = {"epsilon": 0.1, **keywords}
    with os.fdopen(writing, "w", encoding="utf-8") as errors, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", errors)
        patch.setenv("COLUMNS", "80")
        patch.setenv("FORCE_COLOR", "1")
        davylamp.compare("pgd", model, data.inputs, data.labels, libraries=LIBRARIES, steps=2, **given)
        davylamp.evaluate(model, data.inputs, data.labels, attacks="foolbox:fgsm", norm="linf", out=folder, **given)
    reader.join()
    os.close(reading)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(parts).decode())


def test_a_script_shows_progress_to_a_person_only(tmp_path):
    text = _stderr(tmp_path / "seen", terminal=True)
    assert "2 runs: pgd by foolbox, torchattacks" in text
    assert [shown for shown in ("8/8", "torchattacks:pgd", "foolbox:fgsm") if shown not in text] == []
    assert _stderr(tmp_path / "off", terminal=True, progress=False) == ""
    assert _stderr(tmp_path / "piped", terminal=False) == ""


def test_every_plan_is_shown(monkeypatch):
    class Shown(Exception):
        pass

    def show(planned):
        raise Shown(planned if isinstance(planned, int) else planned.images)

    monkeypatch.setattr("davylamp.api.python_inputs.is_watched", lambda: True)
    monkeypatch.setattr("davylamp.api.measuring.show_plan", show)
    with pytest.raises(Shown, match=r"^4$"):  # clean predictions and the worst case
        davylamp.robust_accuracy("demo:digits-cnn", data="demo:digits", limit=2, epsilon=0.1)
    monkeypatch.setattr("davylamp.api.training.show_progress", show)
    with pytest.raises(Shown, match=r"^54$"):  # 18 images, three times
        davylamp.harden("demo:digits-cnn", "demo:digits", limit=20, epochs=3, epsilon=0.1)


def test_a_short_call_shows_no_line_in_a_notebook():
    lines, clock = [], Clock()
    pace = TimeLeft(10, {}, clock)
    advance = Advance(pace, ProgressLines(pace, lines.append, clock, module._IN_NOTEBOOK).look)
    shown = []
    for _ in range(10):
        clock.now += 0.8
        advance("pgd", 1)
        shown.append((round(clock.now, 1), len(lines)))
    assert [now for now, count in shown if count] == [5.6, 6.4, 7.2, 8.0]
    assert [count for _, count in shown] == [0, 0, 0, 0, 0, 0, 1, 1, 2, 2]


def test_a_notebook_gets_a_line_that_disappears():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    begin = """
    from davylamp.report.text import progress
    progress._IN_NOTEBOOK = 0.0, 0.0
    context = progress.show_progress(4, heading="2 runs")
    advance = context.__enter__()
    advance("foolbox:pgd", 3)
    progress.is_watched()"""
    cells = [nbformat.v4.new_code_cell(text) for text in (begin, "_ = context.__exit__(None, None, None)")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(notebook)
    with client.setup_kernel():
        client.execute_cell(cells[0], 0)
        line, watched = cells[0].outputs
        text = line["data"]["text/plain"]
        assert re.fullmatch(r"2 runs\n3 of 4 images in \d+ s, about \d+ s left; foolbox:pgd", text)
        assert watched["data"]["text/plain"] == "True"
        client.execute_cell(cells[1], 1)
    assert cells[0].outputs[0]["data"]["text/plain"] == ""
    assert cells[1].outputs == []


def test_progress_of_a_wrong_type_is_refused():
    with pytest.raises(WrongType):
        davylamp.compare("foolbox:pgd", "demo:digits-cnn", data="demo:digits", limit=1, epsilon=0.1, progress=2)
