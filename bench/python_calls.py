"""Counts the Python calls of patching and compiling, which do not vary from run to run.

`python -m bench.python_calls [NAME ...]` prints a table over models that stock `torch.compile`
captures whole, a curve over the layers of one that drops layers in training, where stock breaks its
graph at each, branches between layers beside `torch.cond` by hand, and what is imported.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from types import FrameType
from typing import Final

import torch
from rich.console import Console
from rich.table import Table

import bcmend
from bench.generated import module_of
from corpus.models.case import Inputs, ModelCase
from corpus.unharmed.registry import CASES

#: What is counted where no model is named.
DEFAULT: Final = ("BertModel", "GPT2LMHeadModel", "LlamaForCausalLM", "ViTForImageClassification")

#: The numbers of layers over which the curve is taken.
LAYERS: Final = (4, 8, 16, 32)

#: How many calls a patched model that needs no mending may take, for one of torch's.
LARGEST_RATIO: Final = 1.01


def python_calls(call: Callable[[], object]) -> int:
    """Return how many Python functions a call runs, generators counted at each resumption."""
    calls = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


@dataclass(frozen=True, slots=True)
class Calls:
    """The Python calls of one model.

    Attributes:
        patch: those of `bcmend.patch`; 0 where it is not patched.
        first: those of the first compiled call.
        later: those of the second call with the same inputs.
        recompile: those of a call with another batch size, which compiles anew.
    """

    patch: int
    first: int
    later: int
    recompile: int

    def steps(self) -> Iterator[tuple[str, int]]:
        """Yield what a user waits for, and its calls."""
        yield "patch and first call", self.patch + self.first
        yield "later call", self.later
        yield "recompile", self.recompile


def patch_calls(model: torch.nn.Module, policy: bcmend.Policy | None) -> int:
    """Patch a model and count the calls of that; `policy` is `None` for the model as it is."""
    if policy is None:
        return 0
    return python_calls(lambda: bcmend.patch(model, policy=policy))


def counted(case: ModelCase, policy: bcmend.Policy | None) -> Calls:
    """Count the calls of a model, built afresh, with a back end that only runs the graph.

    `policy` is `None` for the model as it is.
    """
    torch._dynamo.reset()
    model, inputs = case.build()
    model.eval()
    patch = patch_calls(model, policy)
    compiled = torch.compile(model, backend="eager")
    try:
        with torch.no_grad():
            first, later, recompile = (
                python_calls(lambda given=given: compiled(**given))  # type: ignore[misc]
                for given in (inputs, inputs, twice(inputs))
            )
    finally:
        bcmend.unpatch()
    return Calls(patch, first, later, recompile)


def twice(inputs: Inputs) -> Inputs:
    """Return inputs with each tensor twice in its first dimension: a batch of another size."""
    return {
        name: torch.cat([each, each]) if isinstance(each, torch.Tensor) and each.dim() else each
        for name, each in inputs.items()
    }


def compared(case: ModelCase) -> tuple[Calls, Calls, Calls]:
    """Return the calls of a model as it is, mended on demand, and mended ahead.

    The caches that all three fill are filled first.
    """
    counted(case, bcmend.Policy())
    policies = (None, bcmend.Policy(), bcmend.Policy(mend="ahead"))
    one, two, three = (counted(case, policy) for policy in policies)
    return one, two, three


def table(names: list[str]) -> Table:
    """Return one row for each model and step."""
    shown = Table(title=f"Python calls, torch {torch.__version__}")
    for heading in ("model", "step", "stock", "on demand", "", "ahead", ""):
        shown.add_column(heading, justify="left" if heading in ("model", "step") else "right")
    for case in (each for each in CASES if each.name in names):
        rows = zip(*(each.steps() for each in compared(case)), strict=True)
        for (step, stock), (_, demand), (_, ahead) in rows:
            ratios = [f"{count / stock:.3f}" for count in (demand, ahead)]
            shown.add_row(
                case.name, step, f"{stock:,}", f"{demand:,}", ratios[0], f"{ahead:,}", ratios[1]
            )
    return shown


class Dropping(torch.nn.Module):
    """Layers each of which a step of training may leave out, as decoders of speech and text have.

    Takes and returns a tensor of shape (batch, WIDTH).
    """

    WIDTH = 8

    def __init__(self, layers: int) -> None:
        super().__init__()
        made = (torch.nn.Linear(self.WIDTH, self.WIDTH) for _ in range(layers))
        self.layers = torch.nn.ModuleList(made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if self.training and torch.rand([]) < 0.5:
                continue
            x = x + layer(x).relu()
        return x


def first_step(layers: int, policy: bcmend.Policy | None) -> int:
    """Count the calls of patching `Dropping` and of its first step in training."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    # Layers may all be left out.
    model, x = Dropping(layers), torch.ones(2, Dropping.WIDTH, requires_grad=True)
    patch = patch_calls(model, policy)
    compiled = torch.compile(model, backend="eager")
    try:
        return patch + python_calls(lambda: compiled(x).sum().backward())
    finally:
        bcmend.unpatch()


