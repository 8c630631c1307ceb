"""Lists to which the sides of a branch append unlike, in loops too long for a path a length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import Call, assert_equivalent, call, fresh


def _rows(*signs: int) -> Tensor:
    """Return two numbers a row, all positive in some rows and all negative in others."""
    size = torch.rand(len(signs), 2, generator=torch.Generator().manual_seed(len(signs))) + 0.1
    return size * torch.tensor(signs).unsqueeze(1)


ROWS = (
    (1, -1, 1, 1, -1, -1, 1, -1), (-1,) * 8, (1,) * 8, (-1,) * 7 + (1,), (1,) + (-1,) * 7,
)  # fmt: skip


def _added(x: Tensor) -> Any:
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row * 2)
    return sum(found) / len(found) if len(found) > 0 else x.new_zeros(2)


def _added_to_another(x: Tensor) -> Any:
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row)
    return sum(found, x[0] * 1), not found


def _stacked(x: Tensor) -> Any:
    found = []
    for row in x:
        if (row > 0).all():
            found.append(row.log().mean())
    if not found:
        return x.sum() * 0
    return torch.stack(found).mean()


def _beside_a_sure_one(x: Tensor) -> Any:
    found = [x[0]]
    for row in x[1:]:
        if row.max() > 0:
            found.append(row.exp())
    return torch.stack(found).sum(0), len(found), len(found) == 1


def _in_a_comprehension(x: Tensor) -> Any:
    found = [row.sum() for row in x if row.sum() > 0]
    return sum(found) if found else x.new_zeros(())


def _two_lists(x: Tensor) -> Any:
    above, below = [], []
    for row in x:
        if row.sum() > 0:
            above.append(row)
        else:
            below.append(row)
    one = torch.stack(above).mean(0) if above else torch.zeros(2)
    return one - (torch.stack(below).amax(0) if len(below) else torch.ones(2)), len(above)


def _nested(x: Tensor) -> Any:
    found = []
    for row in x:
        if row[0] > 0:
            if row[1] > 0.5:
                found.append(row)
    return sum(found) if found else None


def _in_a_dictionary(x: Tensor) -> Any:
    losses: dict[str, list[Tensor]] = {"some": [], "all": []}
    for row in x:
        if row[0] > 0:
            losses["some"].append(row.sum())
        losses["all"].append(row.mean())
    return {
        name: torch.stack(each).mean() if each else x[0, 0] * 1 for name, each in losses.items()
    }


def _rows_of_several(x: Tensor) -> Any:
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row.expand(3, 2))
    return torch.cat(found).sum(0) if found else x[0] * 1


def _may_be_empty(x: Tensor) -> Any:
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row)
    return torch.stack(found).max(0).values


def _checked(x: Tensor) -> Any:
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row)
    if len(found) < 2:
        raise ValueError(f"{len(found)} rows")
    return sum(found)


def _one_or_the_other(x: Tensor) -> Any:
    found = []
    for row, after in zip(x, x.roll(-1, 0), strict=True):
        if row[0] * after[0] > 0:
            found.append(row.sum())
        elif row[0] > 0:
            found.append(after.sum() * 3)
    return torch.stack(found).mean() if found else x.sum() * 0


def _more_on_one_side(x: Tensor) -> Any:
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row * 2)
            found.append(row - 1)
        else:
            found.append(row)
            if row[0] < -0.5:
                found.append(row.exp())
    return torch.stack(found).exp().amax(0), sum(found) / len(found)


def _parts_of_other_lengths(x: Tensor) -> Any:
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row.repeat(2))
            found.append(row)
        elif row[0] < -0.5:
            found.append(row[:1])
    return torch.cat(found).exp().mean() if found else x.sum() * 0


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    each.__name__: each
    for each in (
        _added, _added_to_another, _stacked, _beside_a_sure_one, _in_a_comprehension, _two_lists,
        _nested, _in_a_dictionary, _rows_of_several, _may_be_empty, _checked, _one_or_the_other,
        _more_on_one_side, _parts_of_other_lengths,
    )
}  # fmt: skip


def _calls() -> list[Call]:
    return [call(_rows(*signs)) for signs in ROWS]


@pytest.mark.parametrize("name", PROGRAMS)
def test_lists_of_some_items_are_joined(name: str) -> None:
    assert_equivalent(lambda: fresh(PROGRAMS[name]), _calls)


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param(name, backend, marks=pytest.mark.slow if backend == "inductor" else ())
        for name in (
            *("_stacked", "_two_lists", "_rows_of_several", "_nested", "_one_or_the_other"),
            *("_more_on_one_side", "_parts_of_other_lengths"),
        )
        for backend in ("eager", "aot_eager", "inductor")
    ],
)
def test_gradients_flow_to_the_items_that_are_there(name: str, backend: str) -> None:
    join = PROGRAMS[name]
    compiled = torch.compile(bcmend.patch(join), backend=backend, fullgraph=True)
    for signs in ROWS[:1] + ROWS[3:]:
        found = []
        for each in (join, compiled):
            x = _rows(*signs).requires_grad_()
            result = each(x)
            parts = result if isinstance(result, tuple) else (result,)
            totals = [part.sum() for part in parts if isinstance(part, Tensor)]
            if totals and sum(totals).requires_grad:
                sum(totals).backward()
            found.append(x.grad)
        torch.testing.assert_close(found[1], found[0])


class _Experts(nn.Module):
    """A mixture of experts, each of which gets the rows that are its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(4, 6, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        return self._chosen(x) + 1

    @torch.no_grad()
    def _chosen(self, x: Tensor) -> Tensor:
        weight, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        counts = chosen.new_zeros(len(x), 6).scatter_(1, chosen, 1).sum(0)
        order = chosen.view(-1).argsort(stable=True)
        rows = x[order // 2]
        outputs, start = [], 0
        for expert, count in zip(self.experts, counts.tolist(), strict=True):
            end = start + count
            if count == 0:
                continue
            outputs.append(expert(rows[start:end]))
            start = end
        joined = torch.cat(outputs, dim=0) if len(outputs) else rows.new_empty(0)
        result = torch.empty_like(joined)
        result[order] = joined
        return (result.view(*chosen.shape, -1) * weight.unsqueeze(-1)).sum(1)


def test_experts_without_rows_are_passed_by() -> None:
    def calls() -> list[Call]:
        return [call(torch.randn(5, 4)), call(torch.zeros(5, 4)), call(torch.ones(5, 4))]

    assert_equivalent(_Experts, calls, backend="inductor")


def _along(dim: int) -> Callable[[Tensor], Any]:
    def joined(x: Tensor) -> Any:
        columns, tables = [x[0].unsqueeze(0) * 2], [x[1].outer(x[0])]
        for row in x:
            if row.sum() > 0:
                columns.append(row.exp().unsqueeze(0))
                tables.append(row.outer(row))
        return torch.cat(columns, dim=dim), torch.stack(tables, dim), torch.cat(tables, dim=dim)

    return joined


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dim", [1, -1, -2, 0])
def test_along_other_dimensions(dim: int, training: bool) -> None:
    assert_equivalent(lambda: _along(dim), _calls, training=training)


def test_inductor_joins_along_other_dimensions() -> None:
    assert_equivalent(lambda: _along(1), _calls, training=True, backend="inductor")


class _Decoder(nn.Module):
    """A cell that is called until a gate closes, or often enough; what it gives is listed."""

    def __init__(self, *, warns: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.gate = nn.GRUCell(4, 4), nn.Linear(4, 1)
        self.warns = warns

    def forward(self, state: Tensor) -> Any:
        frame, frames, gates = torch.zeros_like(state), [], []
        while True:
            state = self.cell(frame, state)
            gate = self.gate(state)
            frames += [state * 2]
            gates.append(gate.squeeze(1))
            if torch.sigmoid(gate.detach()) < 0.4:
                break
            if len(frames) == 5:
                if self.warns:
                    print("not closed")
                break
            frame = state
        return torch.stack(frames, 1), torch.stack(gates, dim=1), state


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("warns", [False, True])
def test_lists_of_a_loop_that_is_left(warns: bool, training: bool) -> None:
    def states() -> list[Call]:
        torch.manual_seed(5)
        return [call(scale * torch.randn(1, 4)) for scale in (0.1, 1.0, 2.0, 3.0, -3.0)]

    turns = {_Decoder(warns=False)(*each.arguments)[1].shape[1] for each in states()}
    assert len(turns) > 2
    assert_equivalent(lambda: _Decoder(warns=warns), states, training=training)


def _first(x: Tensor) -> Any:
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row)
    return found[0] + len(found) if len(found) > 1 else x[0] * 1


def _handed_out(x: Tensor) -> Any:
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row)
    return found


@pytest.mark.parametrize("read", [_first, _handed_out])
def test_single_items_are_read_as_before(read: Callable[[Tensor], Any]) -> None:
    def make() -> Callable[[Tensor], Any]:
        def program(x: Tensor) -> Any:
            return read(x[:3])

        return program

    assert_equivalent(make, _calls)


# A list in which nothing is


def _rows_wanted(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    return torch.cat([row for row, count in zip(x, counts, strict=True) if count != 0])


def _repeated(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    parts: list[torch.Tensor] = []
    for row, count in zip(x, counts, strict=True):
        if count != 0:
            parts += [row.repeat(int(count), 1)]
    return torch.cat(parts, dim=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("program", [_rows_wanted, _repeated])
def test_nothing_is_joined_as_in_eager_execution(program: Any, backend: str) -> None:
    x = torch.arange(6.0).view(2, 3)
    counts = ([2, 1], [0, 0], [0, 1])
    assert_equivalent(
        lambda: program,
        lambda: [call(x, torch.tensor(each)) for each in counts],
        backend=backend,
        graphs=None,
        recompiles=None,
    )


class _BehindAReturn(nn.Module):
    """All that joins is in an arm, since the call may return before it."""

    def __init__(self, join: Callable[[list[Tensor]], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.join = join

    def forward(self, x: Tensor) -> Any:
        if x[0].sum() < -1:
            return x * self.weight
        kept = []
        for row in x[1:]:
            if (row > 0).all():
                kept.append(row * self.weight)
        return self.join(kept)


#: The call returns early, joins two rows, one, and fails, since it joins none.
_BEHIND_A_RETURN: Final = (
    [[-2.0, -2.0], [1.0, 1.0], [2.0, 2.0]], [[1.0, 1.0], [1.0, 2.0], [3.0, 4.0]],
    [[1.0, 1.0], [-1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0], [-1.0, 2.0], [3.0, -4.0]],
)  # fmt: skip


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(
    ("join", "backend"),
    [
        pytest.param(join, backend, marks=pytest.mark.slow if backend == "inductor" else ())
        for join in (torch.stack, torch.cat, lambda kept: torch.stack(kept, dim=1).sum(1))
        for backend in ("eager", "inductor")
    ],
)
def test_items_are_joined_behind_an_early_return(
    join: Any, backend: str, fullgraph: bool, training: bool
) -> None:
    assert_equivalent(
        lambda: _BehindAReturn(join),
        lambda: [call(torch.tensor(each)) for each in _BEHIND_A_RETURN],
        backend=backend,
        fullgraph=fullgraph,
        training=training,
        graphs=None,
        recompiles=None,
    )
