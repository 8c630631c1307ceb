"""The table of effects against what operators really do, measured on torch's own samples."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from bcmend.dynamo import compat
from bcmend.knowledge import effects
from bcmend.tracing.effects.hazards import _hazards_of_call
from bcmend.tracing.effects.operator_runs import OperatorCall
from tests.opinfo.entries import Entry, Sample, entries


def _operators() -> Iterator[Any]:
    """Yield every overload of every operator that is registered, but bcmend's own."""
    for name in sorted({each.name for each in torch._C._jit_get_all_schemas()}):
        namespace, _, last = name.partition("::")
        if namespace.startswith("bcmend"):
            continue
        packet = getattr(getattr(torch.ops, namespace), last)
        yield from (getattr(packet, each) for each in getattr(packet, "overloads", list)())


def _is_judged(facts: effects.EffectFacts) -> bool:
    """Return whether an operator that works point by point is total, or it is known why not."""
    return facts.is_total or facts.is_random or facts.reads_on_host


#: How a schema marks tensors that are changed.
_WRITTEN = ["Tensor(a!)", "Tensor(b!)", "Tensor(a!)?", "Tensor[](a!) self", "Tensor(a!)[]"]


def test_every_operator_is_classified_as_its_schema_and_tags_say() -> None:
    found = list(_operators())
    assert len(found) > 4000
    wrong = []
    for each in found:
        facts, given = (
            effects.facts_of_target(each),
            str(each._schema).partition("(")[2].rpartition(") ->")[0],
        )
        seeded = torch.Tag.nondeterministic_seeded in each.tags
        right = (
            facts is not effects.UNKNOWN
            and facts.is_random == (seeded or "Generator" in given)
            and any(text in given for text in _WRITTEN) <= facts.writes <= each._schema.is_mutable
            and (torch.Tag.pointwise not in each.tags or _is_judged(facts))
        )
        if not right:
            wrong.append((str(each), facts))
    assert not wrong


