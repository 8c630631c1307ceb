"""Themes about how code is put together: contexts, containers, functions."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, INT, LIST, MAYBE, TEXT, VECTOR

CONTEXT_MANAGERS: Final = Theme(
    "context managers",
    {},
    templates(
        r"""
with torch.autocast('cpu', dtype=torch.bfloat16):
    <block>

with torch.backends.cudnn.flags(enabled=False):
    <block>

with contextlib.suppress(ValueError, AssertionError):
    <block>

with managed('m'):
    <block>

with Managed({bool}):
    <block>

with managed('outer') as name, Managed(True):
    <block>

with torch.set_grad_enabled({bool}):
    <block>

with torch.no_grad(), torch.enable_grad():
    <block>

with contextlib.nullcontext():
    <block>

with torch.autograd.profiler.record_function('part'):
    <block>

with contextlib.closing(Closable()):
    <block>

with managed('early'):
    if {data}:
        return {vector}
    <block>

with Managed({bool}):
    if {data}:
        raise ValueError('inside')
    <block>

with torch.no_grad():
    if {data}:
        return {vector}, 'left'
    <block>

for i in range(3):
    with managed('loop'):
        if {data}:
            break
        {v:=vector} = {v} + i

for i in range(3):
    with torch.no_grad():
        if {data}:
            continue
        {v:=vector} = {v} * 0.5

with lock:
    {v:=vector} = {v} + 1

with lock:
    {list}.append({vector})

with lock:
    print('locked')

with torch.autocast('cpu', dtype=torch.bfloat16):
    y = ({matrix} @ torch.ones(3, 3)).float().sum(0)
    print(y.dtype)

with contextlib.ExitStack() as stack:
    stack.enter_context(managed('stacked'))
    <block>

if {data}:
    with managed('arm'):
        {v:=vector} = {v} * 2
"""
    ),
)
CONTAINERS_CHANGED: Final = Theme(
    "containers changed on one side",
    {
        LIST: (
            "[*queue][:2] + [{vector}]",
            "list({table}.values())",
            "[v for _, v in sorted({table}.items())]",
            "[{vector}] * 2",
        ),
        INT: (
            "len(seen_names)",
            "len(queue)",
            "sum([1 for v in {list} if v.max() > 0])",
            "len(nested['a'])",
        ),
        BOOL: (
            "'a' in seen_names",
            "any([v.sum() > 0 for v in {list}])",
            "all(v.sum() > 0 for v in {list})",
            "not queue",
        ),
        VECTOR: (
            "sum({list}[:2])",
            "torch.stack({list}).sum(0)",
            "torch.cat([*{list}, {vector}])[:3]",
            "nested['a'][0]",
            "grown({list})[0]",
        ),
    },
    templates(
        r"""
if {data}:
    seen_names.add({text})
else:
    seen_names.discard('a')

if {data}:
    queue.append({vector})

if {data}:
    queue.appendleft({vector})
elif queue:
    queue.popleft()

for v in {list}[:3]:
    if v.sum() > 0:
        gathered.append(v * 2)

for v in {list}[:3]:
    if v.sum() > 0:
        nested['a'].append(v)
    else:
        nested.setdefault('b', []).append(v)

if {data}:
    {list}.extend([{vector}, {vector}])

if {data}:
    {list}.clear()

if {data}:
    {list}.reverse()

if {data}:
    {table}['new'] = {vector}
print(sorted({table}))

if {data}:
    {table}.pop('a', None)

if {data}:
    {table}.update(a={vector}, z={vector})
else:
    {table}.clear()

if {data}:
    {box}.extra = {vector}
    {box}.count += 1

if {data}:
    {box}.value = None
else:
    {box}.value = {vector}

if {data}:
    del {list}[0]

if {data}:
    nested['a'], nested['c'] = [], {int}

it = iter({list})
if {data}:
    next(it)
{v:=vector} = next(it, {v})

if {data}:
    gathered.extend([{vector}])
print(len(gathered))

if {data}:
    last = [{vector}]
else:
    last = [{vector}, {vector}]
gathered.append(last)

if {data}:
    item = Box({vector})
else:
    item = Box({vector}, {int})
gathered.append(item)

owner = {box}
if {data}:
    setattr(owner, 'name', 'set')
