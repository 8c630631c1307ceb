"""Builds, compiles and drops models round after round, and prints what is alive in between.

``python memory_rounds.py ROUNDS {stock,patched} {one,fresh} {eager,compiled}``: the model is of one
class, or of a class whose module is executed anew in each round; it is compiled, or only called. A
line of JSON is printed every ten rounds, but three times at least.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import types
import weakref
from collections import Counter, deque
from collections.abc import Mapping, MutableMapping, MutableSequence, MutableSet
from typing import Any

import torch

SOURCE = """
import logging
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.last = torch.nn.Linear(3, 3), None
        self.register_buffer("scale", torch.ones(1))
    def forward(self, x):
        x = self.linear(x)
        if x.sum() > 0:
            x = x * 2
            self.last = x
        else:
            x = x - 1
        if x.isnan().any():
            raise ValueError("nan", x)
        print("sum", x.sum(), file=SINK)
        logging.getLogger("rounds").warning("seen %s", x.amax(), stacklevel=2)
        for value in x.flatten().tolist()[:2]:
            if value > 100:
                break
        return None if x.amax() > 1e6 else x + int(x.abs().sum().item() > 100)
"""


class Sink:
    def write(self, text: str) -> None:
        pass


def module() -> types.ModuleType:
    made = types.ModuleType("made")
    made.SINK = Sink()  # type: ignore[attr-defined]
    exec(compile(SOURCE, "made.py", "exec"), vars(made))
    return made


class Alive:
    """What was made in the rounds, by kind, as long as it is alive."""

    def __init__(self) -> None:
        self.references: dict[str, list[weakref.ref[Any]]] = {}

    def watch(self, kind: str, thing: Any) -> None:
        self.references.setdefault(kind, []).append(weakref.ref(thing))

    def counts(self) -> dict[str, int]:
        return {
            kind: len({id(thing) for each in references if (thing := each()) is not None})
            for kind, references in self.references.items()
        }


def one_round(made: types.ModuleType, patched: bool, compiles: bool, alive: Alive) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)  # which arms are taken, and so what is compiled again, is up to weights
    model = made.Model()
    forward = type(model).forward
    alive.watch("models", model)
    alive.watch("functions", forward)
    alive.watch("codes", forward.__code__)
    if patched:
        import bcmend

        bcmend.patch(model, policy=bcmend.Policy(mend="on-demand" if compiles else "ahead"))
    compiled = torch.compile(model, backend="eager", fullgraph=patched) if compiles else model
    for fill in (1.0, -1.0):
        compiled(torch.full((2, 3), fill))
    try:
        compiled(torch.full((2, 3), float("nan")))
    except ValueError:
        pass
    if patched:
        alive.watch("mended codes", forward.__code__)
        assert forward.__code__ is not alive.references["codes"][-1]()
        bcmend.unpatch(model)
        assert forward.__code__ is alive.references["codes"][-1]()
    torch._dynamo.reset()


def tables() -> dict[str, int]:
    """Return how long each container is that a module of bcmend, or an object there, holds."""
    kinds = (MutableMapping, MutableSequence, MutableSet, deque, weakref.WeakSet)
    found = {}
    for name, each in sorted(sys.modules.items()):
        if name.partition(".")[0] != "bcmend":
            continue
        for key, value in vars(each).items():
            slots = [
                slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())
            ]
            own = getattr(value, "__dict__", {}) if type(value).__module__ in sys.modules else {}
            inner = {**dict(own), **{slot: getattr(value, slot, None) for slot in slots}}
            if not str(type(value).__module__).startswith("bcmend"):
                inner = {}
            for label, thing in (("", value), *inner.items()):
                if isinstance(thing, kinds) and not key.startswith("__"):
                    found[f"{name}.{key}.{label}"] = len(thing)
                    if isinstance(thing, Mapping):
                        sub = sum(len(v) for v in thing.values() if isinstance(v, kinds))
                        found[f"{name}.{key}.{label}[]"] = sub
    return found


def objects() -> dict[str, int]:
    """Return how many objects of each class of bcmend are alive, and how many of all others.

    What is stored on an object of torch's is one of the others, as its dictionary is: torch keeps
    environments of shapes and modes of fake tensors of earlier rounds, without bcmend as well.
    """
    return dict(Counter(_kind(type(each)) for each in gc.get_objects()))


def _kind(kind: type) -> str:
    is_own = str(kind.__module__).startswith("bcmend") and not issubclass(kind, dict)
    return kind.__qualname__ if is_own else "others"


def main() -> None:
    rounds, patched, fresh = int(sys.argv[1]), sys.argv[2] == "patched", sys.argv[3] == "fresh"
    logging.getLogger("rounds").addHandler(logging.NullHandler())
    logging.getLogger("rounds").propagate = False
    made, alive = module(), Alive()
    for index in range(1, rounds + 1):
        if fresh:
            made = module()
        one_round(made, patched, sys.argv[4] == "compiled", alive)
        if index % min(10, rounds // 3):
            continue
        for _ in range(4):  # what a finalizer lets go needs another round
            gc.collect()
        seen = {
            "tables": tables(),
            "names": sorted(each for each in vars(made) if "bcmend" in each),
        }
        made = made if not fresh else None  # type: ignore[assignment]
        gc.collect()
        seen |= {"alive": alive.counts(), "objects": objects()}
        print(json.dumps({"round": index, **seen}), flush=True)


if __name__ == "__main__":
    main()