def curve() -> Table:
    """Return one row for each number of layers.

    Stock compiles none of them: a graph break in a loop has it skip the frame.
    """
    shown = Table(title="Patch and first step in training, layers that may be left out")
    for heading in ("layers", "stock", "on demand", "for each layer", "ahead", "for each layer"):
        shown.add_column(heading, justify="right")
    policies = (None, bcmend.Policy(), bcmend.Policy(mend="ahead"))
    for policy in policies:
        first_step(2, policy)  # fills the caches
    with torch._dynamo.config.patch(recompile_limit=4 * max(LAYERS)):
        for layers in LAYERS:
            stock, demand, ahead = (first_step(layers, policy) for policy in policies)
            shown.add_row(
                str(layers),
                f"{stock:,}",
                f"{demand:,}",
                f"{demand / layers:,.0f}",
                f"{ahead:,}",
                f"{ahead / layers:,.0f}",
            )
    return shown


#: Layers that choose between two networks: as people write them, and with `torch.cond` by hand.
#: Compiled anew for each model, so that nothing is known of its code.
_CHOOSING: Final = """
class Choosing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = network(), network()

    def forward(self, x):
        {choice}
"""
_BY_BRANCH: Final = "return x + (self.one(x) if x.sum() > 0 else self.other(x))"
_BY_HAND: Final = """return torch.cond(
            x.sum() > 0, lambda y: y + self.one(y), lambda y: y + self.other(y), (x,)
        )"""
_serial_numbers = count()


def _network() -> torch.nn.Module:
    width = Dropping.WIDTH
    first, last = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
    return torch.nn.Sequential(first, torch.nn.GELU(), last, torch.nn.LayerNorm(width))


def _choosing(layers: int, choice: str) -> torch.nn.Module:
    """Return layers that choose, their class made for them."""
    name = f"bench_choosing_{next(_serial_numbers)}"
    module = module_of(name, _CHOOSING.format(choice=choice), network=_network)
    torch.manual_seed(0)
    return torch.nn.Sequential(*(module.Choosing() for _ in range(layers)))


def first_choice(layers: int, choice: str, policy: bcmend.Policy | None, *, training: bool) -> int:
    """Count the calls of patching, if there is a policy, and of a first call or step."""
    torch._dynamo.reset()
    model = _choosing(layers, choice).train(training)
    x = torch.linspace(-1, 2, 2 * Dropping.WIDTH).reshape(2, Dropping.WIDTH)
    patch = patch_calls(model, policy)
    compiled = torch.compile(model, backend="aot_eager")

    def step() -> None:
        with torch.set_grad_enabled(training):
            result = compiled(x).square().sum()
        if training:
            result.backward()

    try:
        return patch + python_calls(step)
    finally:
        bcmend.unpatch()


def choices() -> Table:
    """Return one row for each number of layers, in evaluation and in training.

    Stock leaves the loop over the layers to Python and compiles the sides that it comes to. One
    graph holds both sides of each, however it is written.
    """
    shown = Table(
        title="Patch and first call, layers that choose between two networks, AOTAutograd"
    )
    for heading in ("layers", "mode", "stock", "torch.cond by hand", "mended", "mended / by hand"):
        shown.add_column(heading, justify="right")
    ways = ((_BY_BRANCH, None), (_BY_HAND, None), (_BY_BRANCH, bcmend.Policy()))
    for training in (False, True):
        for way in ways:
            first_choice(1, *way, training=training)  # fills the caches
        for layers in LAYERS[:2]:
            stock, by_hand, mended = (first_choice(layers, *way, training=training) for way in ways)
            mode = "training" if training else "evaluation"
            counts = (f"{each:,}" for each in (stock, by_hand, mended))
            shown.add_row(str(layers), mode, *counts, f"{mended / by_hand:.2f}")
    return shown


#: Prints which modules of bcmend a fresh process imports until a model is patched and compiled.
_IMPORTING: Final = """
import json, sys, torch, bcmend
class Model(torch.nn.Module):
    def forward(self, x):
        return (x * 2 if {condition} else x).sin()
model = bcmend.patch(Model())
torch.compile(model, backend="eager")(torch.ones(2))
print(json.dumps([name for name in sys.modules if name.partition(".")[0] == "bcmend"]))
"""


def imported(condition: str) -> list[str]:
    """Return the modules of bcmend that a model with one branch on `condition` has imported."""
    command = [sys.executable, "-c", _IMPORTING.format(condition=condition)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    modules: list[str] = json.loads(found.stdout)
    return modules


def main(names: list[str]) -> None:
    """Print the tables."""
    console = Console(width=120)
    console.print(table(names or list(DEFAULT)))
    console.print(curve())
    console.print(choices())
    whole, broken = imported("x.dim() == 1"), imported("x.sum() > 0")
    console.print(
        f"Modules of bcmend that are imported: {len(whole)} where nothing is to be mended, "
        f"{len(broken)} where something is."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
