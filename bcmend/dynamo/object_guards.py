"""Guards that ask something of an object in Python, whatever torch guards its class by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import global_of

#: The objects of a trace, by source, of which something is required, and what.
_REQUIRED: Final[Slot[set[tuple[Any, str]]]] = Slot(set, rolls_back=True)


def require(
    output: compat.OutputGraph,
    source: compat.Source,
    value: object,
    holds: Callable[[Any], bool],
    text: str,
) -> None:
    """Have the frame traced again once ``holds`` is false of what is at ``source``.

    ``value`` is what is there now, ``text`` says of it what is asked, once in each trace.
    """
    required = _REQUIRED.of(output)
    if (source, text) in required:
        return
    required.add((source, text))
    # What torch guards a dictionary by takes no question about the object.
    question = global_of(output, holds) if isinstance(value, dict) else None

    def OBJECT_IN_PYTHON(builder: compat.GuardBuilderBase, guard: compat.Guard) -> None:
        assert isinstance(builder, compat.GuardBuilder)
        if question is not None:
            code = [f"{builder.arg_ref(question.name)}({builder.arg_ref(guard)})"]
            builder.add_python_lambda_leaf_guard_to_root(code, code)
        else:
            manager = builder.get_guard_manager(guard)
            manager.add_lambda_guard(holds, [f"{guard.name}: {text}"], guard.user_stack)

    compat.install_guard(compat.Guard(source, OBJECT_IN_PYTHON))
