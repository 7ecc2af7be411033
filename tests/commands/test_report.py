"""The commands `report` and `serve` as a user meets them."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from davylamp.tools.speed.synthetic_results import write_results


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("command") / "results"
    write_results(path, models=("model-a",), attacks=("art:pgd", "foolbox:pgd"), images=8, classes=4, side=32)
    return path


def test_report_writes_one_file_and_says_where(run, folder, tmp_path):
    (tmp_path / "deep").mkdir()
    code, out, err = run("report", folder, "-o", "deep/page.html", "--bootstrap", 20)
    assert (code, err) == (0, "")
    assert out.startswith("deep/page.html: ")
    text = (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    assert text.lstrip().startswith("<!doctype html>")
    assert "model-a" in text


def test_report_of_two_folders_shows_what_moved(run, folder, tmp_path):
    code, _, _ = run("report", folder, folder)
    assert code == 0
    assert "2 runs: 2 identical" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "nowhere"], "expected a results folder (made by `davylamp evaluate`), got nowhere"),
        (["report", "a", "b", "c"], "expected one results folder, two to compare, or --merge, got 3"),
        (
            ["report", "FOLDER", "-o", "nowhere/page.html"],
            "could not write nowhere/page.html (there is no folder nowhere)",
        ),
        (["report", "FOLDER", "-o", "."], "expected a file for -o, got the folder ."),
        (["serve", "nowhere"], "expected a results folder (made by `davylamp evaluate`), got nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(run, folder, words, message):
    code, out, err = run(*[folder if word == "FOLDER" else word for word in words])
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_without_matplotlib_it_names_its_extra(run, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert 'pip install "davylamp[plot]"' in run("report", folder)[2]


def test_a_taken_port_is_one_line(run, folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, err = run("serve", folder, "--port", taken.getsockname()[1])
    assert code == 1
    assert "choose a different --port" in err


def test_serve_answers_and_stops(folder):
    words = [sys.executable, "-m", "davylamp.cli", "serve", str(folder), "--port", "0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(address, timeout=120) as answer:
            assert "2 done" in answer.read().decode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            opener.open(urllib.request.Request(address, method="POST"), timeout=60)
        assert refused.value.code == 405
        refused.value.close()
    finally:
        in_background = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # a script's `&` hands that down
        server.send_signal(signal.SIGTERM if in_background else signal.SIGINT)
        server.communicate(timeout=60)
