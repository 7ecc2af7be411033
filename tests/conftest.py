"""Models with known answers: a small CNN on scikit-learn's digits, and a linear model whose optimum is a formula."""

import importlib
import json
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from davylamp import cli
from davylamp.adapters.contract.linear_model import ContractCase, make_linear_case
from davylamp.adapters.models.sandbox import bubblewrap as sandboxes
from davylamp.adapters.user_code_guard import process_protected
from davylamp.commands import loading

torch.set_num_threads(1)
threadpool_limits(1)  # of BLAS and OpenMP: every worker of pytest has one core
os.environ["OMP_NUM_THREADS"] = "1"  # of processes that tests start
os.environ.pop("COLUMNS", None)  # readline leaves it to processes that pytest starts, and output would be folded
pytest.register_assert_rewrite("tests.adapters.libraries.direct")  # so that its asserts show values, too

LONGEST = ("test_server_hostile.py", "test_ray_cluster.py")  # begun first, so that no worker waits for them


ROOT = Path(__file__).parent
QUICK = {ROOT / line for line in (ROOT / "quick_files.txt").read_text(encoding="utf-8").split()}


def read_nightly() -> dict[str, set[str]]:
    """The tests of nightly.txt: of each function, from this folder on, the cases, or none for all of them."""
    listed: dict[str, set[str]] = {}
    for line in (ROOT / "nightly.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            listed[next(reversed(listed))] |= set(line.split())
        elif line and not line.startswith("#"):
            listed[line] = set()
    return listed


NIGHTLY = read_nightly()


def _is_nightly(item: pytest.Item) -> bool:
    function, _, case = item.nodeid.removeprefix("tests/").partition("[")
    return function in NIGHTLY and (not NIGHTLY[function] or case[:-1] in NIGHTLY[function])


def pytest_collection_modifyitems(items):
    """Mark the tests of quick files and of nightly.txt, and put the files with the longest tests first."""
    for item in items:
        if item.path in QUICK:
            item.add_marker("quick")
        if _is_nightly(item):
            item.add_marker("nightly")
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


# norm -> the dual norm, which measures the gradient of a linear model
DUAL = {"linf": 1.0, "l2": 2.0, "l1": float("inf")}


@pytest.fixture(autouse=True)
def _same_draws():
    """A test draws the same numbers in every run, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _same_trace():
    """Coverage goes on after a program that sets a trace function and then none, as AutoAttack does."""
    trace = sys.gettrace()
    yield
    if sys.gettrace() is not trace:
        sys.settrace(trace)


@pytest.fixture(scope="session", autouse=True)
def _fast_files():
    """A file need not survive a loss of power: no test has one, and a slow disk would decide how long tests take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def shipped_isolate():
    """The default of `--isolate` as users have it; here it is "no", as a process for each model of a file is dear."""
    shipped = loading.default_isolate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "_DEFAULT_ISOLATE", "no")
        yield shipped


@pytest.fixture(scope="session")
def sandbox():
    """The sandbox of this machine; skips with the reason where none works."""
    sandbox_here = sandboxes.find_sandbox()
    if not sandbox_here.program:
        pytest.skip(sandbox_here.reason)
    return sandbox_here


@pytest.fixture(scope="session")
def axe() -> Callable[..., list[Any]]:
    """What axe-core finds on the page that a browser has open, all of it unfolded; by some of its rules, or by all."""
    script = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")

    def look(browser, *rules):
        browser.execute_script(script)
        browser.execute_script("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        browser.set_script_timeout(120)
        return browser.execute_async_script(
            """const [rules, done] = arguments;
            const options = { resultTypes: ['violations'], ...(rules.length && { runOnly: rules }) };
            axe.run(document, options).then((result) => done(result.violations.map((rule) =>
              [rule.id, rule.nodes.length, rule.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))])));""",
            rules,
        )

    return look


@pytest.fixture(scope="session")
def digits() -> ContractCase:
    """A CNN trained on digits (3 x 16 x 16, pixels in [0.05, 0.95]) and 16 test images that it gets right."""
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    images = torch.tensor(data.images / 16, dtype=torch.float32)[:, None].expand(-1, 3, -1, -1) * 0.9 + 0.05
    images = nn.functional.interpolate(images, scale_factor=2)
    labels = torch.tensor(data.target)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, 10),
        )
        optimiser = torch.optim.Adam(net.parameters(), 1e-2)
        for _ in range(12):
            for batch in torch.randperm(1400).split(100):
                optimiser.zero_grad()
                nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
                optimiser.step()
    net.eval().requires_grad_(False)
    right = (net(images[1400:]).argmax(1) == labels[1400:]).nonzero()[:16, 0] + 1400
    return ContractCase(net, images[right].contiguous(), labels[right])


