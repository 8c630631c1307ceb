"""A tensor in a message has a history of the name that eager execution gives it."""

from __future__ import annotations

import pytest
import torch

import bcmend
from bcmend.delivery import grad_fn_label
from bcmend.delivery.codec import LABELED, decoded, encoded


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda x: x * 2, "grad_fn=<MulBackward0>"),
        (lambda x: x.exp().sum(), "grad_fn=<SumBackward0>"),
        (lambda x: x, "requires_grad=True"),
        (torch.nn.Parameter, "Parameter containing"),
    ],
)
def test_a_restored_tensor_prints_as_the_original(make, shown: str) -> None:
    original = make(torch.ones(2, requires_grad=True))
    name = grad_fn_label.name_of(original)
    restored = decoded((encoded(LABELED, name, original.detach()),))[0]
    assert shown in repr(original)
    assert repr(restored) == repr(original)


def test_a_tensor_without_gradients_has_no_name() -> None:
    assert grad_fn_label.name_of(torch.ones(2)) is None


def test_a_name_is_passed_on() -> None:
    x = torch.ones(2, requires_grad=True)
    product, other = x * 2, x + 1
    grad_fn_label.pass_on(product, other)
    assert grad_fn_label.name_of(other) == "MulBackward0"


def test_a_restored_tensor_is_one_without_gradients_recorded_too() -> None:
    with torch.no_grad():
        restored = grad_fn_label.labeled("MulBackward0", torch.ones(2))
    assert repr(restored) == "tensor([1., 1.], grad_fn=<MulBackward0>)"


def test_nothing_flows_back_into_what_output_alone_reads(capsys) -> None:
    def program(x):
        if x.sum() < 1:
            ratio = x / x
            print(ratio)
        else:
            x = x @ torch.ones(3, 3)
        return x

    seen = []
    for call in (program, bcmend.compile(program, backend="eager", fullgraph=True)):
        x = torch.tensor([0.0, 2.0, -7.0], requires_grad=True)
        call(x).sum().backward()
        seen.append((x.grad.tolist(), capsys.readouterr().out))
    assert seen[1] == seen[0]
    assert seen[0][0] == [1.0, 1.0, 1.0]
