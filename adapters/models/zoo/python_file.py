"""Loads models and defences from functions in a user's Python file."""

import inspect
from pathlib import Path
from typing import Any

from torch import nn

from ....errors import InvalidInput, UnknownName
from ...user_code_guard import guard_user_code
from ...user_file import LocalImportFinder, load_user_object
from ..classifier import Classifier
from ..defence_check import DefenceCheck


def load_from_file(name: str, path: Path, factory: str, device: str) -> Classifier:
    """Load the model that a function in a Python file returns, or a module that the file defines.

    The function is called without arguments. The file can import other files in its folder, both now and later in the
    model's forward pass. These modules are not visible to other files. Changes to the process during loading (paths,
    folder, precision, warnings) are undone.

    Raises:
        Unavailable: if there is no such file.
        UnknownName: if the file has no such function.
        ModelFailed: if the file or the function raises an error.
        InvalidInput: if the function needs arguments or does not return a model.
    """
    made, neighbours = load_module(path, factory, "a model factory")
    with neighbours, guard_user_code(f"{path}:{factory}"):  # the model may override eval() or to()
        classifier = (made if isinstance(made, Classifier) else Classifier(made, name=name)).to(device).freeze()
    classifier.surroundings = neighbours
    return classifier


def load_module(path: Path, factory: str, what: str) -> tuple[nn.Module, LocalImportFinder]:
    """Load the module that a function in a Python file returns, or that the file defines.

    Args:
        path: path of the file.
        factory: name of the function or module.
        what: description for messages, such as "a model factory".

    Returns:
        The module, and the finder for its local imports, which has to be entered when the module is used.

    Raises:
        DavylampError: as for `load_from_file`.
    """
    with load_user_object(path, factory, what) as (function, neighbours):
        if not callable(function):  # modules are callable as well
            raise UnknownName(f"factory in {path}", factory, ())
        if not isinstance(function, nn.Module):
            _check_arguments(function, f"{path}:{factory}")
        with guard_user_code(f"{path}:{factory}", descriptors=True):
            made = function if isinstance(function, nn.Module) else function()
    if isinstance(made, nn.Module):
        return made, neighbours
    raise InvalidInput(f"expected a torch.nn.Module or a Classifier from {path}:{factory}, got {_describe(made)}")


def defend_from_file(name: str, path: Path, function: str, classifier: Classifier) -> Classifier:
    """Apply a defence from a Python file, a function Classifier -> Classifier, to a classifier.

    The function may also return a plain module, such as `nn.Sequential(filter, classifier)`. The result then has the
    undefended model's preprocessing of image files.

    Args:
        name: name of the defended model.
        path: path of the file.
        function: name of the function.
        classifier: the undefended model.

    Raises:
        Unavailable, UnknownName, ModelFailed: as for `load_from_file`.
        InvalidInput: if the function does not return a model.
    """
    with load_user_object(path, function, "a defence") as (defend, neighbours):
        if not callable(defend):
            raise InvalidInput(f"expected a function Classifier -> Classifier as {path}:{function}, got {defend!r}")
        with guard_user_code(f"{path}:{function}", descriptors=True):
            made = defend(classifier)
    if not isinstance(made, nn.Module):
        raise InvalidInput(f"expected a Classifier or a torch.nn.Module from {name}, got {_describe(made)}")
    if made is classifier or not isinstance(made, Classifier):
        sizes = {word: getattr(classifier, word) for word in ("resize", "crop", "interpolation")}
        made = Classifier(made, num_classes=classifier.stated_classes, **sizes)
    classes, before = made.stated_classes, classifier.stated_classes
    if None not in (classes, before) and classes != before:
        raise InvalidInput(
            f"{path}:{function} returned {classes} classes; a defence must keep the {before} classes of the model"
        )
    if classifier.random and not made.random:
        made.random = True
    made.name, made.surroundings = name, neighbours
    allowed = {"keeps_classes": not made.detects, "is_random": made.random}
    made.answers.handed_on = DefenceCheck(classifier, f"{path}:{function}", **allowed)
    return made.freeze()


def _check_arguments(function: Any, where: str) -> None:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise InvalidInput(f"expected a function without arguments as {where}, got {error}") from error
    except ValueError:  # it has no readable signature
        return


def _describe(made: Any) -> str:
    if inspect.iscoroutine(made):
        made.close()
        return "a coroutine; make the factory a plain function, not async"
    if made is None:
        return "NoneType; the factory must return the model"
    if isinstance(made, tuple | list):
        return f"{type(made).__name__} of {', '.join(type(part).__name__ for part in made)}; return the model alone"
    if isinstance(made, type):
        return f"the class {made.__name__}; return an instance"
    return type(made).__name__
