"""A user's attack in a room gives what it gives here, and whatever else it does is one line of a failed cell."""

import os
from pathlib import Path

import pytest
import torch

import davylamp
from davylamp.adapters import Classifier, ThreatModel, find_implementation, run_attack
from davylamp.adapters.models.sandbox.isolation import Isolation, attack_isolation_context
from davylamp.errors import AttackDied, InvalidInput, UnknownName

pytestmark = pytest.mark.usefixtures("sandbox")
STRICT = Isolation("strict", 20.0, 4.0)
EPSILON = 0.5
FILE = '''
import os, signal, socket, sys, time

import numpy as np
import torch
from torch.nn.functional import cross_entropy

def as_attack(knowledge):
    def mark(function):
        function.norm, function.knowledge, function.order = "linf", knowledge, "kept"
        return function
    return mark

@as_attack("white-box")
def by_gradient(model, inputs, labels, epsilon, steps: int = 4, share: float = 0.4):
    images = (inputs + epsilon * torch.empty_like(inputs).uniform_(-1, 1)).clamp(0, 1)
    for _ in range(steps):
        images.requires_grad_(True)
        (gradient,) = torch.autograd.grad(cross_entropy(model(images), labels), images)
        images = images.detach() + share * epsilon * gradient.sign()
        images = images.clamp(inputs - epsilon, inputs + epsilon).clamp(0, 1)
    return images

@as_attack("score-based")
def by_scores(model, inputs, labels, epsilon, steps: int = 6):
    """Random signs, kept where they raise the loss."""
    with torch.no_grad():
        best, lowest = inputs.clone(), model(inputs).softmax(1).gather(1, labels[:, None])[:, 0]
        for _ in range(steps):
            signs = torch.from_numpy(np.random.choice([-1.0, 1.0], size=inputs.shape)).float()
            tried = (inputs + epsilon * signs).clamp(0, 1)
            score = model(tried).softmax(1).gather(1, labels[:, None])[:, 0]
            better = score < lowest
            best[better], lowest = tried[better], score.minimum(lowest)
    return best

@as_attack("decision-based")
def by_decisions(model, inputs, labels, epsilon, steps: int = 5):
    """Bisects between noise and the image."""
    import random
    noise = torch.rand_like(inputs).roll(random.randrange(3), 2)
    low, high = torch.zeros(len(inputs)), torch.ones(len(inputs))
    for _ in range(steps):
        middle = (low + high) / 2
        with torch.no_grad():
            wrong = model(torch.lerp(inputs, noise, middle.view(-1, 1, 1, 1))).argmax(1) != labels
        low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)
    return torch.lerp(inputs, noise, high.view(-1, 1, 1, 1))

by_decisions.kind = "minimum-norm"

def hostile(function):
    return as_attack("white-box")(function)

@hostile
def reads_passwords(model, inputs, labels, epsilon):
    raise ValueError(open("/etc/passwd").read())

@hostile
def opens_a_socket(model, inputs, labels, epsilon):
    socket.create_connection(("1.1.1.1", 80), timeout=5)

@hostile
def asks_the_host(model, inputs, labels, epsilon):
    socket.create_connection(("127.0.0.1", PORT), timeout=5)

@hostile
def forks(model, inputs, labels, epsilon):
    while True:
        if os.fork() == 0:
            os.setsid()

@hostile
def fills_the_disk(model, inputs, labels, epsilon):
    for number in range(100):
        with open(f"/tmp/{number}", "wb") as file:
            while file.tell() < 1 << 25:
                file.write(bytes(1 << 23))

@hostile
def fills_the_devices(model, inputs, labels, epsilon):
    open("/dev/here", "wb").write(b"0")

@hostile
def writes_a_large_file(model, inputs, labels, epsilon):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    os.truncate(os.open("/tmp/large", os.O_CREAT | os.O_RDWR), 1 << 40)

@hostile
def takes_memory(model, inputs, labels, epsilon):
    return torch.ones(100 << 28)

@hostile
def writes_outside(model, inputs, labels, epsilon):
    open(os.path.join(os.path.dirname(__file__), "written"), "w").write("here")

@hostile
def writes_to_the_root(model, inputs, labels, epsilon):
    open("/written", "w").write("here")

@hostile
def prints_escapes(model, inputs, labels, epsilon):
    print("\\x1b]0;title\\x07\\x1b[31mred")
    raise ValueError("\\x1b[31mred\\nnext line")

@hostile
def returns_ten_gigabytes(model, inputs, labels, epsilon):
    return torch.zeros(1).expand(10 << 28)

@hostile
def returns_another_shape(model, inputs, labels, epsilon):
    return inputs[:1]

@hostile
def asks_about_an_array(model, inputs, labels, epsilon):
    return model(inputs.numpy())

@hostile
def returns_nothing(model, inputs, labels, epsilon):
    return None

def message(**words):
    from davylamp.adapters.models.sandbox.messages import send_message
    for file in range(3, 64):
        try:
            send_message(socket.socket(fileno=os.dup(file)), words)
        except OSError:
            pass

@hostile
def lies_about_a_tensor(model, inputs, labels, epsilon):
    huge = {"dtype": "float32", "shape": [1 << 20, 1 << 10], "strides": [1024, 1], "offset": 0}
    message(do="done", tensors=[huge])
    time.sleep(100)

@hostile
def blames_the_model(model, inputs, labels, epsilon):
    from davylamp.errors import ModelDied
    raise ModelDied("the model net was killed")

@hostile
def sends_garbage(model, inputs, labels, epsilon):
    for file in range(3, 64):
        try:
            os.write(file, b"rubbish!" * 100)
        except OSError:
            pass
    time.sleep(100)

@hostile
def asks_for_what_is_not_there(model, inputs, labels, epsilon):
    message(do="backward", graph=77, tensors=[])
    time.sleep(100)

@hostile
def never_answers(model, inputs, labels, epsilon):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(1000)

@hostile
def leaves(model, inputs, labels, epsilon):
    os.kill(os.getpid(), signal.SIGSEGV)

@hostile
def kills_its_parent(model, inputs, labels, epsilon):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(100)

@hostile
def leaves_a_ghost(model, inputs, labels, epsilon):
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    raise ValueError("ghost")

@hostile
def finds_a_ghost(model, inputs, labels, epsilon):
    raise ValueError(sum(name.isdigit() for name in os.listdir("/proc")))

@hostile
def patches_the_judge(model, inputs, labels, epsilon):
    from davylamp.adapters.running import attack_state, judge, queries
    judge.judge_images = attack_state.judge_images = lambda *_, **__: "fooled"
    queries.QueryCounter._count = lambda *_: None
    torch.Tensor.argmax = lambda self, *_: torch.full((len(self),), 1)
    model(inputs)
    return inputs

@hostile
def looks_at_its_callers(model, inputs, labels, epsilon):
    frame, held = sys._getframe(), []
    while frame is not None:
        held += [type(value).__name__ for value in frame.f_locals.values()]
        frame = frame.f_back
    ours = ("QueryCounter", "Classifier", "AttackState")
    raise ValueError(" ".join(name for name in held if name in ours) or "nobody")

@hostile
def leaves_the_ball(model, inputs, labels, epsilon):
    return torch.rand_like(inputs)

@hostile
def hands_in_other_images(model, inputs, labels, epsilon):
    return inputs.roll(1, 0)

hands_in_other_images.kind = "minimum-norm"

@hostile
def asks_behind_the_count(model, inputs, labels, epsilon):
    for _ in range(3):
        model.process.ask("forward", [inputs], gradients=False)
    return inputs

by_gradient.canonical = "pgd"

def is_no_attack():
    return None
'''
# What each comes to: part of the line that the cell fails with.
FAILURES = {
    "reads_passwords": "FileNotFoundError: [Errno 2] No such file or directory: '/etc/passwd'",
    "opens_a_socket": "OSError: [Errno 101] Network is unreachable",
    "asks_the_host": "ConnectionRefusedError",
    "forks": "started more than 32 processes",
    "fills_the_disk": "OSError: [Errno 28] No space left on device",
    "fills_the_devices": "OSError: [Errno 30] Read-only file system",
    "writes_a_large_file": "OSError: [Errno 27] File too large",
    "takes_memory": "RuntimeError",
    "writes_outside": "OSError: [Errno 30] Read-only file system",
    "writes_to_the_root": "OSError: [Errno 30] Read-only file system",
    "prints_escapes": "ValueError: ?[31mred next line",
    "returns_ten_gigabytes": "expected tensors of at most 1 GiB, got 10 GiB",
    "returns_another_shape": "/attack.py:returns_another_shape, got (1, 3, 16, 16)",
    "asks_about_an_array": "TypeError: expected a tensor of images for the model, got a NumPy array; convert it with",
    "returns_nothing": "to return the adversarial images, got NoneType",
    "lies_about_a_tensor": "sent an invalid message",
    "blames_the_model": "attack.py:blames_the_model crashed",
    "sends_garbage": "sent an invalid message (expected a message, got other bytes) and was stopped",
    "asks_for_what_is_not_there": "sent an invalid message",
    "leaves": "was killed (signal 11, SIGSEGV)",
    "kills_its_parent": "ended its process",
    "leaves_a_ghost": "ValueError: ghost",
    "finds_a_ghost": "ValueError: 3",
    "looks_at_its_callers": "ValueError: nobody",
}
GOOD = ("by_gradient", "by_scores", "by_decisions")


