"""Values with one form on each side of a branch, read by other code than the branch's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bcmend
from tests.equivalence import Call, assert_equivalent, call, compare


def _signs() -> list[Call]:
    rows = ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [5.0, 1.0, -1.0])
    return [call(torch.tensor(row)) for row in rows]


def _is_positive(x: Tensor) -> bool:
    return True if x.sum() > 0 else False


def _doubled_or_none(x: Tensor) -> Tensor | None:
    if x.sum() > 0:
        return None
    return x * 2


def _scale(x: Tensor) -> float:
    if x.sum() > 0:
        return 1
    return 0.5


def _count(x: Tensor) -> int:
    return 2 if x.sum() > 0 else 3


def _tested(x: Tensor) -> Tensor:
    return (x + 1 if _is_positive(x) else x - 1) * 2


def _added_unless_none(x: Tensor) -> Tensor:
    more = _doubled_or_none(x)
    return x * 1 if more is None else x + more


def _added_if_a_tensor(x: Tensor) -> Tensor:
    more = _doubled_or_none(x)
    return x + more if isinstance(more, Tensor) else x * 1


def _product_with_a_number(x: Tensor) -> Tensor:
    return x * _scale(x)


def _dtype(x: Tensor) -> Tensor:
    return x.to(torch.float64 if x.sum() > 0 else torch.float32).sum()


def _reduction(x: Tensor) -> Tensor:
    return F.cross_entropy(x[None], torch.tensor([1]), reduction="sum" if x.sum() > 0 else "none")


def _callable(x: Tensor) -> Tensor:
    return (torch.sin if x.sum() > 0 else torch.cos)(x)


def _slice(x: Tensor) -> Tensor:
    lowest, highest = (0, 1) if x.sum() > 0 else (1, 2)
    return x[lowest:highest] + x.clamp(lowest, highest)


def _turns(x: Tensor) -> Tensor:
    for _ in range(_count(x)):
        x = x * 1.5
    return x


def _list_of_so_many(x: Tensor) -> Tensor:
    return torch.stack([x] * _count(x)).sum(0)


def _both_conditions(x: Tensor) -> Tensor:
    one, other = _is_positive(x), _is_positive(-x)
    if one and not other:
        return x + 1
    return x - 1 if other else x * 3


def _in_a_closure(x: Tensor) -> Tensor:
    more = _doubled_or_none(x)

    def inner(z: Tensor) -> Tensor:
        return z * 1 if more is None else z + more

    return inner(x) + inner(x * 2)


def _counted(x: Tensor) -> Tensor:
    count = 0
    if _is_positive(x):
        count += 1
    if _is_positive(x - 2):
        count += 1
    return x * count


def _in_a_list_for_a_call(x: Tensor) -> Tensor:
    return sum([_scale(x), 2]) * x


def _by_keywords(x: Tensor) -> Tensor:
    options = {"dim": 0, "keepdim": _is_positive(x)}
    return x.sum(**options)


def _again_in_a_loop(x: Tensor) -> Tensor:
    more = _doubled_or_none(x)
    for turn in range(3):
        if more is not None:
            x = x + more * turn
        x = x * 1.5
    return x


def _printed(x: Tensor) -> Tensor:
    print("positive:", _is_positive(x), "by", _scale(x), [_count(x)])
    return x * (2 if _is_positive(x) else 3)


def _handled(x: Tensor) -> Tensor:
    try:
        if _doubled_or_none(x) is None:
            raise ValueError("none")
        return x + 1
    except ValueError:
        return x - 1


PROGRAMS: Sequence[Callable[[Tensor], Any]] = [
    _tested,
    _added_unless_none,
    _added_if_a_tensor,
    _handled,
    _product_with_a_number,
    _dtype,
    _reduction,
    _callable,
    _slice,
    _turns,
    _list_of_so_many,
    _both_conditions,
    _in_a_closure,
    _counted,
    _in_a_list_for_a_call,
    _by_keywords,
    _again_in_a_loop,
    _printed,
]


@pytest.mark.parametrize(("backend", "training"), [("eager", False), ("aot_eager", True)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_value_with_two_forms_is_read(
    program: Callable[[Tensor], Any], backend: str, training: bool
) -> None:
    assert_equivalent(lambda: program, _signs, backend=backend, training=training)


class _Attention(nn.Module):
    """A mask that is made in one function, and used by two, through a torch function."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(3, 3)
        nn.init.eye_(self.project.weight)

    def mask(self, x: Tensor) -> Tensor | None:
        if (x > 0).all():
            return None
        return x > 0

    def attend(self, x: Tensor, mask: Tensor | None = None, **more: Any) -> Tensor:
        heads = self.project(x)[None, None]
        return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)[0, 0]

    def forward(self, x: Tensor) -> dict[str, Any]:
        mask = self.mask(x)
        y = self.attend(x, mask=mask)
        options = {"mask": mask, "other": 1}
        return {"hidden": self.attend(y, **options), "mask": mask}


def _rows() -> list[Call]:
    rows = torch.arange(9.0).reshape(3, 3)
    return [call(rows + 1), call(rows - torch.tensor([0.0, 1.0, -1.0]))]


@pytest.mark.parametrize(("backend", "training"), [("eager", False), ("aot_eager", True)])
def test_an_optional_mask_goes_through_functions_of_torch(backend: str, training: bool) -> None:
    assert_equivalent(_Attention, _rows, backend=backend, training=training)


def test_the_report_says_where_the_code_goes_on_in_halves() -> None:
    found = compare(lambda: _added_if_a_tensor, _signs)
    assert found.report is not None
    kinds = {(site.kind, site.lowering) for site in found.report.sites}
    assert any(kind == "branch" and how.startswith("choice") for kind, how in kinds if how)
    assert any(kind == "split" and how.startswith("split") for kind, how in kinds if how)


def _in_a_generator(x: Tensor) -> Tensor:
    def results() -> Iterator[Tensor]:
        more = _doubled_or_none(x)
        if isinstance(more, Tensor):
            yield x + 1
        else:
            yield x - 1

    return next(results())


def _in_the_graph(make: Any, options: Any) -> Any:
    """Patch so that no graph is made for each truth of a condition."""
    program = bcmend.patch(make(), policy=bcmend.Policy(numbers="graph"))
    return program, torch.compile(program, **options)


def test_what_one_caller_cannot_read_another_still_can() -> None:
    """A half cannot yield what the other yields as well."""
    refused = compare(lambda: _in_a_generator, _signs, fullgraph=False, way=_in_the_graph)
    assert not refused.differences
    assert refused.report is not None
    assert {site.refusal for site in refused.report.sites} >= {"arms-differ"}
    assert_equivalent(lambda: _added_if_a_tensor, _signs)


def test_unpatching_takes_splits_away() -> None:
    before = _tested.__code__
    bcmend.patch(_tested)
    torch.compile(_tested, backend="eager", fullgraph=True)(torch.ones(3))
    assert _tested.__code__ is not before
    bcmend.unpatch(_tested)
    assert _tested.__code__ is before
