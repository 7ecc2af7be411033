"""Attacks that change the model or the process that they run in, and an honest model that changes by itself."""

import signal
import threading
import time
import types

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

OFFSET = 0.0
_LEFT = []  # contexts that were not closed
_LATEST = []  # the last network that was made


def _shift(z):
    return z


class Net(nn.Module):
    """A network with everything that an attack may change: layers' settings, floats, lists, objects, globals."""

    def __init__(self, body):
        super().__init__()
        self.norm, self.body, self.leak = nn.BatchNorm2d(3).eval(), body, nn.LeakyReLU(0.01)
        self.scale, self.used, self.signs = 1.0, True, (1.0, 1.0)
        self.biases, self.hidden = [torch.zeros(10)], [nn.Linear(10, 10, bias=False).requires_grad_(False)]
        self.hidden[0].weight.copy_(torch.eye(10))
        self.table = {"order": list(range(10))}
        self.options = types.SimpleNamespace(shift=torch.zeros(10))
        _LATEST[:] = [self]

    def forward(self, x):
        z = self.leak(self.body(self.norm(x)))
        z = self.hidden[0](z * self.scale * self.signs[0] + self.biases[0])
        return _shift(z[:, self.table["order"]] + self.options.shift + OFFSET) if self.used else z * 0


def step(model, inputs, labels, epsilon):
    """One step along the sign of the gradient: an honest attack."""
    asked = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(functional.cross_entropy(model(asked), labels), asked)
    return (inputs + epsilon * gradient.sign()).clamp(0, 1)


def _changes(change):
    """An attack that makes a change before it asks on."""

    def attack(model, inputs, labels, epsilon):
        model(inputs)
        change(_LATEST[0])
        return step(model, inputs, labels, epsilon)

    attack.__doc__ = change.__doc__
    return attack


def norm_eps(net):
    """Sets the epsilon of a batch normalisation, so that all images look grey."""
    net.norm.eps = 1e9


def slope(net):
    """Sets the slope of a LeakyReLU, so that the order of the classes turns."""
    net.leak.negative_slope = -3.0


def float_attribute(net):
    """Sets a float attribute of the model."""
    net.scale = -1.0


def bool_attribute(net):
    """Sets a flag of the model."""
    net.used = False


def tuple_attribute(net):
    """Replaces a tuple that the model computes with."""
    net.signs = (-1.0, 1.0)


def string_attribute(net):
    """Changes how a convolution pads."""
    net.body[0].padding_mode = "circular"


def stride(net):
    """Sets the stride of a convolution, so that the model fails from then on."""
    net.body[0].stride = (1, 1)


def listed_weights(net):
    """Adds to weights that lie in a plain list."""
    net.biases[0][3] += 100


def listed_tensor(net):
    """Replaces a tensor in a plain list."""
    net.biases[0] = torch.arange(10.0) * 50


def hidden_layer(net):
    """Changes the weights of a layer in a plain list, which torch does not know as a part of the model."""
    net.hidden[0].weight.data.neg_()


def nested_list(net):
    """Turns a list around that is in a dictionary of the model."""
    net.table["order"].reverse()


def new_call(net):
    """Gives the model another `_call_impl`, which torch calls in place of the class's."""
    net._call_impl = lambda x: net.forward(x).neg()


def global_value(net):
    """Sets a global of the file that the model is from."""
    globals()["OFFSET"] = -torch.arange(10.0) * 100


def global_function(net):
    """Replaces a function of the file that the model is from."""
    globals()["_shift"] = torch.neg


def class_method(net):
    """Replaces the forward of the model's class."""
    honest = Net.forward
    Net.forward = lambda self, x: -honest(self, x)


def torch_method(net):
    """Replaces the forward of torch's linear layer."""
    honest = nn.Linear.forward
    nn.Linear.forward = lambda self, x: -honest(self, x)


def torch_code(net):
    """Replaces the code inside the forward of torch's linear layer, which stays the same function."""

    def forward(self, input):  # noqa: A002 - torch's word
        return -input @ self.weight.T

    nn.Linear.forward.__code__ = forward.__code__


def tensor_method(net):
    """Replaces `Tensor.argmax`, by which the judge sees what a model predicts."""
    torch.Tensor.argmax = lambda self, *_, **__: torch.zeros(len(self), dtype=torch.long)


def functional_patch(net):
    """Replaces `torch.nn.functional.leaky_relu`."""
    functional.leaky_relu = lambda x, *_: -x