@pytest.fixture(scope="module")
def file(sandbox, tmp_path_factory):
    """The file with all of them: one server for all of their rooms."""
    path = tmp_path_factory.mktemp("attacks") / "attack.py"
    path.write_text(FILE.replace("PORT", "1"))
    return path


@pytest.fixture(scope="module")
def attack(file, digits):
    """Run an attack of the file on six digits, in this process or apart."""

    def run(name, isolation=None, epsilon=EPSILON, **more):
        with attack_isolation_context(isolation or Isolation()):
            row = find_implementation(f"{file}:{name}")
            classifier = Classifier(digits.module, num_classes=10, name="net")
            inputs, labels = digits.inputs[:6], digits.labels[:6]
            return run_attack(row, classifier, inputs, labels, ThreatModel("linf", epsilon), seed=5, **more)

    return run


@pytest.mark.parametrize("name", GOOD)
def test_the_same_examples_and_counts_as_here(attack, name):
    epsilon = None if name == "by_decisions" else EPSILON
    here, apart = (attack(name, isolation, epsilon) for isolation in (None, STRICT))
    assert torch.equal(here.adv_inputs, apart.adv_inputs)
    assert here.success.any()
    for word in ("forwards", "backwards", "success", "distances"):
        torch.testing.assert_close(getattr(here, word), getattr(apart, word), rtol=0, atol=0)
    assert here.violations == apart.violations