def test_only_operators_of_torch_are_taken_at_their_word() -> None:
    trusted = {
        each.namespace
        for each in _operators()
        if not effects.facts_of_target(each).has_hidden_state
    }
    assert {"aten", "prims", "prim"} <= trusted
    assert trusted.isdisjoint({"profiler", "_test", "debug_mode_ops"})

    @torch.library.custom_op("bcmend_test_facts::own", mutates_args=())
    def own(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    for target in (torch.ops.bcmend_test_facts.own, torch.ops.bcmend_test_facts.own.default):
        facts = effects.facts_of_target(target)
        assert facts.has_hidden_state and not facts.is_total and not facts.is_random


class _Measuring(TorchDispatchMode):
    """Notes each operator that does what the table does not say, and each that draws."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.drew = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        facts = effects.facts_of_target(func)
        tensors = [each for each in pytree.tree_leaves((args, kwargs)) if _is_plain(each)]
        versions, state = [each._version for each in tensors], torch.get_rng_state()
        result = func(*args, **kwargs)
        if not torch.equal(state, torch.get_rng_state()):
            self.drew = True
            if not facts.draws(args, kwargs):
                self.wrong.append(f"{func} draws")
        written = {id(each) for each in OperatorCall(func, result, args, kwargs).written()}
        for each, version in zip(tensors, versions, strict=True):
            if each._version != version and id(each) not in written:
                self.wrong.append(f"{func} writes")
        return result


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_inference()


def _samples(entry: Entry, at_most: int) -> list[Sample]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return entry.samples(at_most)


def _called(way: Any, sample: Sample) -> bool:
    """Call a function; return whether it could."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            way(*sample.arguments, **sample.keywords)
    except Exception:
        return False
    return True


def _measure(entry: Entry, ways: Sequence[str], at_most: int) -> tuple[list[str], _Measuring]:
    """Return what is wrong of an entry; raise ``LookupError`` if nothing of it can be run."""
    measuring, samples, has_run = _Measuring(), _samples(entry, at_most), False
    wrong = measuring.wrong
    for name, way in entry.ways.items():
        facts = effects.facts_of_target(way)
        for sample in samples if name in ways else ():
            given = sample.copied()
            call, before = (given.arguments, given.keywords), torch.get_rng_state()
            versions = [each._version for each in given.tensors]
            with measuring:
                has_run = _called(way, given) or has_run
            if not torch.equal(before, torch.get_rng_state()):
                if not facts.draws(*call):
                    wrong.append(f"{name}: draws")
            elif facts.draws(*call) and not facts.is_composite and facts is not effects.UNKNOWN:
                wrong.append(f"{name}: draws nothing")
            if [each._version for each in given.tensors] != versions:
                if not (facts.changes(*call) or facts.statistics):
                    wrong.append(f"{name}: writes")
    if not has_run:
        raise LookupError(entry.name)
    return [f"{entry.name}: {each}" for each in wrong], measuring


def _require_known(chosen: Sequence[Entry], ways: Sequence[str], at_most: int) -> None:
    found, drawing, not_run = list[str](), list[str](), list[str]()
    for entry in chosen:
        try:
            wrong, measured = _measure(entry, ways, at_most)
        except LookupError:
            not_run.append(entry.name)
            continue
        found += wrong
        drawing += [entry.name] * bool(measured.drew)
    assert not found
    assert len(drawing) > 20, drawing
    assert len(not_run) < 20, not_run


def test_what_draws_and_what_writes_is_known() -> None:
    """By the function itself, and by the operators behind it; measured, not read."""
    part = [each for at, each in enumerate(entries()) if at % 16 == 0 or _draws(each)]
    _require_known(part, ["function"], 2)


def _draws(entry: Entry) -> bool:
    return effects.facts_of_target(entry.info.op).is_random


@pytest.mark.slow
def test_what_draws_and_what_writes_is_known_of_every_way_and_sample() -> None:
    _require_known(list(entries()), ["function", "method", "in place"], 6)


#: Entries by LAPACK, beside those of ``linalg``: with NaN it takes the process with it.
_BY_LAPACK = frozenset(
    """
    cholesky cholesky_inverse cholesky_solve geqrf logdet lu lu_solve lu_unpack orgqr ormqr
    pca_lowrank pinverse qr svd svd_lowrank triangular_solve norm.nuc matrix_exp lobpcg
    """.split()
)


def _other_values(entry: Entry, tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.dtype == torch.bool:
        return (True, False)
    if tensor.is_floating_point() or tensor.is_complex():
        by_lapack = "linalg" in entry.name or entry.name in _BY_LAPACK
        return (-1.5, 0.0) if by_lapack else (float("nan"), -1.5, 0.0, float("inf"))
    return (1000, -1000, 0)


class _Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.partial: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        call = OperatorCall(func, result, args, kwargs or {})
        self.partial += filter(None, [_hazards_of_call(call, frozenset()).partial])
        return result


def _seems_total(way: Any, sample: Sample) -> bool:
    """Return whether a call goes through on fake tensors, and nothing in it is known to fail."""
    mode, log = compat.FakeTensorMode(allow_non_fake_inputs=True), _Log()
    with mode:
        fake = sample.mapped(lambda each: mode.from_tensor(each))
        with log:
            return (
                _called(way, fake)
                and not log.partial
                and not effects.facts_of_target(way).is_partial
            )


def _failing(entry: Entry, at_most: int) -> Iterator[str]:
    """Yield what fails on other values of one argument without being known to."""
    way = entry.info.op
    for sample in _samples(entry, at_most):
        if not _called(way, sample.copied()):
            continue
        for at, tensor in enumerate(sample.tensors):
            if tensor.layout is not torch.strided or not tensor.numel():
                continue
            for value in _other_values(entry, tensor):
                given = sample.copied()
                given.tensors[at].fill_(value)
                if not _called(way, given) and _seems_total(way, sample.copied()):
                    yield f"{entry.name} fails on {value} in {sample}"


def test_what_fails_on_values_is_known_to() -> None:
    part = [each for at, each in enumerate(entries()) if at % 12 == 0 or each.name in _FAIL]
    found = [each for entry in part for each in _failing(entry, 1)]
    assert not found


#: What fails on some values: the test would see nothing otherwise.
_FAIL = frozenset(
    ["bernoulli", "multinomial", "linalg.cholesky", "gather", "nn.functional.one_hot"]
)


@pytest.mark.slow
def test_what_fails_on_values_is_known_to_of_every_function() -> None:
    assert not [each for entry in entries() for each in _failing(entry, 6)]
