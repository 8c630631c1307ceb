"""Models that need no mending are captured as on torch alone: graphs, guards, Python calls."""

from __future__ import annotations

import re
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import pytest
import torch
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

import bcmend
from bcmend.patching import waiting
from bench.python_calls import LARGEST_RATIO, Calls, compared, twice
from corpus.models.case import ModelCase
from corpus.unharmed.registry import CASES

FAST = ("PatchTSMixerModel",)
OTHERS = (
    *("DistilBertModel", "GPTBigCodeForCausalLM"),
    *("BertModel", "LlamaForCausalLM", "GPT2LMHeadModel", "ViTForImageClassification"),
    *("CLIPModel", "T5EncoderModel", "SwinModel", "ASTModel", "Qwen3ForCausalLM", "LxmertModel"),
)
SAMPLE = [
    *(each for each in CASES if each.name in FAST),
    *(pytest.param(each, marks=pytest.mark.slow) for each in CASES if each.name in OTHERS),
]


#: Numbers of names that torch makes, and identities of objects.
_NUMBERED = re.compile(r"(?<=___)\d+|_\d{9,}_c\d+|\b\d{9,}\b|0x[0-9a-f]+")


class Captured(NamedTuple):
    """What Dynamo made of two calls: the code of each graph, and the guards of each entry."""

    graphs: list[str]
    guards: list[list[str]]


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _captured(case: ModelCase, *, patched: bool) -> Captured:
    torch._dynamo.reset()
    model, inputs = case.build()
    graphs: list[str] = []

    def backend(module: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(module.code)
        return module.forward

    if patched:
        bcmend.patch(model)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        compiled(**inputs)
        compiled(**twice(inputs))
    if patched:
        assert waiting._WAITING, "it has not stopped"
    code = _code(model.forward)
    guards = [_lines(str(each.guard_manager)) for each in _debug_get_cache_entry_list(code)]
    bcmend.unpatch()
    return Captured(graphs, guards)


def _code(forward: Any) -> CodeType:
    while not isinstance(forward, FunctionType) or hasattr(forward, "__wrapped__"):
        is_method = isinstance(forward, MethodType)
        forward = forward.__func__ if is_method else forward.__wrapped__
    return forward.__code__


def _lines(text: str) -> list[str]:
    """Return the guards of a manager, without what is numbered anew in each trace or process."""
    lines = (each.strip(" |+-").split("#")[0].strip() for each in text.splitlines())
    return [_NUMBERED.sub("N", line) for line in lines]


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_graphs_and_guards_are_those_of_torch(case: ModelCase) -> None:
    stock, mended = (_captured(case, patched=each) for each in (False, True))
    assert len(stock.graphs) == 2
    assert mended.graphs == stock.graphs
    assert mended.guards == stock.guards


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_calls_of_python_are_those_of_torch(case: ModelCase) -> None:
    stock, demand, _ = compared(case)
    _assert_close(stock, demand)


def _assert_close(stock: Calls, demand: Calls) -> None:
    assert demand.patch > 0
    for (step, one), (_, other) in zip(stock.steps(), demand.steps(), strict=True):
        assert other <= LARGEST_RATIO * one, step


def test_a_call_more_is_noticed() -> None:
    with pytest.raises(AssertionError, match="later call"):
        _assert_close(Calls(0, 1000, 100, 1000), Calls(1, 1000, 102, 1000))
