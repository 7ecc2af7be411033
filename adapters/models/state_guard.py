"""Restores the state of a module after a library call, after freezing, and after an evaluation."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...errors import ModelFailed, ModelSpoiled
from .held import Held, held_by, hidden_in, torchs_for

_PATIENCE = 50  # a check is due once the last one cost less than a fiftieth of the time since then
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # integer types by element size in bytes
# All dictionaries of torch modules: parameters, buffers, submodules and all kinds of hooks.
_TABLES = tuple(name for name, value in vars(nn.Module()).items() if isinstance(value, dict))


class StateGuard:
    """Recorded state of a model. After each library call, the model is compared with the state and restored.

    For every module, the state has its class, mode, hooks, an assigned `forward`, and its parameters, buffers and
    submodules. For these tensors, and for tensors in attributes and lists, it has the values, dtype and
    `requires_grad`. It also has other state that affects the outputs (see `held_by`).

    A model may change itself when it is queried, for example count its calls. Such changes are permitted.

    Args:
        model: the guarded model. Nothing else may change it while it is guarded.
    """

    def __init__(self, model: nn.Module):
        start = time.perf_counter()
        modules, tensors = hidden_in(model)
        self._structure = _Structure(modules)
        self._tensors = {id(tensor): _Copy(tensor) for tensor in (*self._structure.tensors(), *tensors)}
        self._held, self._torchs = held_by(modules), torchs_for(modules)
        self._cost, self._last = time.perf_counter() - start, time.perf_counter()
        self._drifting: set[int] = set()  # tensors that the model itself changes in every query

    @property
    def is_due(self) -> bool:
        """Whether the last check was long enough ago that another check adds little to the running time."""
        return time.perf_counter() - self._last > _PATIENCE * self._cost

    def restore(self, ask: Callable[[], Tensor]) -> bool:
        """Restore everything that an attack has changed. Return whether there was any change.

        Changes that the model itself makes in a query are not undone. An attribute that does not affect the outputs,
        such as a list that a hook fills, keeps its new value.

        Args:
            ask: queries the model once, to find the changes that the model itself makes.
        """
        start = time.perf_counter()
        changed = self._restore_modules(plain=False) | self._restore_held(ask)
        drifted = self._restore_tensors()
        if drifted - self._drifting:
            ask()
            self._drifting |= self._restore_tensors()
            changed |= bool(drifted - self._drifting)
        self._cost, self._last = time.perf_counter() - start, time.perf_counter()
        return changed

    def restore_silently(self) -> None:
        """Restore everything that has changed, without a query of the model.

        Changes that the model itself made are undone, too.
        """
        self._restore_modules(plain=True)
        self._restore_tensors()

    def _restore_modules(self, *, plain: bool = True) -> bool:
        return any([self._structure.restore(plain=plain), *(each.put_back() for each in self._torchs)])

    def _restore_held(self, ask: Callable[[], Tensor]) -> bool:
        moved = {held: differing for held in self._held if (differing := held.moved())}
        if not moved:
            return False
        answers = answers_of(ask)
        for held, differing in moved.items():
            held.leave(differing)
        differing = {held: held.moved() for held in moved}
        put_back = [held.put_back() for held in moved]
        changed = any(put_back) and not same_answers(answers, answers_of(ask))
        for held, values in differing.items() if not changed else ():
            held.put(values)
        return changed

    def _restore_tensors(self) -> set[int]:
        replaced = {key for key, copy in self._tensors.items() if copy.restore()}
        suspects = _of_other_bits((key, copy.tensor.data, copy.data) for key, copy in self._tensors.items())
        return replaced | {key for key in suspects if self._tensors[key].restore_values()}


class _Structure:
    """Recorded classes, modes, hooks and submodules of modules. A library has no access to this record."""

    def __init__(self, modules: Sequence[nn.Module]):
        self._kinds = [(module, type(module), module.training) for module in modules]
        places = [vars(module) for module in modules]
        # The tables of TorchScript are not dictionaries.
        tables = (place[name] for place in places for name in _TABLES if isinstance(place.get(name), dict))
        self._held = [*(Held(place, only=("forward",)) for place in places), *map(Held, tables)]
        names = [[name for name, value in place.items() if isinstance(value, Tensor)] for place in places]
        self._tensors = [Held(place, only=each) for place, each in zip(places, names, strict=True) if each]

    def tensors(self) -> Iterator[Tensor]:
        """Yield parameters, buffers and tensors in plain attributes."""
        for module, _, _ in self._kinds:
            yield from module.parameters(recurse=False)
            yield from module.buffers(recurse=False)
            yield from (value for value in vars(module).values() if isinstance(value, Tensor))

    def restore(self, *, plain: bool = True) -> bool:
        """Restore the structure. Return whether there was any change.

        Args:
            plain: whether to restore tensors in attributes as well.
        """
        changed = False
        for module, kind, training in self._kinds:
            if type(module) is not kind:
                module.__class__, changed = kind, True
            if module.training is not training:
                module.training, changed = training, True
        moved = [each.put_back() for each in (*self._held, *(self._tensors if plain else ()))]
        return changed or any(moved)


class _TensorRef:
    """Reference to one tensor and to its gradient. The values are not copied."""

    def __init__(self, tensor: Tensor):
        self.tensor, self.storage = tensor, tensor.data
        self.requires_grad, self.grad = tensor.requires_grad, tensor.grad if tensor.is_leaf else None
        self.gradient = None if self.grad is None else self.grad.detach().clone()

    @torch.no_grad()
    def restore(self) -> bool:
        """Restore the tensor. Return whether the change affects the model's outputs."""
        tensor, changed = self.tensor, False
        if tensor.is_leaf and tensor.requires_grad is not self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
            changed = True
        now, before = tensor.data, self.storage
        if now.data_ptr() != before.data_ptr() or now.shape != before.shape or now.dtype != before.dtype:
            tensor.data = before  # the tensor was replaced or moved
            changed = True
        if tensor.is_leaf and tensor.grad is not self.grad:
            tensor.grad = self.grad  # not a change of the model: nothing is computed from it
        if self.grad is not None and self.gradient is not None and not _equal(self.grad, self.gradient):
            self.grad.copy_(self.gradient)
        return changed


