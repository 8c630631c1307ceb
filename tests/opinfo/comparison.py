"""One entry in one program: what eager execution, stock and mended code do, call by call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch.utils import _pytree as pytree

import bcmend
from tests.equivalence import fresh
from tests.opinfo import programs
from tests.opinfo.entries import Entry, Sample
from tests.opinfo.programs import Constant, Program

#: Tensors of more elements are not made of constants.
_CONSTANTS_AT_MOST = 512


@dataclass(frozen=True)
class Case:
    """A program around an entry: backward or not, its tensors arguments or made of constants."""

    entry: Entry
    form: str
    backward: bool = False
    constants: bool = False

    def __str__(self) -> str:
        marks = [self.entry.name, self.form]
        marks += ["backward"] * self.backward + ["constants"] * self.constants
        return " ".join(marks)


@dataclass(frozen=True)
class Outcome:
    """What all calls gave (values, errors, arguments, gradients, states), and the graphs made."""

    calls: tuple[tuple[Any, ...], ...]
    graphs: int

    def differs(self, other: Outcome) -> str:
        """Return the first difference of two outcomes; empty if there is none."""
        for at, (one, two) in enumerate(zip(self.calls, other.calls, strict=True)):
            for name, first, second in zip(_SEEN, one, two, strict=True):
                equal = _are_alike if name == "gradients" else _are_equal
                if not equal(first, second):
                    return f"call {at}: {name}: {_short(first)} and {_short(second)}"
        return ""


_SEEN = ("result", "error", "arguments", "gradients", "generator")


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) < 120 else f"{text[:120]}..."


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.layout is not torch.strided or other.layout is not torch.strided:
            return one.layout is other.layout
        same_form = one.dtype == other.dtype and one.shape == other.shape
        return same_form and torch.equal(_bits(one), _bits(other))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    return type(one) is type(other) and bool(one == other)


def _are_alike(one: list[Any], other: list[Any]) -> bool:
    """Return whether gradients are equal as `docs/deviations.md` says.

    Zeros count as none, and the last bit is free.
    """
    return all(
        _are_equal(first, second)
        or _are_rounded(first, second)
        or (first is None and not second.count_nonzero())
        or (second is None and not first.count_nonzero())
        for first, second in zip(one, other, strict=True)
    )


def _are_rounded(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    error = 8 * torch.finfo(one.dtype).eps
    return torch.allclose(_bits(one), _bits(other), rtol=error, atol=error)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return torch.nan_to_num(plain, nan=1.25) if plain.is_floating_point() else plain


def copied_function(function: Any) -> Any:
    """Return a lambda of the database as one that is not in a file of torch."""
    is_of_tests = getattr(function, "__module__", "").startswith("torch.testing")
    if not isinstance(function, FunctionType) or not is_of_tests:
        return function
    code = function.__code__.replace(co_filename=__file__)
    found = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    found.__kwdefaults__ = function.__kwdefaults__
    return found


def program_of(case: Case) -> Program:
    make = fresh(programs.PROGRAMS[case.form])
    function = copied_function(case.entry.info.op)
    return fresh(programs.of_constants)(make, function) if case.constants else make(function)


def sample_of(case: Case) -> Sample | None:
    """Return the arguments; ``None`` where the case cannot be."""
    for sample in case.entry.samples(6):
        if not _can_be_copied(sample):
            continue
        if not case.constants:
            return sample
        if sample.tensors and all(map(_can_be_constant, sample.tensors)):
            return sample.mapped(lambda each: Constant(each.tolist(), each.dtype))
    return None


def _can_be_copied(sample: Sample) -> bool:
    leaves = pytree.tree_leaves((sample.arguments, sample.keywords))
    return not any(isinstance(each, torch.Generator) for each in leaves)


def _can_be_constant(tensor: torch.Tensor) -> bool:
    is_plain = tensor.layout is torch.strided and not tensor.is_quantized
    return is_plain and tensor.numel() <= _CONSTANTS_AT_MOST


def run(case: Case, sample: Sample, way: Callable[[Program], Callable[..., Any]]) -> list[Any]:
    """Make all calls of a case; ``way`` says of what."""
    called = way(program_of(case))
    torch.manual_seed(11)
    found = []
    for numbers in programs.GATES:
        gate = torch.tensor(numbers)
        given = sample.copied()
        if case.backward:
            for each in (gate, *given.tensors):
                if each.is_floating_point() or each.is_complex():
                    each.requires_grad_()
        found.append(_one_call(called, gate, given, backward=case.backward))
    return found


def _one_call(called: Any, gate: torch.Tensor, given: Sample, *, backward: bool) -> tuple[Any, ...]:
    result, error = None, ""
    try:
        result = called(gate, given.arguments, given.keywords)
        if backward and result.requires_grad:
            result.sum().backward()
    except Exception as raised:
        error = type(raised).__name__
    gradients = [each.grad for each in (gate, *given.tensors)] if backward else []
    before = [each.detach() for each in given.tensors]
    return result, error, before, gradients, torch.get_rng_state()


def outcome(case: Case, sample: Sample, how: str, backend: str) -> Outcome:
    """Return what ``how`` does: "eager", "stock" or "mended"."""
    graphs: list[int] = []

    def counting(module: Any, inputs: Any) -> Any:
        graphs.append(1)
        return torch._dynamo.lookup_backend(backend)(module, inputs)

    def way(program: Program) -> Callable[..., Any]:
        if how == "eager":
            return program
        if how == "mended":
            bcmend.patch(program)
        compiled: Callable[..., Any] = torch.compile(program, backend=counting)
        return compiled

    torch._dynamo.reset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Outcome(tuple(run(case, sample, way)), len(graphs))
    finally:
        if how == "mended":
            bcmend.unpatch()
        torch._dynamo.reset()


@dataclass(frozen=True)
class Verdict:
    """What became of a case: "equal", "as stock" (which differs as well), "wrong" or "left out"."""

    status: str
    detail: str = ""
    stock_graphs: int = 0
    graphs: int = 0


def judge(case: Case, backend: str = "eager") -> Verdict:
    """Compare a case in eager execution, mended and, where that differs, with stock."""
    sample = sample_of(case)
    if sample is None or (case.backward and not case.entry.info.supports_autograd):
        return Verdict("left out", "no sample")
    eager = outcome(case, sample, "eager", backend)
    if not any(error == "" for _, error, *_ in eager.calls):
        return Verdict("left out", "it fails in eager execution")
    mended = outcome(case, sample, "mended", backend)
    detail = eager.differs(mended)
    if not detail:
        return Verdict("equal", graphs=mended.graphs)
    if eager.differs(outcome(case, sample, "eager", backend)):
        return Verdict("left out", "it gives something else each time")
    stock = outcome(case, sample, "stock", backend)
    status = "as stock" if eager.differs(stock) else "wrong"
    return Verdict(status, f"{detail} [{sample}]", stock.graphs, mended.graphs)


def cases(entries: Sequence[Entry]) -> list[Case]:
    """Return all cases, form by form, so that the first ones already meet every entry."""
    kinds = [(form, False, False) for form in programs.PROGRAMS]
    kinds += [(form, False, True) for form in ("condition", "number")]
    kinds += [(form, True, False) for form in programs.PROGRAMS]
    return [Case(entry, *kind) for kind in kinds for entry in entries]
