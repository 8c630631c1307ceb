"""Conditions and values of branches and loops that are arrays of numpy, tensors to the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import Call, assert_equivalent, call, fresh

ROWS = ([1.0, 2.0], [0.0, 0.0], [-0.25, 0.75], [0.5, -9.0], [-1.0, -1.0])


def _chosen(x: Tensor) -> Any:
    a = x.numpy()
    if a.max() > 0.6:
        a = a * 2
    return a, x + 1


def _checked(x: Tensor) -> Any:
    a = x.numpy()
    if np.any(a < -0.5):
        raise ValueError(f"negative: {a}")
    return torch.from_numpy(np.sqrt(np.abs(a)))


def _halved(x: Tensor) -> Any:
    a = x.numpy()
    while a.max() > 0.3:
        a = a / 2
    print(a)
    return a


def _counted(x: Tensor) -> Any:
    a, count = x.numpy(), 0
    for _ in range(3):
        if a.sum() < 1:
            break
        a, count = a - np.float32(0.5), count + 1
    return a, count


def _asked(x: Tensor) -> Any:
    a = x.detach().cpu().numpy()
    if any(each > 1 for each in a):
        return x
    return x - 1 if not (a > 0).all() and a[0] < 0 else None


def _array_or_tensor(x: Tensor) -> Any:
    return x.numpy() if x.sum() > 0 else x


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "chosen": _chosen,
    "checked": _checked,
    "halved": _halved,
    "counted": _counted,
    "asked": _asked,
    "array or tensor": _array_or_tensor,
}


def _calls() -> list[Call]:
    return [call(torch.tensor(row)) for row in ROWS]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arrays_decide_and_are_chosen(name: str, backend: str) -> None:
    # An array that has the memory of an argument is merged like a tensor.
    assert_equivalent(lambda: fresh(PROGRAMS[name]), _calls, backend=backend, may_copy=True)


def test_a_turn_that_makes_an_array_of_a_tensor_is_not_carried() -> None:
    def program(x: Tensor) -> Any:
        y: Any = x
        while y.sum() > 1:
            y = y.numpy() / 2 if isinstance(y, Tensor) else torch.from_numpy(y / 2)
        return y

    mended = bcmend.patch(program)
    for row in ROWS:
        expected, found = (
            program(torch.tensor(row)),
            torch.compile(mended, backend="eager")(torch.tensor(row)),
        )
        assert type(expected) is type(found)
        assert expected.tolist() == found.tolist()


# Numbers out of tensors that numpy computes with


def _cosine(x: Tensor) -> Any:
    part = x.mean().item()
    return x * (0.5 * (1 + np.cos(np.pi * part))), np.exp(-abs(part)) * x.to(torch.int32)


def _rounded(x: Tensor) -> Any:
    count = int((x > 0).sum())
    width = int(np.ceil(count / 2)) + int(np.sqrt(count))
    return x[: np.clip(width, 0, 2)], x.repeat(int(np.maximum(count, 2)))


def _divided(x: Tensor) -> Any:
    """Divides a number of numpy's by zero, which gives an infinity, or nothing, and raises not."""
    count = np.sqrt(int((x > 0.75).sum()))
    return x * (3.0 / count)


def _finite(x: Tensor) -> Any:
    number = x.log().sum().item()
    return x * 0 if np.isnan(number) or np.isinf(number) else x + number


def _made(x: Tensor) -> Any:
    root = np.sqrt(int((x > 0).sum()))
    made = torch.tensor(root), torch.as_tensor(2 * root), torch.tensor([root, 1.0])
    made += torch.tensor(int(root) / 2), torch.tensor(math.exp(root)), torch.tensor(1 - root / 2)
    return *made, torch.tensor(float(root)), torch.full((2,), root), torch.tensor(round(root))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [_cosine, _rounded, _divided, _finite, _made])
def test_numpy_computes_with_numbers_out_of_tensors(
    program: Callable[[Tensor], Any], backend: str
) -> None:
    with np.errstate(all="ignore"):
        assert_equivalent(
            lambda: fresh(program),
            lambda: [call(torch.tensor(row)) for row in ROWS],
            backend=backend,
        )


def _box(size: tuple[int, ...], share: Any) -> tuple[Any, Any, Any, Any]:
    """Return the edges of a box of which the area is a share, at a place that is drawn."""
    height, width = (int(each * np.sqrt(share)) // 2 for each in size[-2:])
    row, column = (np.random.randint(each) for each in size[-2:])
    edges = row - height, row + height, column - width, column + width
    return tuple(np.clip(each, 0, size[-2 + at // 2]) for at, each in enumerate(edges))


def _pasted(x: Tensor) -> tuple[Tensor, Tensor]:
    """Paste a box of one image into another, and say what of it is left."""
    top, bottom, left, right = _box(tuple(x.shape), 1.0 - np.random.beta(1.0, 1.0))
    order = torch.arange(x.shape[0]).flip(0)
    x = x.clone()
    x[:, :, top:bottom, left:right] = x[order, :, top:bottom, left:right]
    return x, x.sum() * (1 - (bottom - top) * (right - left) / (x.shape[-1] * x.shape[-2]))


def test_a_box_of_one_image_in_another() -> None:
    images = torch.arange(96.0).view(3, 2, 4, 4)
    compiled = torch.compile(bcmend.patch(fresh(_pasted)), backend="eager", fullgraph=True)
    for seed in range(6):
        np.random.seed(seed)
        expected = _pasted(images)
        np.random.seed(seed)
        torch.testing.assert_close(compiled(images), expected, rtol=0, atol=0)
        assert np.random.randint(1000) == _next_draw(seed, images)


def _next_draw(seed: int, images: Tensor) -> int:
    np.random.seed(seed)
    _pasted(images)
    return int(np.random.randint(1000))


def test_a_number_of_numpy_leaves_as_one_of_python() -> None:
    def program(x: Tensor) -> Any:
        return np.sqrt(int((x > 0).sum()))

    expected = program(torch.ones(2))
    (found,) = {
        torch.compile(bcmend.patch(program), fullgraph=True, backend="eager")(torch.ones(2))
    }
    assert found == expected
    assert (type(found), type(expected)) == (float, np.float64)


def test_what_numpy_warns_of_is_warned_of() -> None:
    def program(x: Tensor) -> Tensor:
        return x * np.log(int((x > 0).sum()))

    compiled = torch.compile(bcmend.patch(program), fullgraph=True, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * np.log(2))
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert torch.equal(compiled(-torch.ones(2)), torch.ones(2) * np.inf)
