"""What only one side of a choice makes, of a size that is not known when it is compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import bcmend


class Held:
    a: torch.Tensor | None = None
    b: torch.Tensor | None = None


def kept(p: torch.Tensor, x: torch.Tensor, held: Any) -> torch.Tensor:
    if p > 0:
        held.a = torch.linalg.svdvals(x)
    else:
        held.b = torch.cat([x, x * 2], 1).exp()
    return x + 1


def transposed(p: torch.Tensor, x: torch.Tensor, held: Any) -> torch.Tensor:
    if p > 0:
        held.a = torch.linalg.svdvals(x)
    else:
        held.b = (x.t() * 3).unsqueeze(0)
    return x.sum(0)


def of_a_number(p: torch.Tensor, x: torch.Tensor, held: Any) -> torch.Tensor:
    rows = x.shape[0]
    if p > 0:
        held.a = torch.linalg.svdvals(p.expand(2, 2)) * rows
    else:
        held.b = torch.full((rows, rows + 1), 2.0) * p
    return x * rows


CALLS = ((1, 3, 4), (-1, 3, 4), (-1, 5, 6), (1, 5, 6), (-1, 7, 2))


def _outcomes(called: Any) -> list[Any]:
    found = []
    for sign, rows, columns in CALLS:
        torch.manual_seed(rows)
        held = Held()
        result = called(torch.tensor(float(sign)), torch.randn(rows, columns), held)
        found.append((result, held.a, held.b))
    return found


@pytest.mark.parametrize("program", [kept, transposed, of_a_number])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_the_other_side_makes_zeros_of_that_size(
    program: Any, backend: str, capfd: pytest.CaptureFixture[str]
) -> None:
    torch._dynamo.reset()
    expected = _outcomes(program)
    compiled = torch.compile(bcmend.patch(program), backend=backend, fullgraph=True, dynamic=True)
    try:
        for one, other in zip(_outcomes(compiled), expected, strict=True):
            for found, given in zip(one, other, strict=True):
                assert (found is None) == (given is None)
                if given is not None:
                    torch.testing.assert_close(found, given)
        (site,) = bcmend.report(program).sites
        assert site.detail.startswith("linalg_svdvals") or "svd" in site.detail, site
    finally:
        bcmend.unpatch()
    assert "Traceback" not in capfd.readouterr().err
