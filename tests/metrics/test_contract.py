"""What holds for every metric alike, read from `METRICS`."""

import inspect
import math
import re
from copy import deepcopy

import numpy as np
import pytest
import torch

from davylamp import metrics
from davylamp.metrics import METRICS, maximum_distortion

NOT_OF_IMAGES = {"weight", "similarity", "low", "high", "errors", "frames", "seconds", "directions", "magnitudes"}
NOT_OF_IMAGES |= {"flip_probabilities", "base_flip_probabilities"}
EVERY = pytest.mark.parametrize("symbol", METRICS)
REDUCED = [symbol for symbol in METRICS if "reduction" in inspect.signature(METRICS[symbol].function).parameters]


def call(symbol, arguments, **changes):
    function = METRICS[symbol].function
    parameters = inspect.signature(function).parameters
    wanted = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    wanted += [name for name in ("features", "ks", "success") if name in parameters and name not in wanted]
    return function(**{name: arguments[name] for name in wanted} | changes)


def tensor_of(result):
    return torch.as_tensor(result[0] if isinstance(result, tuple) else result)


@EVERY
def test_the_record_is_complete(symbol):
    record = METRICS[symbol]
    assert record.symbol == symbol
    assert record.title != symbol
    assert record.unit
    assert record.source or record.group == "recorded"
    assert record.meaning.endswith(".")
    assert record.robust_when in ("higher", "lower", None)
    assert record.between[0] < record.between[1]
    assert getattr(metrics, record.function.__name__) is record.function


@EVERY
def test_arguments_come_from_the_vocabulary(symbol, arguments):
    parameters = inspect.signature(METRICS[symbol].function).parameters.values()
    required = [each.name for each in parameters if each.default is each.empty]
    assert set(required) <= set(arguments)
    assert all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters if each.name in required)
    assert [each.name for each in parameters][-1:] == ["reduction"] or symbol not in REDUCED


@EVERY
def test_the_docstring_describes_every_argument(symbol):
    function = METRICS[symbol].function
    text = inspect.getdoc(function)
    for section in ("Args:", "Returns:", "Raises:"):
        assert section in text
    described = re.findall(r"^    (\w+):", text.partition("Args:")[2].partition("Returns:")[0], flags=re.MULTILINE)
    assert described == list(inspect.signature(function).parameters)


@EVERY
def test_the_value_lies_in_its_range(symbol, arguments):
    values = tensor_of(call(symbol, arguments))
    low, high = METRICS[symbol].between
    assert not values.isnan().any()
    assert (values >= low).all()
    assert (values <= high).all()


@pytest.mark.parametrize("symbol", REDUCED)
def test_values_per_image_are_reduced_without_the_undefined(symbol, arguments):
    values = call(symbol, arguments, reduction="none")
    known = values[~values.isnan()]
    assert values.shape == (12,)
    assert len(known)
    torch.testing.assert_close(call(symbol, arguments), known.mean())
    torch.testing.assert_close(call(symbol, arguments, reduction="sum"), known.sum())
    low, high = METRICS[symbol].between
    assert ((known >= low) & (known <= high)).all()
    with pytest.raises(ValueError, match="expected reduction"):
        call(symbol, arguments, reduction="median")


@pytest.mark.parametrize("symbol", [symbol for symbol in METRICS if "success" in METRICS[symbol].arguments])
def test_no_success_counts_every_image(symbol, arguments):
    parameters = inspect.signature(METRICS[symbol].function).parameters
    every = torch.ones(12, dtype=torch.bool)
    chosen = [name for name in ("success", "defended_success") if name in parameters]
    if parameters["success"].default is parameters["success"].empty and len(chosen) == 1:
        return  # which images count is what it is about
    value = call(symbol, arguments, **dict.fromkeys(chosen))
    torch.testing.assert_close(value, call(symbol, arguments, **dict.fromkeys(chosen, every)))
    assert value != call(symbol, arguments) or symbol.endswith("MS")


@EVERY
def test_the_order_of_images_does_not_matter(symbol, arguments):
    order = torch.randperm(12, generator=torch.Generator().manual_seed(5))
    shuffled = {
        name: value[order] if isinstance(value, torch.Tensor) and len(value) == 12 else value
        for name, value in arguments.items()
        if name not in NOT_OF_IMAGES
    }
    shuffled |= {name: arguments[name][:, order] for name in ("predictions", "adv_predictions")}
    shuffled["layers"] = [layer[order] for layer in arguments["layers"]]
    shuffled = arguments | shuffled
    torch.testing.assert_close(tensor_of(call(symbol, shuffled)), tensor_of(call(symbol, arguments)))
    if symbol in REDUCED:
        values = call(symbol, arguments, reduction="none")
        torch.testing.assert_close(call(symbol, shuffled, reduction="none"), values[order], equal_nan=True)


