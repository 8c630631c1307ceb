"""What output shows: tensors, numbers, objects, modules."""

from __future__ import annotations

import logging
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from corpus.patterns.output.shown_objects import Described, Meter
from corpus.patterns.pattern import (
    CALL,
    CHOICE,
    NO_MERGE,
    OUTPUT,
    WHERE,
    pattern,
    patterns_among,
    signs,
)

Program = Callable[..., Any]
logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)


@pattern(signs, OUTPUT)
def print_of_a_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        print("x is", x, [x.sum(), {"half": x / 2}])
        return x * 2

    return program


@pattern(signs, OUTPUT)
def print_of_objects() -> Program:
    class Label:
        def __init__(self, text: str) -> None:
            self.text = text

        def __str__(self) -> str:
            return f"<{self.text}>"

    label = Label("here")

    def program(x: Tensor) -> Tensor:
        print(label, None, True, (1, [2, {"three": 3.0}]), range(3), label.text.upper())
        return x * 2

    return program


Pair = namedtuple("Pair", ["first", "second"])


@dataclass
class Scores:
    """A dataclass, whose `repr` shows its fields."""

    best: Tensor
    label: str = "none"


@pattern(signs, OUTPUT)
def dictionary_of_tensors() -> Program:
    def program(x: Tensor) -> Tensor:
        losses = OrderedDict(one=x.detach().sum(), two=x.detach().mean())
        print(dict(losses))
        print({name: round(value.item(), 2) for name, value in losses.items()})
        losses["one"] = losses["one"] + 1
        print(", ".join(f"{name}={value.item():.2f}" for name, value in losses.items()))
        return x * 2

    return program


@pattern(signs, OUTPUT)
def object_that_shows_its_tensor() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.meter = Meter("held", torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            print(self.meter, repr(self.meter), [self.meter], f"{self.meter:.4f} {self.meter!r}")
            return x * self.meter.value

    return Net()


@pattern(signs, OUTPUT)
def object_made_in_the_call() -> Program:
    def program(x: Tensor) -> Tensor:
        meter = Meter("made", x.detach() * 2)
        print(meter, [meter])
        return x * meter.value

    return program


@pattern(signs, OUTPUT)
def dataclass_of_a_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        scores = Scores(x.detach().max())
        print(scores)
        print(scores.label, scores.best.item())
        return x * 2

    return program


@pattern(signs, OUTPUT)
def named_tuple_of_tensors() -> Program:
    def program(x: Tensor) -> Tensor:
        pair = Pair(x.detach().sum(), "second")
        print(pair, pair.first, pair._asdict())
        return x * 2

    return program


@pattern(signs, OUTPUT)
def representations_of_numbers() -> Program:
    def program(x: Tensor) -> Tensor:
        print(float(x.sum()), int(x.max()), bool(x.any()), round(x.mean().item(), 3))
        print(str(x.sum().item()), repr(x[0].item()), abs(x.min().item()), -x[1].item())
        print(x.int().tolist(), x.detach().numpy(), x.detach().to(torch.float64).tolist())
        return x * 2

    return program


@pattern(signs, OUTPUT)
def facts_of_tensors() -> Program:
    def program(x: Tensor) -> Tensor:
        print(x.shape, x.size(), x.size(0), x.shape[0], x.dim(), x.ndim, x.numel(), len(x))
        print(x.dtype, x.device, x.device.type, x.layout, x.is_contiguous(), x.stride())
        print(x.element_size(), x.is_floating_point(), type(x), type(x).__name__)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def whether_gradients_flow() -> Program:
    def program(x: Tensor) -> Tensor:
        print(x.requires_grad, x.is_leaf, torch.is_grad_enabled(), (x * 2).requires_grad)
        with torch.enable_grad():
            print(torch.is_grad_enabled())
        return x * 2

    return program


@pattern(signs, OUTPUT)
def special_values() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach()
        print(y / 0, y.sqrt(), (y * 0).log(), y.new_tensor([]), (y > 0), y.to(torch.int8))
        print(f"{(y[0] / 0).item()} {y.sqrt().sum().item()} {(y.max() * 1e30).item():g}")
        print(torch.complex(y, -y), y.to(torch.bfloat16), y.half().sum().item())
        return x * 2

    return program


@pattern(signs, OUTPUT)
def large_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        table = x.detach().repeat(40, 20)
        print(table)
        table[0, 0] = 99
        print(table[0, :5], table.shape)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def parameter_and_its_name() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            print(self.weight)
            for name, parameter in self.named_parameters():
                print(
                    name, tuple(parameter.shape), parameter.requires_grad, parameter.norm().item()
                )
            return x * self.weight

    return Net()


@pattern(signs, OUTPUT)
def module_as_an_argument() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def extra_repr(self) -> str:
            return "checked"

        def forward(self, x: Tensor) -> Tensor:
            print(self.layer, type(self).__name__, self.__class__.__qualname__.split(".")[-1])
            print(self)
            return self.layer(x)

    return Net()


@pattern(signs, OUTPUT, WHERE)
def result_of_a_branch_in_a_message() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach() * 2 if x.sum() > 0 else x.detach() - 1
        print("y", y, f"{y.sum().item():.2f}")
        return x + y

    return program


@pattern(signs, OUTPUT)
def set_and_range_and_slice() -> Program:
    def program(x: Tensor) -> Tensor:
        print({1}, frozenset([2]), range(2, 5), slice(1, None), ..., b"bytes", 1 + 2j)
        print(torch.float32, torch.Size([2]), torch.device("cpu"), int, None, True, "text"[1:])
        return x * 2

    return program


@pattern(signs, OUTPUT)
def tensors_with_a_history() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            print(x, x * 2, y, y.sum(), y.tanh(), torch.relu(y), y[0], y.detach())
            print({"loss": y.mean()}, [y.t(), (y.exp(), y.softmax(-1))])
            logger.info("%s of %r", y.std(), y.view(1, 2))
            print(f"{y}", str(y.max()), y.requires_grad, (y > 0), y.argmax())
            return y

    return Net()


@pattern(signs, OUTPUT)
def message_about_what_the_result_does_not_need() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            print("auxiliary", self.other(x), f"{self.other(x).sum().item():.3f}")
            return self.head(x)

    return Net()


@pattern(signs, OUTPUT)
def text_of_an_object_changed_before() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.described = Described()

        def forward(self, x: Tensor) -> Tensor:
            self.described.count = x.numel()
            print(f"now {self.described} of {x.shape}", "and", self.described)
            logger.info(f"logged {self.described}")
            return x * 2

    return Net()


@pattern(signs, NO_MERGE, OUTPUT, WHERE)
def places_of_bad_values() -> Program:
    def program(x: Tensor) -> Tensor:
        print("positive", x[x > 0], x[~(x > 0)].tolist(), x.round().unique().tolist())
        if torch.isnan(x).any() or (x < -3).any():
            logger.warning("%s at %s", x.min().item(), (x < -3).nonzero().tolist())
        return x.clamp(min=-3)

    return program


@pattern(signs, CHOICE, OUTPUT)
def word_chosen_and_printed() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            word = "rising"
        else:
            word = "falling"
        print(f"the trend is {word}")
        return x * 2

    return program


@pattern(signs, CALL, OUTPUT)
def numbers_of_numpy_between_output() -> Program:
    def program(x: Tensor) -> Tensor:
        print("drawn", numpy.random.uniform(1, 2))
        noise = torch.from_numpy(numpy.random.randn(3)).float()
        print("noise", noise)
        return x * noise * numpy.random.randint(1, 9)

    return program


PATTERNS = patterns_among(list(vars().values()))
