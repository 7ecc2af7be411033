"""The wall around user code: one line for whatever happens inside, and everything as it was afterwards."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
import torch

from davylamp import run_attack
from davylamp.adapters.user_code_guard import guard_once, guard_user_code, process_protected
from davylamp.errors import InvalidInput, ModelFailed, UnknownName


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def fail(error):
    raise error


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda: fail(ValueError("two\nlines")), "raised ValueError: two lines (line "),
        (lambda: fail(ValueError("\x1b[31mred")), "raised ValueError: ?[31mred (line"),
        (lambda: fail(Silent()), "raised Silent (line"),
        (lambda: fail(KeyboardInterrupt()), "raised KeyboardInterrupt (line"),
        (lambda: fail(GeneratorExit()), "raised GeneratorExit (line"),
        (lambda: fail(MemoryError()), "raised MemoryError (line"),
        (lambda: fail(StopIteration(3)), "raised StopIteration: 3 (line"),
        (sys.exit, "called sys.exit()"),
        (lambda: sys.exit(0), "called sys.exit(0)"),
        (lambda: sys.exit("bye"), "called sys.exit('bye')"),
        (lambda: os._exit(0), "called os._exit(0)"),
        (lambda: exec("def f(): f()\nf()", {}), "raised RecursionError: maximum recursion"),
        (lambda: compile("a b", "model.py", "exec"), "raised SyntaxError: invalid syntax (model.py, line 1)"),
    ],
)
@pytest.mark.usefixtures("protected")
def test_whatever_happens_is_one_line(action, words):
    with pytest.raises(ModelFailed) as caught, guard_user_code("model.py:make"):
        action()
    assert str(caught.value).startswith(f"model.py:make {words}")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, InvalidInput)
    assert caught.value.__cause__ is not None


def test_errors_of_davylamp_pass():
    with pytest.raises(UnknownName, match="unknown thing 'x'"), guard_user_code("model.py"):
        raise UnknownName("thing", "x", ["y"])


def state_of_process():
    return sys.stdout, os._exit, signal.getsignal(signal.SIGINT), torch.is_grad_enabled()


def test_in_the_process_of_a_caller_nothing_is_replaced(capfd):
    before = state_of_process()
    with guard_user_code("a", descriptors=True), guard_once():
        assert state_of_process() == before
        print("said", flush=True)
        os.write(1, b"raw\n")
    with pytest.raises(KeyboardInterrupt), guard_user_code("a"):  # typed or not: here nobody can tell
        raise KeyboardInterrupt
    with pytest.raises(ModelFailed, match=r"a called sys\.exit\(3\)"), guard_user_code("a"):
        sys.exit(3)
    with guard_user_code("a"):
        torch.set_grad_enabled(False)
    assert state_of_process() == before
    assert capfd.readouterr() == ("said\nraw\n", "")


def test_a_call_of_the_library_leaves_the_process_as_it_was(digits):
    before, seen = (*state_of_process(), {*threading.enumerate()}), []
    hook = digits.module.register_forward_hook(lambda *_: seen.append((os._exit, signal.getsignal(signal.SIGINT))))
    try:
        run_attack("foolbox:fgsm", digits.module, digits.inputs[:4], digits.labels[:4], norm="linf", epsilon=0.1)
    finally:
        hook.remove()
    assert seen
    assert {*seen} == {before[1:3]}
    assert (*state_of_process(), {*threading.enumerate()}) == before


def test_everything_is_as_before_in_a_protected_process(capsys):
    before = state_of_process()
    with process_protected(), guard_user_code("a"):
        print("said")
        torch.set_grad_enabled(False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with pytest.raises(ModelFailed), guard_user_code("b"):
            sys.exit()
        print("again")
        assert os._exit is not before[1]
    assert state_of_process() == before
    assert capsys.readouterr() == ("", "said\nagain\n")


def test_the_handler_of_a_server_that_runs_models_stays():
    before = signal.getsignal(signal.SIGINT)
    with process_protected():
        handler = signal.signal(signal.SIGINT, lambda *_: None)
        servers = signal.getsignal(signal.SIGINT)
        with guard_user_code("model.py"):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGINT) is servers
        signal.signal(signal.SIGINT, handler)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("protected")
def test_what_programs_print_goes_to_standard_error(capfd):
    with guard_user_code("model.py", descriptors=True):
        subprocess.run([sys.executable, "-c", "print('from a program')"], check=True)
        os.write(1, b"raw\n")
    print("ours", flush=True)
    assert capfd.readouterr() == ("ours\n", "from a program\nraw\n")


@pytest.mark.usefixtures("protected")
@pytest.mark.parametrize("code", ["pass", "raise ValueError('x')", "raise error", "os._exit(4)"])
def test_a_typed_ctrl_c_passes_even_if_it_is_caught(code):
    def interrupted():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(5)
        except KeyboardInterrupt as error:
            exec(code, {"error": error, "os": os})

    with pytest.raises(KeyboardInterrupt), guard_user_code("outer"), guard_user_code("model.py"):
        interrupted()
    with pytest.raises(ModelFailed), guard_user_code("model.py"):  # and is forgotten
        raise KeyboardInterrupt


def test_a_handler_that_does_not_interrupt_is_asked():
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with process_protected(), guard_user_code("model.py"):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_a_ctrl_c_in_a_terminal_ends_the_process():
    code = (
        "import os, sys, time\nfrom davylamp.adapters.user_code_guard import guard_user_code, protect_process\n"
        "protect_process()\n"
        "with guard_user_code('model.py'):\n    print('ready', file=sys.stderr, flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[1].rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT


@pytest.mark.usefixtures("protected")
def test_threads_that_leave_in_another_order():
    before, entered, leave = (sys.stdout, os._exit), threading.Event(), threading.Event()
    failures = []

    def other():
        try:
            with guard_user_code("other"):
                entered.set()
                leave.wait(5)
                os._exit(3)
        except ModelFailed as failure:
            failures.append(str(failure))

    thread = threading.Thread(target=other)
    with guard_user_code("first"):
        thread.start()
        entered.wait(5)
    assert sys.stdout is sys.stderr  # still one inside
    leave.set()
    thread.join()
    assert (sys.stdout, os._exit) == before
    assert failures[0].startswith("other called os._exit(3)")


def test_a_child_and_another_thread_may_exit():
    """The thread that ends a worker whose parent is gone must not be held up by a model."""
    code = (
        "import os, threading, time\nfrom davylamp.adapters.user_code_guard import protect_process, guard_user_code\n"
        "protect_process()\n"
        "with guard_user_code('model.py'):\n"
        "    child = os.fork()\n"
        "    if not child:\n        os._exit(5)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5\n"
        "    threading.Thread(target=lambda: os._exit(7)).start()\n    time.sleep(60)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 7


def swallow_interrupt():
    with suppress(KeyboardInterrupt), guard_user_code("model.py"):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(5)


@pytest.mark.usefixtures("protected")
def test_a_guard_around_many_walls():
    before = (sys.stdout, os._exit, signal.getsignal(signal.SIGINT))
    with pytest.raises(SystemExit), guard_once():
        os._exit(3)
    with pytest.raises(KeyboardInterrupt), guard_once():
        swallow_interrupt()
    with guard_once(), pytest.raises(ModelFailed, match=r"model\.py called os\._exit"), guard_user_code("model.py"):
        os._exit(3)
    assert (sys.stdout, os._exit, signal.getsignal(signal.SIGINT)) == before