@pytest.mark.parametrize("symbol", [symbol for symbol in METRICS if symbol not in ("CTC", "D_half")])  # levels; floats
def test_precision_is_kept(symbol, arguments):
    counts = {"forwards", "backwards"}
    exact = {name: value.double() if name in counts else value for name, value in arguments.items()}
    single = {
        name: value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.float64 else value
        for name, value in exact.items()
    }
    single["layers"] = [layer.float() for layer in arguments["layers"]]
    coarse, fine = call(symbol, single), call(symbol, exact)
    of_integers = symbol in ("OTR", "FP")
    assert coarse.dtype == torch.float32
    assert fine.dtype == (torch.float32 if of_integers else torch.float64)
    torch.testing.assert_close(coarse.double(), fine.double(), rtol=1e-4, atol=1e-5)


@EVERY
def test_arguments_are_not_changed(symbol, arguments):
    copies = {name: value.clone() for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    call(symbol, arguments)
    assert all(torch.equal(value, arguments[name]) for name, value in copies.items())


@pytest.mark.parametrize("symbol", ["AMD", "AED", "APCR", "ALD", "PSNR", "PSD", "FDL", "FDH", "ALMS", "ADMS", "ASS"])
def test_images_that_track_gradients_are_measured_without(symbol, arguments):
    tracked = {name: arguments[name].clone().requires_grad_() for name in ("inputs", "adv_inputs")}
    values = call(symbol, arguments | tracked)
    assert not values.requires_grad
    torch.testing.assert_close(values, call(symbol, arguments))


@EVERY
def test_bad_arguments_are_refused(symbol, arguments):
    function = METRICS[symbol].function
    parameters = inspect.signature(function).parameters
    for name in parameters:
        value = arguments.get(name)
        if not isinstance(value, torch.Tensor):
            continue
        wrong = [value[..., None, None, None], value.to(torch.complex64)]
        if value.is_floating_point():
            wrong.append(torch.full_like(value, math.nan))
        for bad in wrong:
            if name == "similarity" and bad.dtype == torch.float64 and bad.shape == value.shape:
                continue  # NaN stands for an undefined similarity
            with pytest.raises(ValueError, match=r"expected .*, got "):
                call(symbol, arguments, **{name: bad})
        with pytest.raises(TypeError, match=f"expected {name} to be a torch.Tensor, got list"):
            call(symbol, arguments, **{name: value.tolist()})


@EVERY
def test_one_nan_is_never_dropped(symbol, arguments):
    for name in inspect.signature(METRICS[symbol].function).parameters:
        value = arguments.get(name)
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or name == "similarity":
            continue
        spoilt = value.clone()
        spoilt.view(-1)[0] = math.nan
        with pytest.raises(ValueError, match=f"expected {name} to hold .*, got "):
            call(symbol, arguments, **{name: spoilt})


@pytest.mark.parametrize("symbol", [symbol for symbol in REDUCED if symbol not in ("EBD", "EBD2")])
def test_a_mean_over_nothing_is_undefined(symbol, arguments):
    empty = {
        name: value[:0]
        for name, value in arguments.items()
        if isinstance(value, torch.Tensor) and len(value) == 12 and name not in NOT_OF_IMAGES
    }
    empty |= {name: arguments[name][:, :0] for name in ("predictions", "adv_predictions")}
    assert call(symbol, arguments | empty).isnan()
    assert call(symbol, arguments | empty, reduction="none").shape == (0,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@EVERY
def test_devices_agree(symbol, arguments):
    moved = {
        name: deepcopy(value).cuda() if isinstance(value, (torch.Tensor, torch.nn.Module)) else value
        for name, value in arguments.items()
        if name != "layers"
    }
    moved["layers"] = [layer.cuda() for layer in arguments["layers"]]
    there = call(symbol, moved)
    here = tensor_of(call(symbol, arguments))
    torch.testing.assert_close(tensor_of(there).cpu(), here, rtol=1e-5, atol=1e-5)


def test_images_are_looked_at_again_once_they_changed():
    images, success = torch.rand(2, 3, 8, 8), torch.ones(2, dtype=torch.bool)
    assert maximum_distortion(images, images, success) == 0
    images[0, 0, 0, 0] = 2
    with pytest.raises(ValueError, match="expected inputs to hold values between 0 and 1, got"):
        maximum_distortion(images, images, success)


@pytest.mark.parametrize("shared_first", [True, False], ids=["from_numpy", "numpy()"])
def test_memory_that_numpy_may_change_is_always_looked_at(shared_first):
    success = torch.ones(2, dtype=torch.bool)
    array = np.zeros((2, 3, 8, 8), dtype=np.float32)
    images = torch.from_numpy(array) if shared_first else torch.zeros(2, 3, 8, 8)
    assert maximum_distortion(images, images, success) == 0
    array = array if shared_first else images.numpy()
    array[1, 2, 3, 4] = np.nan
    with pytest.raises(ValueError, match="expected inputs to hold values between 0 and 1, got"):
        maximum_distortion(images, images, success)


def test_inference_tensors_are_accepted():
    with torch.inference_mode():
        images = torch.rand(2, 3, 8, 8)
    assert maximum_distortion(images, images, torch.ones(2, dtype=torch.bool)) == 0
