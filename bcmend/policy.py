"""What the user may choose.

Reads nothing but its own fields and the names of the standard library; produces yes-or-no answers
about modules and sites. Relies on `bcmend.errors` alone.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

from bcmend.errors import PolicyError

__all__ = ["DEFAULT", "BranchPolicy", "GuardPolicy", "OutputPolicy", "Policy"]

BranchPolicy: TypeAlias = Literal["auto", "where", "cond"]
OutputPolicy: TypeAlias = Literal["defer", "inline", "keep", "drop"]
GuardPolicy: TypeAlias = Literal["defer", "inline", "keep"]

_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "branch": ("auto", "where", "cond"),
    "output": ("defer", "inline", "keep", "drop"),
    "guards": ("defer", "inline", "keep"),
}

# Never touched, whatever the policy says: rewriting the rewriter would change what it measures.
_OWN_PACKAGE: Final = "bcmend"

# Dynamo has its own rules for torch, and the rest are no part of a model.
_LEFT_ALONE: Final = frozenset(
    {
        "_pytest",
        "bytecode",
        "functorch",
        "huggingface_hub",
        "networkx",
        "numpy",
        "packaging",
        "pytest",
        "rich",
        "sympy",
        "torch",
        "torchgen",
        "tqdm",
        "triton",
        "xdis",
    }
)

# Parts of packages that every forward names and hardly any runs: they read configurations, look for
# installed packages, or hold the losses of all models. What Dynamo meets there is mended then.
_SELDOM_RUN: Final = (
    "transformers.configuration_utils",
    "transformers.dynamic_module_utils",
    "transformers.generation.configuration_utils",
    "transformers.loss",
    "transformers.utils.hub",
    "transformers.utils.import_utils",
    "transformers.utils.versions",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What may be rewritten, and how. Immutable and hashable.

    Attributes:
        branch: how a tensor-valued branch is lowered. "auto" chooses per site; "where" prefers to
            run both arms and select; "cond" prefers `torch.cond`, which runs one arm.
        output: what happens to printing, logging and warning. "defer" emits the output when the
            outermost patched call ends; "inline" emits it inside the graph, at its moment; "keep"
            leaves the statement, and its graph break, as it is; "drop" discards the output while
            compiled, and with it whatever writing it would have raised.
        guards: what happens to a branch that only validates. "defer" raises its exception when the
            outermost patched call ends; "inline" raises it inside the graph, before anything
            behind it has had an effect; "keep" leaves the branch, and its graph break, as it is.
        include: dotted package names to rewrite although they are left alone by default, such as
            `("torch.nn",)`. It covers subpackages. bcmend itself cannot be included.
        exclude: dotted names never rewritten, such as `("mymodel.layers",)`. It covers
            subpackages and wins over `include`.
        off: site names, or `fnmatch` patterns of them, that are left as they are, such as
            `("mymodel.Net.forward:12:branch",)` or `("mymodel.*",)`. A report lists the names.

    Raises:
        PolicyError: a field was given a value that it does not take.
    """

    branch: BranchPolicy = "auto"
    output: OutputPolicy = "defer"
    guards: GuardPolicy = "defer"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    off: frozenset[str] | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field, allowed in _CHOICES.items():
            _require_choice(field, getattr(self, field), allowed)
        _require_strings("include", self.include, (tuple,))
        _require_strings("exclude", self.exclude, (tuple,))
        _require_strings("off", self.off, (tuple, frozenset))

    def touches(self, module_name: str) -> bool:
        """Whether code whose module is called `module_name` may be rewritten.

        Args:
            module_name: a dotted module name, as in a function's `__globals__["__name__"]`.
        """
        top_level = module_name.partition(".")[0]
        if top_level == _OWN_PACKAGE or _covers(self.exclude, module_name):
            return False
        if _covers(self.include, module_name):
            return True
        return top_level not in _LEFT_ALONE and top_level not in sys.stdlib_module_names

    def follows(self, module_name: str) -> bool:
        """Whether code of that module is mended because other code names it.

        Code that is touched and not followed is mended once Dynamo stops in it.

        Args:
            module_name: a dotted module name, as for `touches`.
        """
        seldom = _covers(_SELDOM_RUN, module_name) and not _covers(self.include, module_name)
        return self.touches(module_name) and not seldom

    def is_off(self, site_name: str) -> bool:
        """Whether the site is switched off, by its name or by a pattern that matches it."""
        return any(site_name == entry or fnmatchcase(site_name, entry) for entry in self.off)


def _covers(packages: tuple[str, ...], module_name: str) -> bool:
    return any(
        module_name == package or module_name.startswith(package + ".") for package in packages
    )


def _require_choice(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        choices = ", ".join(map(repr, allowed))
        raise PolicyError(f"Policy({field}=...) takes one of {choices}; got {value!r}")


def _require_strings(field: str, value: object, accepted: tuple[type, ...]) -> None:
    expected = " or a ".join(kind.__name__ for kind in accepted)
    if isinstance(value, str):
        raise PolicyError(
            f"Policy({field}=...) takes a {expected} of strings; got the string {value!r}: "
            f"write ({value!r},)"
        )
    if not isinstance(value, (tuple, frozenset)) or not isinstance(value, accepted):
        raise PolicyError(f"Policy({field}=...) takes a {expected} of strings; got {value!r}")
    for entry in value:
        if not isinstance(entry, str) or not entry:
            raise PolicyError(
                f"Policy({field}=...) takes a {expected} of non-empty strings; "
                f"got the entry {entry!r}"
            )


DEFAULT: Final = Policy()
"""The policy that is used where none is given."""