def test_a_budget_ends_it_at_the_same_query(attack):
    here, apart = (attack("by_gradient", isolation, max_queries=5) for isolation in (None, STRICT))
    assert apart.forwards.tolist() == here.forwards.tolist() == [3] * 6
    assert torch.equal(here.adv_inputs, apart.adv_inputs)


def test_parameters_reach_it(attack):
    here, apart = (attack("by_gradient", isolation, steps=2, share=0.1) for isolation in (None, STRICT))
    assert torch.equal(here.adv_inputs, apart.adv_inputs)
    assert apart.backwards.tolist() == [2] * 6


def test_the_row_is_the_same(file):
    for name in GOOD:
        here = find_implementation(f"{file}:{name}")
        with attack_isolation_context(STRICT):
            apart = find_implementation(f"{file}:{name}")
        assert apart == here
        assert (apart.described, apart.more) == (here.described, here.more)
        assert apart.given.identity == here.given.identity
    assert find_implementation(f"{file}:by_gradient").canonical_name == "pgd"


def test_what_cannot_be_loaded_is_said_as_here(file):
    for name, kind in (("is_no_atack", UnknownName), ("is_no_attack", InvalidInput)):
        said = []
        for isolation in (Isolation(), STRICT):
            with attack_isolation_context(isolation), pytest.raises(kind) as caught:
                find_implementation(f"{file}:{name}")
            said.append(str(caught.value))
        assert said[0] == said[1]


