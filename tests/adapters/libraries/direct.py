"""A row against the same call made on the library itself: the same images, the same queries, image by image.

The test of a library is a class named Test... that inherits `DirectCalls` and says what is peculiar to it: a table of
calls in both languages, and how the library is called.
"""

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from davylamp.adapters import IMPLEMENTATIONS, Classifier, Implementation, ThreatModel, run_attack
from davylamp.adapters.contract.linear_model import ContractCase
from davylamp.adapters.parameters import SUPPLIED
from davylamp.adapters.running.library_call import Images, LibraryOutput
from davylamp.adapters.running.queries import separable_groups
from davylamp.adapters.running.seeding import call_seed

SEED = 7
KINDS = ("forwards", "backwards")


@dataclass(frozen=True)
class Direct:
    """A row in our words, and the same call in the library's.

    Args:
        row: the implementation, without the library's name.
        norm: of the threat model.
        epsilon: its radius, or None.
        parameters: canonical.
        theirs: the class or function of the library, or its attack, ready to be called.
        words: the parameters in the library's words, radius and norm among them.
        queries: (forwards, backwards) per image, where they are known exactly.
        count: images that are attacked.
        data: fixture that holds model and images.
        peculiar: what only this library's `call` reads.
    """

    row: str
    norm: str
    epsilon: float | None
    parameters: Mapping[str, Any]
    theirs: Any
    words: Mapping[str, Any] = field(default_factory=dict)
    queries: tuple[int, int] | None = None
    count: int = 3
    data: str = "digits"
    peculiar: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.row}-{self.norm}"


class Counted(nn.Module):
    """The plain module on float32 inputs: how many images went through it and back, and how many in each query."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module, self.queries, self.sizes = module, Counter(), set()
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        logits = self.module(inputs.float())
        self.queries["forwards"] += len(inputs)
        self.sizes.add(len(inputs))
        if logits.requires_grad:
            logits.register_hook(lambda gradient: self.queries.update(backwards=len(gradient)))
        return logits


class Answer(NamedTuple):
    """What the library returned in one direct call, shape (n, C, H, W), and the model that it asked."""

    images: Tensor
    model: Counted


class DirectCalls:
    """The tests. A library says its name, its `cases`, how it is called, and what is compared `elsewhere`."""

    library: ClassVar[str]
    cases: ClassVar[tuple[Direct, ...]]
    elsewhere: ClassVar[frozenset[tuple[str, str]]] = frozenset()

    def call(self, case: Direct, model: Counted, images: Images, seed: int) -> Tensor:
        """What the library returns for these images; the random generators are seeded already."""
        raise NotImplementedError

    def pick(self, case: Direct, data: ContractCase) -> ContractCase:
        """The images that are attacked."""
        return data.first(case.count)

    def aim(self, data: ContractCase) -> Tensor:
        """The targets of the targeted calls, shape (n,)."""
        return second_likely(data)

    def can_be_targeted(self, case: Direct) -> bool:
        return self.row_of(case).targeted != "no"

    def groups(self, case: Direct, inputs: Tensor) -> list[list[int]]:
        """The images of each call: one if the row couples them, those that can be told apart if it shrinks a batch."""
        row = self.row_of(case)
        if row.alone:
            return [[each] for each in range(len(inputs))]
        if row.order == "content" and not row.universal:
            return separable_groups(inputs, ThreatModel(case.norm, case.epsilon))
        return [[*range(len(inputs))]]

    def row_of(self, case: Direct) -> Implementation:
        return IMPLEMENTATIONS[f"{self.library}:{case.row}"]

    def pytest_generate_tests(self, metafunc: Any) -> None:
        tables: dict[str, Callable[[], list[Any]]] = {
            "case": lambda: list(self.cases),
            "aimed": lambda: [case for case in self.cases if self.can_be_targeted(case)],
            "row_and_norm": lambda: sorted({(case.row, case.norm) for case in self.cases}),
        }
        for name in set(tables) & set(metafunc.fixturenames):
            metafunc.parametrize(
                name, tables[name](), ids=lambda item: "-".join(item) if isinstance(item, tuple) else str(item)
            )

    def test_every_row_and_norm_is_compared(self):
        rows = [row for row in IMPLEMENTATIONS.values() if row.library == self.library]
        ours = {(row.name.partition(":")[2], norm) for row in rows for norm in row.classes}
        assert {(case.row, case.norm) for case in self.cases} | self.elsewhere == ours

    def test_the_images_and_the_queries_are_those_of_the_library(self, request, case):
        self.compare(case, self.pick(case, request.getfixturevalue(case.data)))

    def test_targeted_images_are_those_of_the_library(self, request, aimed):
        data = self.pick(aimed, request.getfixturevalue(aimed.data))
        self.compare(aimed, data, self.aim(data))

    def test_every_parameter_of_a_row_is_passed_by_some_case(self, row_and_norm):
        cases = [case for case in self.cases if (case.row, case.norm) == row_and_norm]
        passed = {word for case in cases for word in case.parameters}
        assert passed == set(self.row_of(cases[0]).params) - set(SUPPLIED)

    def compare(self, case: Direct, data: ContractCase, targets: Tensor | None = None) -> Any:
        """Run the row and the library, hold one against the other, and return the row's result."""
        calls: list[LibraryOutput] = []
        result = run_attack(
            self.row_of(case),
            data.classifier,
            data.inputs,
            data.labels,
            ThreatModel(case.norm, case.epsilon, targeted=targets is not None),
            targets=targets,
            seed=SEED,
            watch=calls.append,
            **case.parameters,
        )
        answers = list(self.call_directly(case, Images(data.inputs, data.labels, targets), data.module))
        for returned, answer in zip(calls, answers, strict=True):
            assert_same(returned, answer, self.row_of(case))
        expected = torch.cat([answer.images for answer in answers])
        order = [each for group in self.groups(case, data.inputs) for each in group]
        clipped = expected.clamp(0, 1).where(expected.isfinite(), data.inputs[order])
        assert torch.equal(result.adv_inputs[order], clipped)
        for place, kind in enumerate(KINDS):
            counted = getattr(result, kind)[order].tolist()
            assert counted == [count for call in calls for count in getattr(call, kind).tolist()]
            if case.queries is not None and targets is None:
                assert counted == [case.queries[place]] * len(data.labels)
        if targets is not None:
            assert torch.equal(result.success, data.module(result.adv_inputs).argmax(1) == targets)
        return result

    def call_directly(self, case: Direct, images: Images, module: nn.Module) -> Iterator[Answer]:
        """What the library returns and asks, in one call, or image by image where the row says so."""
        row, rows = self.row_of(case), torch.arange(len(images.labels))
        for part in (rows[group] for group in self.groups(case, images.inputs)):
            model, batch, seed = Counted(module), images.select(part), call_seed(SEED, int(part[0]), 0)
            if row.targeted == "only" and batch.targets is None:
                logits = model(batch.inputs)
                batch = batch._replace(
                    targets=logits.argmin(1) if row.aims_at == "least-likely" else logits.topk(2).indices[:, 1]
                )
            seed_everything(seed)
            inputs = batch.inputs.clone()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                returned = self.call(case, model, batch._replace(inputs=inputs), seed).detach()
            yield Answer(returned, model)


