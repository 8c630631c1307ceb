"""What is known of the variables where a statement stands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a statement stands.

    Attributes:
        kinds: of the variables that are bound.
        in_loop: whether it may break and continue.
        in_function: whether variables around a nested function are those of a function.
    """

    kinds: dict[str, str] = field(default_factory=dict)
    in_loop: bool = False
    in_function: bool = True

    @property
    def last(self) -> str:
        """The variable that was assigned last."""
        return next(reversed(self.kinds), "")

    def binding(self, name: str, kind: str) -> Scope:
        """Return the scope behind an assignment; what was assigned last comes last."""
        others = {each: of_kind for each, of_kind in self.kinds.items() if each != name}
        return replace(self, kinds={**others, name: kind})
