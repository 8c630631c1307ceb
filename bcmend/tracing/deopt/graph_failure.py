"""Graphs that fail while they run: what they have changed in place is restored.

A wrapper around the compiled graph copies the arguments that it changes, if an operation may fail
on the data. A frame at a boundary fails then, and the boundary makes the call again; another frame
says what is called instead of its graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import Any, Final

from bcmend import meta_keys
from bcmend.dynamo import compat, hooks, plain_python
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.tracing.deopt import block_settings, raised_errors, undo_log
from bcmend.tracing.effects.hazards import hazards_of

#: Returns what is called where a complete graph fails, while its exception is being handled.
Instead = Callable[[], Callable[[], Any] | None]

_INSTEAD: Final[Slot[Instead | None]] = Slot(lambda: None, rolls_back=False)
_CAN_BE_PUT_BACK: Final[Slot[bool | None]] = Slot(lambda: None, rolls_back=False)


def give_instead(output: compat.OutputGraph, instead: Instead) -> None:
    """Make a frame go on with what ``instead()()`` returns if its graph fails."""
    _INSTEAD.put(output, instead)


def fail_again(output: compat.OutputGraph) -> None:
    """Make a frame fail with its graph, with what the graph has changed restored."""
    give_instead(output, lambda: _raise)


def _raise() -> None:
    raise


#: Whether it matters if a call can be made again where a graph fails.
_IS_ASKED: Final = Slot(bool, rolls_back=False)


def say_of_graph(output: compat.OutputGraph) -> None:
    """Have ``is_repeatable`` answer for the graph being traced."""
    _IS_ASKED.put(output, True)


def is_repeatable(graph: Any, default: bool | None) -> bool:
    """Return whether a call of which ``graph`` has failed can be made again."""
    return bool(getattr(graph, meta_keys.REPEATABLE, default))


def can_be_put_back(output: compat.OutputGraph) -> bool:
    """Return whether a complete graph that fails leaves no effect but random draws."""
    found = _CAN_BE_PUT_BACK.of(output)
    if found is None:
        found = not undo_log.obstacle(output) and (
            not undo_log.changed_inputs(output)
            or (_INSTEAD.of(output) is not None and _may_fail(output))
        )
        _CAN_BE_PUT_BACK.put(output, found)
    return found


def _may_fail(output: compat.OutputGraph) -> bool:
    """Return whether a graph may fail on the data, which makes copies worthwhile."""
    if output.shape_env.deferred_runtime_asserts:
        return True
    modules, mode = output.nn_modules, output.fake_mode
    return bool(hazards_of(output.graph.nodes, mode, modules).partial)


def _guarded(output: compat.OutputGraph, graph: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs ``graph`` and restores what it has changed if it fails."""
    graph = _leaving_blocks(output, graph)
    instead = _INSTEAD.of(output)
    give = instead() if instead is not None and can_be_put_back(output) else None
    if give is None:
        return graph
    changed = undo_log.changed_inputs(output)
    given = [node for node in output.graph.nodes if node.op == "placeholder"]
    places = [place for place, node in enumerate(given) if node in changed]
    if give is _raise and not places:
        return graph

    def attempt(*inputs: Any) -> Any:
        before = [(inputs[place], inputs[place].detach().clone()) for place in places]
        depth = plain_python.depth_of_transforms()
        try:
            return graph(*inputs)
        except Exception as error:
            # An operation of the program fails on the data; the call in eager raises the same, at
            # its place. The compiled graph is given up for this call.
            if not raised_errors.is_of_the_graph_called_here(error):
                raise  # the call is not made again
            plain_python.leave_transforms(depth)  # of the graph, which did not come to that
            undo_log.put_back(tuple(before), draws=False)
            return give()

    attempt.__code__ = unseen(attempt.__code__)
    return attempt


def _leaving_blocks(output: compat.OutputGraph, graph: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs ``graph``, and leaves the blocks in it if it fails."""
    if not block_settings.are_set_in(output.graph):
        return graph

    def attempt(*inputs: Any) -> Any:
        before = block_settings.read()
        try:
            return graph(*inputs)
        except BaseException:
            block_settings.put_back(before)
            raise

    attempt.__code__ = unseen(attempt.__code__)
    return attempt


@cache
def unseen(code: CodeType) -> CodeType:
    """Return code that Dynamo does not compile and that does not count as a frame of bcmend.

    ``own_frames`` hides what lies between frames of bcmend; this one lies behind the program's.
    """
    found = code.replace(co_filename=raised_errors.WRAPPER)
    compat.skip_code(found)
    return found


@hooks.around(compat.OutputGraph, methods.INSTALL_GLOBAL, "graphs that fail", gate=None)
def _install_global(inner: Any, output: compat.OutputGraph, name: str, value: Any) -> None:
    if name.startswith("__compiled_fn"):
        value = _guarded(output, value)
        if isinstance(value, FunctionType):
            setattr(value, meta_keys.REPEATABLE, _IS_ASKED.of(output) and can_be_put_back(output))
    inner(output, name, value)


_raise.__code__ = unseen(_raise.__code__)