def assert_same(returned: LibraryOutput, answer: Answer, row: Implementation) -> None:
    """One call of a row equals the direct one: images bit by bit (NaN included), forwards and backwards per image."""
    count = len(answer.images)
    assert returned.error is None
    assert torch.equal(returned.adv_inputs.isnan(), answer.images.isnan())
    assert torch.equal(returned.adv_inputs.nan_to_num(), answer.images.nan_to_num())
    for kind in KINDS:
        counted, asked = getattr(returned, kind), answer.model.queries[kind]
        assert counted.sum() == asked
        if row.order == "kept":
            assert all(size % count == 0 for size in answer.model.sizes), "a query is not about the whole batch"
            assert counted.tolist() == [asked // count] * count


def second_likely(data: ContractCase) -> Tensor:
    """The class that the model finds likeliest after the right one, by image: the targets, shape (n,)."""
    return data.module(data.inputs).scatter(1, data.labels[:, None], -torch.inf).argmax(1)


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def rows_of(library: str) -> Callable[..., Any]:
    """A function that runs a row of a library, or of another by its whole name, on a model known to have gradients."""

    def attack(name: str, case: Any, norm: str, epsilon: float | None = None, targets: Any = None, **words: Any) -> Any:
        classifier, rules = Classifier(case.module), ThreatModel(norm, epsilon, targeted=targets is not None)
        classifier.answers.note_gradients(there=True)  # the attack's questions are the first
        settings = {"seed": SEED, "targets": targets, **words}
        whole = name if ":" in name else f"{library}:{name}"
        return run_attack(whole, classifier, case.inputs, case.labels, rules, **settings)

    return attack


def part(case: Any, start: int, stop: int | None = None) -> Any:
    """Some images of a case, or one."""
    rows = slice(start, start + 1 if stop is None else stop)
    return case._replace(inputs=case.inputs[rows], labels=case.labels[rows])


def sizes(case: Any, images: Tensor, norm: float) -> Tensor:
    """How far images are from those of the case, shape (N,)."""
    return (images - case.inputs).flatten(1).norm(p=norm, dim=1)
