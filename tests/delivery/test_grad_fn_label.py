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


@pytest.mark.parametrize("parameter", [True, False])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_label_is_put_on_a_tensor_that_has_lost_it(parameter: bool, requires_grad: bool) -> None:
    original = torch.ones(2)
    if parameter:
        original = torch.nn.Parameter(original, requires_grad=requires_grad)
    original.requires_grad_(requires_grad)
    label = grad_fn_label.Label.of(original)
    plain = torch.ones(2)
    restored = label.put_on(plain)
    assert repr(restored) == repr(original)
    assert (restored is plain) is not (parameter or requires_grad)


def test_a_label_leaves_a_tensor_that_shows_the_same() -> None:
    x = torch.ones(2, requires_grad=True)
    product = x * 2
    assert grad_fn_label.Label.of(product).put_on(product) is product
    parameter = torch.nn.Parameter(x.detach())
    assert grad_fn_label.Label.of(parameter).put_on(parameter) is parameter


def test_a_label_without_gradients_takes_them_off() -> None:
    label = grad_fn_label.Label.of(torch.ones(2))
    restored = label.put_on(torch.ones(2, requires_grad=True) * 2)
    assert not restored.requires_grad and repr(restored) == repr(torch.full((2,), 2.0))


def test_a_leaf_passes_no_name_on() -> None:
    x = torch.ones(2, requires_grad=True)
    other = x.detach()
    grad_fn_label.pass_on(x, other)
    assert grad_fn_label.name_of(other) is None


def test_histories_of_two_names_do_not_rename_each_other() -> None:
    one = grad_fn_label.labeled("OneBackward0", torch.ones(1))
    other = grad_fn_label.labeled("OtherBackward0", torch.ones(1))
    assert type(one.grad_fn).__name__ == "OneBackward0"
    assert type(other.grad_fn).__name__ == "OtherBackward0"
