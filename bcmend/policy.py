"""What the user may choose."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, get_args

from bcmend.errors import PolicyError

BranchPolicy: TypeAlias = Literal["auto", "where", "cond"]
OutputPolicy: TypeAlias = Literal["defer", "keep", "drop"]
GuardPolicy: TypeAlias = Literal["defer", "keep"]
UntakenPolicy: TypeAlias = Literal["none", "zeros"]
MendPolicy: TypeAlias = Literal["ahead", "on-demand"]
NumbersPolicy: TypeAlias = Literal["ahead", "graph"]
CompilingPolicy: TypeAlias = Literal["auto", "eager", "compiled"]
VerifyPolicy: TypeAlias = Literal["never", "first", "sides"]
OneSidedPolicy: TypeAlias = Literal["break", "exit"]

_CHOICES: Final = {
    "branch": BranchPolicy,
    "output": OutputPolicy,
    "guards": GuardPolicy,
    "untaken_gradients": UntakenPolicy,
    "mend": MendPolicy,
    "numbers": NumbersPolicy,
    "compiling": CompilingPolicy,
    "verify": VerifyPolicy,
    "one_sided": OneSidedPolicy,
}

# Never touched, whatever the policy says: rewriting the rewriter would change what it measures.
_OWN_PACKAGE: Final = "bcmend"

#: Packages that write: calls of theirs are deferred as a whole.
WRITING: Final = ("loguru", "rich", "structlog", "tqdm")

# Tools that are no part of a model, whichever model it is.
_NOT_REWRITTEN: Final = frozenset(
    {
        # Dynamo has rules of its own for what they do, and the compiler runs them while it traces.
        *("torch", "functorch", "torchgen", "triton", "numpy", "sympy", "networkx"),
        *WRITING,
        # They fetch files and compare versions.
        *("huggingface_hub", "packaging"),
        # They run programs or take them apart.
        *("pytest", "_pytest", "bytecode", "xdis"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What may be rewritten, and how. Immutable and hashable.

    Attributes:
        branch: how a tensor-valued branch is lowered. "auto" chooses per site; "where" prefers to
            run both arms and select; "cond" prefers `torch.cond`, which runs one arm.
        output: what happens to printing, logging and warning. "defer" emits the output when the
            outermost patched call ends; "keep" leaves the statement, and its graph break, as it is;
            "drop" discards the output while compiled, and with it whatever writing it would have
            raised.
        guards: what happens to a branch that only validates. "defer" raises its exception when the
            outermost patched call ends; "keep" leaves the branch, and its graph break, as it is.
        untaken_gradients: the gradient of a tensor that only the side not taken uses. "none" is
            `None`, as in eager execution; for that the backward pass reads the conditions of the
            branches. "zeros" reads nothing, and gives zeros.
        mend: when code is looked at and rewritten. "on-demand" waits until Dynamo stops in what the
            object reaches: what it captures without that is as on torch alone. "ahead" does it when
            the object is patched, for those who want to read the code, or pay at once.
        numbers: where numbers in tensors are read that say how many turns a loop makes, or what
            sizes tensors get. "ahead" takes them in the graph where that can be done, and computes
            the others in front of it, from the arguments of the call; each layout that they
            describe may be a graph of its own, as with other sizes. "graph" never does, and leaves
            such a read, and its graph break, as it is.
        compiling: what code is told that asks whether it is being compiled
            (`torch.compiler.is_compiling`). "auto" says yes, as torch does, and no where what the
            code does then cannot be captured whole; "eager" says no, so that the code does what it
            does in eager execution; "compiled" says yes.
        verify: whether mended code is compared with eager execution while the program runs. With
            "first" a call for which a variant is compiled is made in copies of the process before,
            eagerly and mended. Where they differ, the site at fault is withdrawn, a warning names
            it, and the call gives what eager execution gives. The copies write files and the like.
            With "sides" that is done for each call in which a mended branch takes a side that no
            call has taken before, and the code is compiled anew once all sides were taken.
        one_sided: what becomes of a branch of which a graph can have one side only, where one graph
            is asked for (`fullgraph=True`). "break" leaves it, and torch fails there. With "exit"
            the graph has one side, and a call that takes the other throws away what the graph has
            computed and is made in plain Python. Where most of the first calls do, the graph is
            compiled once more, with the other side. Without `fullgraph=True` both sides are
            compiled, in several graphs.
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
    untaken_gradients: UntakenPolicy = "none"
    mend: MendPolicy = "on-demand"
    numbers: NumbersPolicy = "ahead"
    compiling: CompilingPolicy = "auto"
    verify: VerifyPolicy = "never"
    one_sided: OneSidedPolicy = "break"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    off: frozenset[str] | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field, choices in _CHOICES.items():
            _require_choice(field, getattr(self, field), get_args(choices))
        _require_strings("include", self.include, (tuple,))
        _require_strings("exclude", self.exclude, (tuple,))
        _require_strings("off", self.off, (tuple, frozenset))

    def touches(self, module_name: str) -> bool:
        """Return whether code of the module called `module_name`, dotted, may be rewritten."""
        top_level = module_name.partition(".")[0]
        if top_level == _OWN_PACKAGE or _covers(self.exclude, module_name):
            return False
        if _covers(self.include, module_name):
            return True
        return top_level not in _NOT_REWRITTEN and top_level not in sys.stdlib_module_names

    def is_off(self, site_name: str) -> bool:
        """Return whether the site is switched off, by its name or by a pattern that matches it."""
        return any(_matches(entry, site_name) for entry in self.off)

    def unmatched(self, site_names: Collection[str]) -> list[str]:
        """Return the entries, as ``"off='a.*'"``, that name none of these sites, and no module.

        A module counts if it is imported by now.
        """
        of_modules = _is_in, list(sys.modules)
        known = {"off": (_matches, site_names), "include": of_modules, "exclude": of_modules}
        return [
            f"{field}={entry!r}"
            for field, (names_it, names) in known.items()
            for entry in sorted(getattr(self, field))
            if not any(names_it(entry, name) for name in names)
        ]


def _matches(pattern: str, site_name: str) -> bool:
    return site_name == pattern or fnmatchcase(site_name, pattern)


def _is_in(package: str, module_name: str) -> bool:
    return f"{module_name}.".startswith(f"{package}.")


def _covers(packages: tuple[str, ...], module_name: str) -> bool:
    return any(_is_in(package, module_name) for package in packages)


def _require_choice(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        choices = ", ".join(map(repr, allowed))
        raise PolicyError(f"Policy({field}=...) takes one of {choices}; got {value!r}")


def _require_strings(field: str, value: object, accepted: tuple[type, ...]) -> None:
    takes = f"Policy({field}=...) takes a {' or a '.join(kind.__name__ for kind in accepted)} of"
    if isinstance(value, str):
        raise PolicyError(f"{takes} strings; got the string {value!r}: write ({value!r},)")
    if not isinstance(value, (tuple, frozenset)) or not isinstance(value, accepted):
        raise PolicyError(f"{takes} strings; got {value!r}")
    for entry in value:
        if not isinstance(entry, str) or not entry:
            raise PolicyError(f"{takes} non-empty strings; got the entry {entry!r}")


DEFAULT: Final = Policy()
"""The policy that is used where none is given."""
