"""What becomes of a graph that fails while it runs.

Reads the complete graph of a frame that makes records; puts a function in the place of what the
back end has made of it. Where the call can be made again, what the graph has changed in place by
then is put back: the arguments that it changes are copied before it runs, if anything in it may
fail on the data. A frame at a boundary fails then, and the boundary makes the call again; another
one says what its graph is to give instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Any, Final

from torch._dynamo.eval_frame import skip_code
from torch._dynamo.output_graph import OutputGraph

from bcmend.runtime import undo
from bcmend.runtime.emission import emitted
from bcmend.runtime.operations import hazards_of
from bcmend.runtime.per_trace import kept

__all__ = ["can_be_put_back", "fail_again", "give_instead", "install"]

#: Says, once a graph is complete, what is to be called where it fails, while its exception is being
#: handled; ``None`` if nothing is.
Instead = Callable[[], Callable[[], Any] | None]


def give_instead(output: Any, instead: Instead) -> None:
    """Have a frame go on with what ``instead()()`` returns if its graph fails."""
    output._bcmend_instead = instead


def fail_again(output: Any) -> None:
    """Have a frame fail with its graph, but with what that has changed put back."""
    give_instead(output, lambda: _raise)


def _raise() -> None:
    raise


def can_be_put_back(output: Any) -> bool:
    """Whether a complete graph that fails leaves no trace but random numbers."""
    return kept(output, "can_be_put_back", lambda: _can_be_put_back(output))


def _can_be_put_back(output: Any) -> bool:
    if undo.obstacle(output):
        return False
    if not undo.changed_inputs(output):
        return True
    return hasattr(output, "_bcmend_instead") and _may_fail(output)


def _may_fail(output: Any) -> bool:
    """Whether a graph may fail on the data, so that copies are worth their while."""
    if output.shape_env.deferred_runtime_asserts:
        return True
    modules, mode = output.nn_modules, output.fake_mode
    return any(hazards_of([node], mode, modules).partial for node in output.graph.nodes)


def _guarded(output: Any, graph: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs ``graph`` and puts back what it has changed if it fails."""
    instead = getattr(output, "_bcmend_instead", None)
    give = instead() if instead is not None and can_be_put_back(output) else None
    if give is None:
        return graph
    changed = undo.changed_inputs(output)
    given = [node for node in output.graph.nodes if node.op == "placeholder"]
    places = [place for place, node in enumerate(given) if node in changed]
    if give is _raise and not places:
        return graph

    def attempt(*inputs: Any) -> Any:
        before = [(inputs[place], inputs[place].detach().clone()) for place in places]
        written = emitted()
        try:
            return graph(*inputs)
        except Exception:
            if emitted() != written:
                raise  # the call is not made again
            undo.put_back(tuple(before), draws=False)
            return give()

    attempt.__code__ = _unseen(attempt.__code__)
    return attempt


@cache
def _unseen(code: CodeType) -> CodeType:
    """Return code that Dynamo leaves alone, and that is no frame of bcmend in a traceback.

    What lies between the frames of bcmend is not shown to the user (``own_frames``), and this one
    lies behind the frame of the program.
    """
    found = code.replace(co_filename="<graph>")
    skip_code(found)
    return found


_INSTALL_GLOBAL: Final = OutputGraph.install_global_unsafe


def _install_global(output: OutputGraph, name: str, value: Any) -> None:
    """Install a global of a compiled frame, such as its graph."""
    _INSTALL_GLOBAL(output, name, _guarded(output, value) if name.startswith(_GRAPH) else value)


_GRAPH: Final = "__compiled_fn"


def install() -> None:
    """Have graphs put back what they have changed where they fail."""
    OutputGraph.install_global_unsafe = _install_global  # type: ignore[assignment, method-assign]


_raise.__code__ = _unseen(_raise.__code__)