@pytest.fixture(scope="session")
def linear() -> ContractCase:
    """A linear model whose least perturbations are known in closed form."""
    return make_linear_case()


@pytest.fixture(scope="session")
def residual(digits) -> ContractCase:
    """A ResNet-18 of torchvision without training, and two digits with what it says of them."""
    import torchvision

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return _as_it_says(torchvision.models.resnet18(num_classes=10), digits.inputs[:2])


@pytest.fixture(scope="session")
def transformer() -> ContractCase:
    """A thin ViT of timm without training, and noise with what it says of that."""
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = timm.create_model("vit_base_patch16_224", embed_dim=24, num_heads=2, num_classes=10)
        return _as_it_says(network, torch.rand(1, 3, 224, 224))


def _as_it_says(network: nn.Module, inputs: torch.Tensor) -> ContractCase:
    network.eval().requires_grad_(False)
    return ContractCase(network, inputs, network(inputs).argmax(1))


@pytest.fixture(scope="session")
def cheap() -> dict[str, dict[str, dict]]:
    """Row name -> norm -> epsilon (or null) and parameters that run in well under a second on the digits."""
    settings: dict[str, dict[str, dict]] = {}
    for file in sorted(Path(__file__).parent.glob("adapters/contract/cheap_*.json")):
        settings |= json.loads(file.read_text(encoding="utf-8"))
    return settings


@pytest.fixture
def interpreted(monkeypatch) -> None:
    """Brendel-Bethge's optimisers as plain Python: compiling them takes minutes and changes no result."""
    for path in ("art.attacks.evasion.brendel_bethge", "foolbox.attacks.brendel_bethge"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(path)
        for name in ("BFGSB", "L0Optimizer", "L1Optimizer", "L2Optimizer", "LinfOptimizer"):
            methods = getattr(module, name).class_type.instance_type.jit_methods
            plain = {method: compiled.py_func for method, compiled in methods.items()}
            monkeypatch.setattr(module, name, type(name, (), plain | {"_ctor": SimpleNamespace(signatures=[None])}))


@pytest.fixture(scope="session", autouse=True)
def _equal_fits_once():
    """A fit of the same data by the same seed is done once: several commands rank one folder.

    In tests/scoring each is done, also to see that the same seed gives the same fit.
    """
    from davylamp.scoring import diagnostics, irt

    whole = irt._fit_on_grid
    known: dict[Any, irt.IRTFit] = {}

    def fit(model: Any, data: Any, *numbers: int) -> irt.IRTFit:
        if os.environ.get("PYTEST_CURRENT_TEST", "").startswith("tests/scoring"):
            return whole(model, data, *numbers)
        limits = diagnostics.ESS, diagnostics.RHAT
        key = model, numbers, limits, *((part.shape, part.numpy().tobytes()) for part in data)
        if key not in known:
            known[key] = whole(model, data, *numbers)
            if len(known) > 50:  # a few MB each
                del known[next(iter(known))]
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(irt, "_fit_on_grid", fit)
        yield


@pytest.fixture(scope="session")
def with_few_draws():
    """A context in which a fit has a tenth of its draws and is not repeated for more of them: for what is printed and
    kept of a ranking, not for how good it is."""
    from davylamp.scoring import diagnostics, irt

    whole = irt._fit_on_grid

    def fit(model: Any, data: Any, chains: int, warmup: int, draws: int, seed: int) -> irt.IRTFit:
        return whole(model, data, chains, max(20, warmup // 10), max(50, draws // 10), seed)

    @contextmanager
    def context():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(irt, "_fit_on_grid", fit)
            patch.setattr(diagnostics, "ESS", 1)
            patch.setattr(diagnostics, "RHAT", 2.0)
            yield

    return context


@pytest.fixture
def few_draws(with_few_draws):
    """The same for one test."""
    with with_few_draws():
        yield


_FRESH = """
import contextlib, io, json, os, sys, traceback, warnings
import torch

for line in sys.stdin:
    if not (child := os.fork()):
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(json.loads(line), {})
        except BaseException:
            out.write(traceback.format_exc())
        print(json.dumps(out.getvalue()), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="session")
def run_fresh():
    """Run code where nothing but torch was imported: what it prints; a fork each of one process that waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", _FRESH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )

    def run(code: str) -> str:
        process.stdin.write(json.dumps(code) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    with process:
        yield run
        process.stdin.close()


@pytest.fixture
def protected():
    """This process as one of davylamp's, which user code cannot end."""
    with process_protected():
        yield


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run a command in this process, in an empty folder; returns exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def runner(*arguments):
        monkeypatch.setattr(sys, "argv", ["davylamp", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return runner