def torch_patch(net):
    """Replaces `torch.isfinite`, by which the judge finds answers that are none."""
    torch.isfinite = lambda x: torch.ones_like(x, dtype=torch.bool)


def global_hook(net):
    """Registers a hook for all modules of the process."""
    nn.modules.module.register_module_forward_hook(lambda module, _, out: -out if module is net else None)


def object_inside(net):
    """Changes an object of the user's inside the model in place."""
    net.options.shift[2] += 1000


class _Negate(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return -out if func is functional.leaky_relu else out


CHANGES = {
    name: _changes(change)
    for name, change in {
        "eps of a batch normalisation": norm_eps,
        "slope of a LeakyReLU": slope,
        "a float": float_attribute,
        "a flag": bool_attribute,
        "a tuple": tuple_attribute,
        "padding": string_attribute,
        "weights in a list": listed_weights,
        "a tensor in a list": listed_tensor,
        "a layer in a list": hidden_layer,
        "a list in a dictionary": nested_list,
        "another _call_impl": new_call,
        "a global": global_value,
        "a function of the model's file": global_function,
        "the class's forward": class_method,
        "torch's Linear.forward": torch_method,
        "the code of torch's Linear.forward": torch_code,
        "Tensor.argmax": tensor_method,
        "a torch function": torch_patch,
        "a torch.nn function": functional_patch,
        "a hook for all modules": global_hook,
    }.items()
}
BREAKS = {"a stride": _changes(stride)}
NOT_PUT_BACK = {"an object in the model": _changes(object_inside)}


def leaves_inference_mode(model, inputs, labels, epsilon):
    """Leaves torch's inference mode open."""
    stepped = step(model, inputs, labels, epsilon)
    _LEFT.append(torch.inference_mode())
    _LEFT[-1].__enter__()
    return stepped * 1


def leaves_autocast(model, inputs, labels, epsilon):
    """Leaves torch's autocast open."""
    stepped = step(model, inputs, labels, epsilon)
    torch.autocast("cpu", torch.bfloat16).__enter__()
    return stepped


def leaves_mode(model, inputs, labels, epsilon):
    """Leaves a mode open that changes what torch's functions do."""
    stepped = step(model, inputs, labels, epsilon)
    _Negate().__enter__()
    return stepped


def leaves_alarm(model, inputs, labels, epsilon):
    """Leaves an alarm that would kill the process a moment later."""
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    return step(model, inputs, labels, epsilon)


def leaves_handler(model, inputs, labels, epsilon):
    """Has the signal ignored by which a process is asked to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return step(model, inputs, labels, epsilon)


def leaves_thread(model, inputs, labels, epsilon):
    """Leaves a thread that never ends, so that Python would wait for it for ever."""
    threading.Thread(target=_wait).start()
    return step(model, inputs, labels, epsilon)


def leaves_late_change(model, inputs, labels, epsilon):
    """Leaves a thread that changes the model while the next attack runs."""
    threading.Thread(target=_change_late, args=(_LATEST[0],), daemon=True).start()
    return step(model, inputs, labels, epsilon)


def _wait():
    while True:
        time.sleep(0.01)


def _change_late(net):
    for _ in range(10):
        time.sleep(0.01)
    while True:
        net.scale = -net.scale
        time.sleep(0.001)


LEAVES = {
    "inference mode": leaves_inference_mode,
    "autocast": leaves_autocast,
    "a mode of torch's functions": leaves_mode,
    "an alarm": leaves_alarm,
    "a signal ignored": leaves_handler,
}
THREADS = {"a thread": leaves_thread, "a late change": leaves_late_change}


class Counts(nn.Module):
    """Counts its calls, notes the last batch, keeps its last features and a table of sizes: all its own doing."""

    def __init__(self, body):
        super().__init__()
        self.body, self.calls, self.last, self.features, self.sizes, self.log = body, 0, 0, torch.zeros(1), {}, []

    def forward(self, x):
        self.calls, self.last = self.calls + 1, len(x)
        self.features = self.body[:2](x)
        self.log.append(self.features.mean())
        if len(x) not in self.sizes:
            self.sizes[len(x)] = torch.ones(len(x), 1)
        return self.body(x) * self.sizes[len(x)]


HONEST = {"counts and keeps": Counts}
PROGRAMS = {**CHANGES, **BREAKS, **NOT_PUT_BACK, **LEAVES, **THREADS}
