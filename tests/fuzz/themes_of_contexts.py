"""Themes about what surrounds a block, and what is kept for the length of a call."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import INT, LIST, TABLE, VECTOR

HELD_CONTEXTS: Final = Theme(
    "locks, flags and context variables",
    {
        VECTOR: ("Cached({vector}).doubled",),
        INT: ("current.get()", "current.get(2)"),
    },
    templates(
        r"""
with <lock|again>:
    {v:=vector} = {v} * 2
<|with again:>
<|    print('held')>
{v} = {v} + 1

with <lock|again>:
    total = {vector}.sum() + {int}
    <pair = (total, {vector})|if {plain}: total = total + 1|made = [total]; made.append(total)>
{v:=vector} = {v} + total

with lock:
    <gathered.append({vector}.detach())|{box}.count += 1|global_count.append({int})|
        memory['a'] = {vector}.detach()>

with lock, again:
    <block>

if {data}:
    with lock:
        {v:=vector} = {v} * 2

with torch.backends.cudnn.flags(<enabled=False|True, False|deterministic={bool}|allow_tf32=True>):
    {v:=vector} = {v} * 2
    <print(torch.backends.cudnn.enabled)|{v} = {v} + {vector}|parts = {v}.split(1)>
    <block>

with torch.backends.cudnn.flags(<enabled=bool({list})|nothing=1|benchmark=None>):
    <block>

cached = Cached({vector})
{v:=vector} = cached.doubled + cached.doubled

current.set({int})
print(current.get())
<block>
print(current.get(<|5>), current.name)

token = current.set({int})
second = current.set({text})
print(current.get())
current.reset(<second|token>)
current.reset(<token|second>)
print(current.get())

print(unset.get(<|'none'|{int}>))
unset.set({vector}.detach())
{v:=vector} = {v} + unset.get()

if {data}:
    current.set({int})
print(current.get(0))

token = unset.set({int})
unset.reset(token)
print(token.old_value is token.MISSING, unset.get('gone'))

own = contextvars.ContextVar('own', default={int})
own.set({text})
print(own.get())
"""
    ),
)
COPIED_VALUES: Final = Theme(
    "copies of values",
    {
        VECTOR: ("copy.deepcopy({vector}.detach())", "copy.copy({vector}.detach())"),
        LIST: ("copy.deepcopy({list})", "copy.copy({list})"),
        TABLE: ("copy.deepcopy({table})", "copy.copy({table})"),
    },
    templates(
        r"""
own = {vector}.detach() * 1
whole = <[own, own, {'k': own}]|{'a': [own, {int}], 'b': (own, {text})}|(1, {text}, None)>
copied = copy.<deepcopy|copy>(whole)
own.add_(1)
print(copied, whole, copied is whole)

shared = {vector}.detach().clone()
pair = [shared, <shared[1:]|shared.view(3, 1)|shared>]
copied = copy.deepcopy(pair)
copied[0].add_(1)
print(copied)

copied = copy.<deepcopy|copy>(<{matrix}.detach().t()|{vector}.detach()[::2]|torch.eye(3)|{box}>)
print(type(copied).__name__)

copied = copy.<copy|deepcopy>(<{int}|{text}|(1, 2)|[1, [2, {int}]]|{1, 2}|None|range(3)>)
print(copied)

if {data}:
    whole = copy.<copy|deepcopy>([{vector}.detach(), {int}])
else:
    whole = [{vector}, {int}]
{v:=vector} = whole[0] + whole[1]

copied = copy.<copy|deepcopy>(<nn.Linear(3, 3).weight|catalog|ordered|{vector}|filled>)
print(type(copied).__name__)

nested_list = [{vector}.detach()]
nested_list.append(<nested_list|[nested_list]|{'k': {vector}.detach()}>)
copied = copy.deepcopy(nested_list)
print(len(copied), copied[1] is copied)
"""
    ),
)
