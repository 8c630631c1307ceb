"""Find functions that compute arrays on the host and have no other observable effect.

Such a function names only what is in tables of what changes nothing but values of its own and the
state of random generators. So it can be called at another moment of the same run, with copies of
its arguments, and once more to see what it returns: it has no `while`, which might not terminate.
Relies on its arguments being tensors and constants.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable, Mapping
from operator import attrgetter
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from bcmend.bytecode.decode import PREFIXES, operation, unfused
from bcmend.bytecode.names_used import code_objects
from bcmend.bytecode.opcodes import (
    ATTRIBUTE_DELETES,
    ATTRIBUTE_LOADS,
    ATTRIBUTE_STORES,
    BLOCK_ENTRIES,
    CLASSES,
    GENERATOR_STARTS,
    GLOBAL_CHANGES,
    IMPORTS,
    JUMPS,
    LOOPS,
    NAME_CHANGES,
    NAME_LOADS,
    ROWS,
    SENDS,
    SUPER_LOADS,
    YIELDS,
)

_MODULES: Final = frozenset(["math", "numpy", "random"])

_BUILTINS: Final = frozenset(
    """
    abs all any bool dict divmod enumerate float int isinstance len list map max min range reversed
    round set slice sorted str sum tuple zip
    """.split()
)

#: Attributes and methods of arrays, tensors, lists and the modules above.
_ATTRIBUTES: Final = frozenset(
    """
    T abs all any append arange argmax argmin argsort array asarray astype bernoulli beta binomial
    bool bool_ broadcast_to ceil choice clip concatenate copy cos cpu cumsum detach dtype exp
    expand_dims exponential extend float32 float64 floor full full_like gamma gauss int32 int64 item
    linspace log logical_and logical_not logical_or max maximum mean min minimum multinomial ndarray
    ndim newaxis nonzero normal numel numpy ones ones_like permutation poisson put_along_axis rand
    randint randn random random_sample ravel repeat reshape round sample shape sin size sort sqrt
    squeeze stack std sum take take_along_axis tile tolist transpose unique uniform var where zeros
    zeros_like
    """.split()
)

#: Instructions that change what others hold, suspend the frame, import, or call what is not named.
_REFUSED: Final = (
    (GLOBAL_CHANGES | NAME_CHANGES | ATTRIBUTE_STORES | ATTRIBUTE_DELETES)
    | (BLOCK_ENTRIES | GENERATOR_STARTS | SENDS | YIELDS)
    | (IMPORTS | CLASSES | SUPER_LOADS)
)

Code = Callable[[FunctionType], CodeType]


def is_host_only(function: FunctionType, code_of: Code = attrgetter("__code__")) -> bool:
    """Return whether ``function`` computes with numpy, and changes nothing but random generators.

    ``code_of`` gives the code of a function as it was written.
    """
    search = _Search(code_of)
    return search.is_fine(function) and "numpy" in search.modules


class _Search:
    """A search through a function and those that it calls."""

    def __init__(self, code_of: Code) -> None:
        self.code_of = code_of
        self.known: set[CodeType] = set()
        self.modules: set[str] = set()

    def is_fine(self, function: FunctionType) -> bool:
        code = self.code_of(function)
        if code in self.known:
            return True
        self.known.add(code)
        if function.__closure__ or getattr(function, "__wrapped__", None) is not None:
            return False
        codes = list(code_objects(code))
        instructions = (each for code in codes for each in unfused(code))
        return all(map(_ends, codes)) and all(
            self._is_harmless(each, function.__globals__) for each in instructions
        )

    def _is_harmless(self, instruction: dis.Instruction, names: Mapping[str, Any]) -> bool:
        name = operation(instruction)
        if name in NAME_LOADS:
            return self._is_known(instruction.argval, names)
        if name in ATTRIBUTE_LOADS:
            return instruction.argval in _ATTRIBUTES
        return instruction.opcode in PREFIXES or (name in ROWS and name not in _REFUSED)

    def _is_known(self, name: str, names: Mapping[str, Any]) -> bool:
        """Return whether a global is in the tables, or is another such function."""
        if name not in names:
            value = getattr(builtins, name, None)
            return name in _BUILTINS or (isinstance(value, type) and issubclass(value, Exception))
        value = names[name]
        if isinstance(value, ModuleType):
            self.modules.add(value.__name__)
            return value.__name__ in _MODULES
        if isinstance(value, FunctionType):
            return self.is_fine(value)
        return isinstance(value, (bool, int, float, str, type(None)))


def _ends(code: CodeType) -> bool:
    """Return whether all loops iterate over something, as far as the bytecode shows."""
    instructions = list(dis.get_instructions(code))
    iterating = {each.offset for each in instructions if operation(each) in LOOPS}
    return all(
        each.argval in iterating
        for each in instructions
        if operation(each) in JUMPS and each.argval <= each.offset
    )