else:
    setattr(owner, 'name', None)
print(owner.name is None)

counts = collections.Counter()
if {data}:
    counts['a'] += 1
print(counts['a'])

named = collections.defaultdict(list)
if {data}:
    named['p'].append({vector})
print(sorted(named))

kept_by = point({vector}, {int})
if {data}:
    kept_by = kept_by._replace(y={int})
print(kept_by.y)

if {data}:
    settings.rate = {float}
settings.calls = {int}

if {data}:
    gathered.insert(0, {vector})
if {data}:
    gathered.append({vector})
if len(gathered) > 1:
    {v:=vector} = gathered[0] + 0

# behind w:vector
whole = {vector}, [{vector}, {'k': {vector}}]
if {data}:
    whole = {vector}, [{vector}, {'k': {vector}}]
w = whole[1][1]['k']
"""
    ),
)
FUNCTIONS: Final = Theme(
    "functions of all kinds",
    {
        VECTOR: (
            "chosen_by({vector}, 'a')",
            "either({vector})",
            "partly({vector})",
            "Layer()({vector})",
            "Layer.made()({vector})",
            "next(walked({vector}))",
            "sum(walked({vector})) + {vector}",
            "functools.reduce(lambda a, b: a + b, {list})",
            "max({list}, key=lambda v: v.sum().item())",
            "torch.stack([v for v in walked({vector})]).sum() + {vector}",
            "once({vector})",
            "recursive({vector}, 2)",
            "(lambda p, /, *q, r=1: p * r)({vector}, 2)",
            "[p for p in ({vector}, {vector}) if p.sum() > 0 or True][-1]",
            "{'k': v for v in {list}}['k'] if {list} else {vector}",
            "(lambda: {vector})()",
            "Point({vector}).doubled",
            "tower({vector}, {maybe})",
        ),
        MAYBE: (
            "either_or_none({vector})",
            "({vector} if {bool} else None)",
        ),
        TEXT: ("name_of({vector})",),
        BOOL: (
            "any(map(is_positive, {list}))",
            "all(v.sum() > 1 for v in {list})",
            "is_positive({vector}) and {bool}",
            "{maybe} is not None and bool({data})",
        ),
    },
    templates(
        r"""
found = either_or_none({vector})
if found is not None:
    {v:=vector} = {v} + found

match {text}:
    case 'a' if {data}:
        {v:=vector} = {v} + 1
    case 'b':
        {v} = {v} - 1
    case _:
        pass

match ({int}, {maybe}):
    case (1, None):
        <block>
    case (n, value):
        print(n)

verdict = judged({vector})
if verdict == 'good':
    <block>

verdict, {v:=vector} = two_of({v})
if verdict:
    <block>

result = {maybe}
if result is None:
    result = {vector}
elif {data}:
    result = None
print(result is None)

if (total := {vector}.sum()) > 1:
    {v:=vector} = {v} + total

k = 0
def bump(by=1):
    nonlocal k
    if {data}:
        k += by
    return k
bump()
bump(by=2)
print(k)

assert callable(print) or {data}

if {data} and ({vector}.max() > 1 or {plain}) and not {data}:
    <block>

if {data}:
    pass
elif {data}:
    unset = 1
else:
    unset = 2
try:
    print(unset)
except UnboundLocalError as error:
    print(error)

if {data}:
    import math as found
else:
    found = None
print(found is None)

global_count.append({int})
if {data}:
    global_count.clear()

print(sorted(locals())[:1])

value = yes(no({vector})) if {data} else no({vector})

# inside a:vector b:int c:int, loop
for a, (b, c) in zip({list}, [(1, 2), (3, 4)]):
    <block>

# inside v:vector, loop
for v in walked({vector}):
    <block>

# inside v:vector, loop
for v in reversed({list}[:3]):
    <block>

for i in range(9):
    if i > {int}:
        break
    if {data}:
        {v:=vector} = {v} + i
    if {v}.sum() > 5:
        break

# inside v:vector, loop
for v in {matrix}:
    <block>

# inside v:vector, loop
for v in map(torch.relu, {list}[:2]):
    <block>

for v in {list}[:3]:
    if v.sum() > {float}:
        {v2:=vector} = v
        break
else:
    <block>
"""
    ),
)
