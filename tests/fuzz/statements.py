"""Random statements: assignments, control flow, effects, output, exceptions.

A scope knows the kind of each variable that is bound on every way that leads there. What the arms
of a branch leave with different kinds is of kind `ANY`, and what only one of them binds is mostly
forgotten, and sometimes read all the same.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from tests.fuzz.expressions import Expressions
from tests.fuzz.forms import (
    CHECKS,
    IN_PLACE,
    NEW,
    OF_LAYER_STATEMENTS,
    OF_LAYERS,
    OF_MODULE_STORES,
    OF_MODULES,
    OF_TRAINING,
    OFTEN,
    OUTPUT,
    SELDOM,
    STORES,
)
from tests.fuzz.programs import INDENT
from tests.fuzz.scope import Scope
from tests.fuzz.theme import BAR, BLOCK, NAMED, ONE_OF, Theme
from tests.fuzz.values import (
    ANY,
    BOOL,
    FLOAT,
    HALF,
    INT,
    INTEGERS,
    MASK,
    MATRIX,
    MAYBE,
    SCALAR,
    TEXT,
    VECTOR,
)

Lines = list[str]

#: What a variable of a kind may hold after another assignment.
_OTHERS: Final = {
    INT: (FLOAT, FLOAT, BOOL, MAYBE),
    FLOAT: (INT, INT, SCALAR),
    BOOL: (INT, MASK),
    VECTOR: (HALF, MAYBE, MATRIX, INTEGERS),
    ANY: (VECTOR, INT, MAYBE, FLOAT, SCALAR, MATRIX),
}

#: A program of at most as many statements has plain expressions.
_SMALL: Final = 6


class Statements:
    """Draws blocks of statements.

    Args:
        pick: takes one of a sequence, the first if that does as well.
        training: whether gradients flow, so that what they flow into must not be changed in place.
        module: what `self` is: nothing, "plain" or with "layers".
        size: how many statements of all kinds there are at most, but for plain assignments.
        themes: what else there is.
    """

    def __init__(
        self,
        pick: Callable[[Sequence[Any]], Any],
        *,
        training: bool,
        module: str,
        size: int,
        themes: Sequence[Theme] = (),
    ) -> None:
        self._pick = pick
        self._training, self._module, self._size = training, module, size
        self._depth = 2 if size > _SMALL else 1
        self._expressions = Expressions(pick)
        self._count = 0
        self._templates = [each for theme in themes for each in theme.statements]
        if module == "layers":
            self._templates += OF_LAYER_STATEMENTS
        allowed = [OF_MODULES] * bool(module) + [OF_LAYERS] * (module == "layers")
        allowed += [OF_TRAINING] * training
        for forms in (*allowed, *(theme.forms for theme in themes)):
            for kind, texts in forms.items():
                self._expressions.allow(kind, *texts)

    def body(self, kinds: dict[str, str]) -> Lines:
        """Draw the body of a function of these arguments."""
        first = [self._if, self._if, self._for, self._set, *[self._themed] * 3]
        lines, scope = self._pick(first)(Scope(dict(kinds)), 2)
        if not lines[-1].startswith(("return", "raise")):
            more, scope = self.block(scope, 2, self._pick((1, 2, 1, 3)))
            lines += more
        if not lines[-1].startswith(("return", "raise")):
            names = [name for name in scope.kinds if name != "self"]
            whole = [f"return {', '.join(names[-5:])}"]
            lines += self._pick((whole, whole, whole, self._return(scope)))
        return lines

    def block(self, scope: Scope, depth: int, count: int) -> tuple[Lines, Scope]:
        """Draw some statements; return them and the scope behind them."""
        lines: Lines = []
        for _ in range(count):
            more, scope = self._statement(scope, depth)
            lines += more
            if more[-1].startswith(("return", "raise", "break", "continue")):
                break
        return lines, scope

    def _statement(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        simple = [self._set, self._set, self._add, self._output, self._store, self._in_place]
        simple += [self._unpack, self._check, self._leave_early, self._leave_early]
        simple += [self._themed] * (8 if self._templates else 0)
        if self._count >= self._size:
            return self._set(scope, 0)
        self._count += 1
        if depth <= 0:
            if scope.in_loop:
                simple += [self._leave, self._leave]
            return self._pick([*simple, self._leave])(scope, depth)
        compound = [self._if, self._if, self._if, self._if, self._for, self._while, self._try]
        compound += [self._without_gradients, self._nested, self._lambda, self._delete]
        compound += [self._until, *[self._themed] * (8 if self._templates else 0)]
        return self._pick([*simple, *compound])(scope, depth)

    # --- simple statements -----------------------------------------------------------------------

    def _of(self, kind: str, scope: Scope, depth: int = 2) -> str:
        return self._expressions.of(kind, scope.kinds, min(depth, self._depth))

    def _filled(self, forms: Sequence[str], scope: Scope) -> str:
        return self._expressions.filled(self._pick(forms), scope.kinds)

    def _set(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        name, kind = self._target(scope)
        return [f"{name} = {self._of(kind, scope)}"], scope.binding(name, kind)

    def _target(self, scope: Scope) -> tuple[str, str]:
        """Choose a variable to assign to: one that is bound, or a new one, or one of other kind."""
        bound = [name for name in scope.kinds if name != "self"]
        name = self._pick([*bound, ""])
        if not name:
            kind = self._pick([*OFTEN, *SELDOM])
            return self._pick(NEW[kind]), kind
        kind = scope.kinds[name]
        changed = kind == ANY or self._pick((False, False, False, False, False, True))
        return name, self._pick(_OTHERS.get(kind, _OTHERS[ANY])) if changed else kind

    def _add(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        numbers = (INT, FLOAT) if self._training else (INT, FLOAT, VECTOR)
        names = [name for name, kind in scope.kinds.items() if kind in numbers]
        if not names:
            return self._set(scope, depth)
        name = self._pick(names)
        sign = self._pick(("+", "-", "*"))
        return [f"{name} {sign}= {self._of(scope.kinds[name], scope)}"], scope

    def _unpack(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        first, second = self._target(scope), self._target(scope)
        if first[0] == second[0]:
            return self._set(scope, depth)
        text = (
            f"{first[0]}, {second[0]} = {self._of(first[1], scope)}, {self._of(second[1], scope)}"
        )
        return [text], scope.binding(*first).binding(*second)

    def _output(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        return [self._filled(OUTPUT, scope)], scope

    def _store(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        forms = [*OF_MODULE_STORES, *STORES] if self._module else STORES
        return [self._filled(forms, scope)], scope

    def _in_place(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        if not self._training:
            forms = [*IN_PLACE, "self.total.add_({vector})"] if self._module else IN_PLACE
            return [self._filled(forms, scope)], scope
        name = self._pick(NEW[VECTOR])
        lines = [f"{name} = {self._of(VECTOR, scope)} * 1"]
        scope = scope.binding(name, VECTOR)
        forms = (f"{name}.add_(1)", f"{name}.mul_({{vector}})", f"{name}[0] = {{float}}")
        return [*lines, self._filled(forms, scope)], scope

    def _check(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        return [self._filled(CHECKS[:3], scope)], scope

    def _leave(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        kind = self._pick(("break", "continue", "return") if scope.in_loop else ("return", "raise"))
        if kind == "return":
            return self._return(scope), scope
        if kind == "raise":
            return [self._filled(CHECKS[3:], scope)], scope
        return [kind], scope

    def _leave_early(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        lines, _ = self._leave(scope, depth)
        head = f"if {self._of(self._pick(('data', 'data', 'test')), scope, 1)}:"
        return [head, *(INDENT + line for line in lines)], scope

    def _return(self, scope: Scope) -> Lines:
        names = [name for name in scope.kinds if name != "self"]
        several = f"return {', '.join(names[-4:] or ['None'])}"
        forms = (
            "return {vector}",
            several,
            several,
            several,
            "return {scalar}",
            "return {maybe}",
            "return {vector}, {int}",
            "return {'v': {vector}, 'n': {float}}",
            "return {list}",
            "return {any}",
            "return {float}",
            "return",
        )
        return [self._filled(forms, scope)]

    def _delete(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        names = [name for name in scope.kinds if name not in ("self", "x")]
        if not names:
            return self._set(scope, depth)
        name = self._pick(names)
        return [f"del {name}"], replace(
            scope, kinds={each: kind for each, kind in scope.kinds.items() if each != name}
        )

    # --- compound statements ---------------------------------------------------------------------

    def _inner(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        lines, behind = self.block(scope, depth - 1, self._pick((1, 2, 1, 3)))
        return [INDENT + line for line in lines], behind

    def _if(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        then, behind = self._inner(scope, depth)
        lines = [f"if {self._of('test', scope)}:", *then]
        scopes = [] if _leaves(then) else [behind]
        form = self._pick(("", "else", "elif", "elif else"))
        if "elif" in form:
            then, behind = self._inner(scope, depth)
            lines += [f"elif {self._of('test', scope)}:", *then]
            scopes += [] if _leaves(then) else [behind]
        if "else" in form:
            then, behind = self._inner(scope, depth)
            lines += ["else:", *then]
            scopes += [] if _leaves(then) else [behind]
        else:
            scopes.append(scope)
        return lines, self._met(scope, scopes)

    def _met(self, before: Scope, scopes: Sequence[Scope]) -> Scope:
        """Return the scope where several ways meet."""
        if not scopes:
            return before
        names = dict.fromkeys(name for scope in scopes for name in scope.kinds)
        # What a way has assigned is last there, and so it has to be behind the ways' meeting.
        fresh = [name for name in names if name not in before.kinds]
        fresh += [scope.last for scope in scopes if scope.last in before.kinds]
        names = {**{name: None for name in names if name not in fresh}, **dict.fromkeys(fresh)}
        kinds: dict[str, str] = {}
        for name in names:
            found = {scope.kinds.get(name, "") for scope in scopes}
            if "" in found and not self._pick((False, False, False, False, False, True)):
                continue
            found.discard("")
            kinds[name] = found.pop() if len(found) == 1 else ANY
        return replace(before, kinds=kinds)

    def _for(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        head, bound = self._pick(
            (
                ("for i in range(2):", {"i": INT}),
                ("for i in range(min({int}, 3)):", {"i": INT}),
                ("for v in {list}[:3]:", {"v": VECTOR}),
                ("for i, v in enumerate({list}[:3]):", {"i": INT, "v": VECTOR}),
                ("for v, n in zip({list}, (2, 0.5)):", {"v": VECTOR, "n": ANY}),
                ("for name in ('a', 'b'):", {"name": TEXT}),
                ("for name, v in {table}.items():", {"name": TEXT, "v": VECTOR}),
                ("for v in pieces({vector}):", {"v": SCALAR}),
            )
        )
        head = self._expressions.filled(head, scope.kinds, 1)
        inner = replace(scope, kinds={**scope.kinds, **bound}, in_loop=True)
        return self._loop(head, inner, scope, depth)

    def _while(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        turns = f"turns{self._count}"
        head = f"while {turns} < {self._pick(('3', '2'))} and ({self._of('test', scope)}):"
        inner = replace(scope, in_loop=True)  # nothing may set the number of iterations back
        lines, behind = self._loop(head, inner, scope, depth)
        return [f"{turns} = 0", lines[0], f"{INDENT}{turns} += 1", *lines[1:]], behind

    def _until(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        """Write a loop that ends because each iteration makes a tensor larger."""
        name = self._pick([each for each, kind in scope.kinds.items() if kind == VECTOR] or ["x"])
        if scope.kinds.get(name) != VECTOR:
            return self._set(scope, depth)
        ends = f"not ({name}.norm() > 90 or {name}.isnan().any())"  # no NaN is larger
        test = self._pick((f"{name}.abs().max() < 40", ends))
        lines = [f"while {test}:", f"{INDENT}{name} = {name}.abs() * 2 + 1"]
        return lines, scope.binding(name, VECTOR)

    # A loop over a list that its iterations append to would not end, so what it goes over is cut.
    def _loop(self, head: str, inner: Scope, outer: Scope, depth: int) -> tuple[Lines, Scope]:
        block, behind = self._inner(inner, depth)
        lines = [head, *block]
        met = self._met(outer, [outer, replace(behind, in_loop=outer.in_loop)])
        if self._pick((False, False, False, True)):
            block, behind = self._inner(replace(outer, kinds=met.kinds), depth - 1)
            lines += ["else:", *block]
            met = self._met(outer, [met, behind])
        return lines, met

    def _try(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        block, behind = self._inner(scope, depth)
        form = self._pick(("except", "finally", "except finally", "except else"))
        lines, scopes = ["try:", *block], [scope, behind]
        if "except" in form:
            caught = self._pick(
                ("ValueError", "Exception as error", "AssertionError", "(RuntimeError, IndexError)")
            )
            block, behind = self._inner(scope, depth - 1)
            lines += [f"except {caught}:", *block]
            scopes.append(behind)
        if "else" in form:
            block, behind = self._inner(scope, depth - 1)
            lines += ["else:", *block]
            scopes.append(behind)
        met = self._met(scope, scopes)
        if "finally" in form:
            block, _ = self._inner(replace(met, in_loop=False), 0)
            lines += ["finally:", *block]
        return lines, met

    def _without_gradients(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        head = self._pick(("with torch.no_grad():", "with torch.enable_grad():"))
        block, behind = self._inner(scope, depth)
        return [head, *block], behind

    def _nested(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        """Define a function that reads, and may change, variables around it; call it."""
        self._count += 1
        name = f"inner{self._count}"
        changed = [n for n, k in scope.kinds.items() if k in (VECTOR, INT, FLOAT, MAYBE)][-2:]
        changed = changed if scope.in_function and self._pick((True, False)) else []
        inside = replace(
            scope, kinds={**scope.kinds, "p": VECTOR}, in_loop=False, in_function=False
        )
        if "self" in scope.kinds:
            inside = replace(inside, in_function=False)
        local = dict(inside.kinds)
        block, _ = self._closure_block(replace(inside, kinds=local), depth, changed)
        argument = self._of(VECTOR, scope, 1)
        lines = [f"def {name}(p):", *block, f"w = {name}({argument})"]
        return lines, scope.binding("w", VECTOR)

    def _closure_block(self, scope: Scope, depth: int, changed: list[str]) -> tuple[Lines, Scope]:
        lines: Lines = []
        if changed:
            lines.append(f"nonlocal {', '.join(changed)}")
        test = self._of("test", scope)
        name = self._pick([*changed, "q"])
        kind = scope.kinds.get(name, VECTOR)
        lines.append(f"if {test}:")
        lines.append(f"{INDENT}{name} = {self._of(kind, scope, 1)}")
        if self._pick((True, False)) or name == "q":
            lines.append("else:")
            lines.append(f"{INDENT}{name} = {self._of(kind, scope, 1)}")
        scope = scope.binding(name, kind)
        lines.append(f"return {self._of(VECTOR, scope, 1)}")
        return [INDENT + line for line in lines], scope

    def _lambda(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        inside = scope.binding("p", VECTOR)
        text = self._of(VECTOR, inside)
        return [
            f"g = lambda p, n=2: {text}",
            f"w = g({self._of(VECTOR, scope, 1)})",
        ], scope.binding("w", VECTOR)

    def _themed(self, scope: Scope, depth: int) -> tuple[Lines, Scope]:
        """Fill in the template of a theme."""
        if not self._templates:
            return self._set(scope, depth)
        chosen = self._pick(self._templates)
        text = ONE_OF.sub(lambda found: self._pick(BAR.split(found[1])), chosen.text)
        for mark, kind in NAMED.findall(text):
            names = [name for name, of_kind in scope.kinds.items() if of_kind == kind]
            text = text.replace(f"{{{mark}:={kind}}}", f"{{{mark}}}")
            text = text.replace(f"{{{mark}}}", self._pick(names or ["x"]))
        lines: Lines = []
        scopes = [scope]
        for line in text.splitlines():
            if line.strip() != BLOCK:
                lines.append(self._expressions.filled(line, scope.kinds))
                continue
            bound = {**scope.kinds, **chosen.inner}
            inside = replace(scope, kinds=bound, in_loop=scope.in_loop or chosen.is_loop)
            block, behind = self.block(inside, depth - 1, self._pick((1, 2)))
            lines += [line.replace(BLOCK, each) for each in block]
            scopes.append(replace(behind, in_loop=scope.in_loop))
        if not _is_valid(lines):  # quotes of one kind in one another
            return self._set(scope, depth)
        met = self._met(scope, scopes) if len(scopes) > 1 else scope
        for name, kind in chosen.binds.items():
            met = met.binding(name, kind)
        return lines, met


def _is_valid(lines: Lines) -> bool:
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:
        return False
    return True


def _leaves(block: Lines) -> bool:
    return block[-1].strip().startswith(("return", "raise", "break", "continue"))