class _Copy(_TensorRef):
    """Reference to one tensor with a copy of its values, which can be restored."""

    def __init__(self, tensor: Tensor):
        super().__init__(tensor)
        self.data = tensor.detach().clone()

    @torch.no_grad()
    def restore_values(self) -> bool:
        changed = not _equal(self.tensor.data, self.data)
        if changed:
            self.tensor.data.copy_(self.data)
        return changed


def _of_other_bits(pairs: Iterable[tuple[int, Tensor, Tensor]]) -> list[int]:
    """Find pairs of tensors that may differ.

    All tensors are compared in one step, because each single comparison would wait for the GPU.

    Args:
        pairs: a key and two tensors for each pair.

    Returns:
        The keys of the pairs that may differ.
    """
    suspects: list[int] = []
    flags: dict[torch.device, list[tuple[int, Tensor]]] = {}
    for key, now, before in pairs:
        word = _WORDS.get(now.element_size())
        if now.device.type == "cpu" or now.layout != torch.strided or now.is_quantized or word is None:
            suspects.append(key)
        else:
            flags.setdefault(now.device, []).append((key, (now.view(word) != before.view(word)).any()))
    for of_device in flags.values():
        differ = torch.stack([flag for _, flag in of_device]).tolist()
        suspects += [key for (key, _), other in zip(of_device, differ, strict=True) if other]
    return suspects


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal bit by bit. A NaN therefore equals the same NaN."""
    if torch.equal(a, b):
        return True
    return bool(((a == b) | (a.isnan() & b.isnan())).all()) if a.is_floating_point() or a.is_complex() else False


def answers_of(ask: Callable[[], Tensor]) -> Tensor | None:
    """Run a query. Return its outputs, or None if the query fails."""
    try:
        return ask().detach()
    except ModelFailed:
        return None


def same_answers(one: Tensor | None, other: Tensor | None, rounding: float = 1e-4) -> bool:
    """Whether the outputs of two queries are equal, apart from rounding.

    Repeated queries on a GPU may differ by rounding.

    Args:
        one: outputs of the first query. None if the query failed.
        other: outputs of the second query, or None.
        rounding: largest allowed difference, relative to the largest output.
    """
    if one is None or other is None or one.shape != other.shape:
        return one is other
    close = (one - other).abs() <= rounding * one.abs().amax(1, keepdim=True)
    return bool((close | (one == other) | (~one.isfinite() & ~other.isfinite())).all())


class ChangeByAttack(NamedTuple):
    """A change of the model by an attack that could not be undone.

    Attributes:
        attack: name of the attack.
        inputs: probe images, shape (n, C, H, W).
        answers: outputs of the model for these images before the change, shape (n, K).
    """

    attack: str
    inputs: Tensor
    answers: Tensor


def is_changed(classifier: Any, before: ChangeByAttack) -> bool:
    """Whether the classifier's outputs still differ from its outputs before an attack changed it."""
    return not same_answers(before.answers, answers_of(lambda: classifier.predict_logits(before.inputs)), 1e-2)


def check_unchanged(classifier: Any) -> None:
    """Raise ModelSpoiled if the outputs of a classifier still differ because of an attack.

    The attack has changed the classifier, or this process.
    """
    change: ChangeByAttack | None = classifier.changed_by
    if change is not None and is_changed(classifier, change):
        raise ModelSpoiled(
            f"{change.attack} changed the outputs of the model {classifier.name} in a way that could not be undone. "
            "Load it again in a new process; nothing more is measured with it."
        )
    if change is not None:
        classifier.changed_by = None


def state_modes(module: nn.Module) -> None:
    """Set `training` to False on modules that lack this attribute. These come from `torch.jit.freeze`."""
    for part in module.modules():
        if not hasattr(part, "training"):
            part.training = False


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Put a module in evaluation mode without trainable parameters, and restore its state at the end of the block.

    If the module's class overrides `train`, for example to merge weights, the overriding method is called, as in torch.
    """
    modes = [(part, part.training) for part in module.modules()]
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad and parameter.is_leaf]
    try:
        module.eval()
        for parameter in trained:
            parameter.requires_grad_(False)
        yield
    finally:
        for part, training in modes:
            if training and type(part).train is not nn.Module.train:
                part.train()
        for part, training in modes:
            if part.training is not training:
                part.training = training
        for parameter in trained:
            parameter.requires_grad_(True)


@contextmanager
def preserve_module_state(module: nn.Module) -> Iterator[None]:
    """Restore a module's state at the end of the block, except for the values of its weights and buffers.

    The state has three parts: submodules, parameters and buffers; hooks, modes and an assigned `forward`; and the
    device, layout, dtype, `.grad` and `requires_grad` of each tensor. The values of tensors are not copied. If a tensor
    is moved inside the block, its original memory stays allocated until the end.
    """
    state_modes(module)
    structure = _Structure([*module.modules()])
    places = {id(tensor): _TensorRef(tensor) for tensor in structure.tensors()}
    try:
        yield
    finally:
        structure.restore()
        for place in places.values():
            place.restore()
