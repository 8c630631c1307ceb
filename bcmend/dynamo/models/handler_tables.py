"""Dynamo's tables of handlers and of models of operators, and torch's tables of kernels."""

from __future__ import annotations

from typing import Any, Final

from bcmend.dynamo import compat

FUNCTIONS: Final = "functions"
OPERATORS: Final = "operators"
KERNELS: Final = "kernels"


class _Kernels:
    """What operators with graphs as arguments run for a dispatch key or in a mode, as a table."""

    @staticmethod
    def _of(operator: Any, key: Any) -> Any:
        is_mode = isinstance(key, type)
        return operator.python_key_table if is_mode else operator.py_kernels

    def get(self, place: tuple[Any, Any], default: Any) -> Any:
        return self._of(*place).get(place[1], default)

    def __setitem__(self, place: tuple[Any, Any], kernel: Any) -> None:
        self._of(*place)[place[1]] = kernel
        place[0]._dispatch_cache.clear()

    def __delitem__(self, place: tuple[Any, Any]) -> None:
        del self._of(*place)[place[1]]
        place[0]._dispatch_cache.clear()


def table(name: str) -> Any:
    """Return a table: that of ``FUNCTIONS``, ``OPERATORS`` or ``KERNELS``."""
    if name == KERNELS:
        return _Kernels()
    if name == FUNCTIONS:
        found: dict[Any, Any] = compat.TorchInGraphFunctionVariable._get_handlers()
        return found
    models: dict[Any, Any] = compat.higher_order_ops._hop_name_to_variable_class
    return models