@pytest.fixture(scope="module")
def evaluated(file, digits, tmp_path_factory):
    """Every hostile attack and a good one, in one evaluation."""
    folder = tmp_path_factory.mktemp("out")
    names = [f"{file}:{name}" for name in ("by_gradient", *FAILURES, "by_scores")]
    limits = {"isolate": "strict", "time_limit": 60.0, "memory_limit": 4.0, "measures": ("effect", "distance")}
    inputs, labels = digits.inputs[:6], digits.labels[:6]
    net = {"net": digits.module}
    return davylamp.evaluate(net, inputs, labels, attacks=names, norm="linf", epsilon=EPSILON, out=folder, **limits)


@pytest.mark.parametrize("name", FAILURES)
def test_hostile_attacks_fail_with_a_line(evaluated, name):
    (line,) = (reason for reason in evaluated.summary.failed.values() if f"attack.py:{name} " in reason)
    assert FAILURES[name] in line or (name == "forks" and "Resource temporarily unavailable" in line)
    assert not {"\n", "\x1b"} & set(line)


def test_the_other_cells_are_unharmed(evaluated, file):
    frame = evaluated.to_frame()
    assert set(frame["implementation"]) == {f"{file}:by_gradient", f"{file}:by_scores"}
    assert len(evaluated.summary.failed) == len(FAILURES)
    assert frame["success"].sum() > 0
    assert not (file.parent / "written").exists()
    assert not Path("/written").exists()


def test_nobody_outlives_a_visit(evaluated):
    del evaluated
    inside = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                inside += ["forks" in (folder / "environ").read_text(errors="ignore") and folder.name]
            except OSError:
                continue
    assert not any(inside)


def test_one_that_never_answers_is_killed(attack):
    attack("asks_behind_the_count", STRICT)  # the server is up
    with pytest.raises(AttackDied, match=r"never_answers was killed after 1 seconds, not counting its model queries"):
        attack("never_answers", Isolation("strict", 1.0, 4.0))


def test_the_judge_cannot_be_patched(attack):
    result = attack("patches_the_judge", STRICT)
    assert not result.success.any()
    assert result.forwards.tolist() == [1] * 6


def test_what_leaves_the_ball_is_clipped_and_named(attack, digits):
    result = attack("leaves_the_ball", STRICT)
    assert all("out-of-ball" in each for each in result.violations)
    assert float((result.adv_inputs - digits.inputs[:6]).abs().max()) <= EPSILON + 1e-6


def test_other_images_are_no_examples(attack):
    result = attack("hands_in_other_images", STRICT, None)
    assert all("another-image" in each for each in result.violations)


def test_every_question_is_counted(attack):
    assert attack("asks_behind_the_count", STRICT).forwards.tolist() == [3] * 6


def test_strict_runs_no_metric_of_a_file_here(file, digits, tmp_path):
    (tmp_path / "metric.py").write_text("raise SystemExit")
    with pytest.raises(InvalidInput, match=r"measures: .* would run in this process"):
        davylamp.Config(measures=(f"{tmp_path / 'metric.py'}:metric",), isolate="strict")
