"""Themes about layers and containers: rows that are sent to a layer, tables of modules."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import VECTOR

ROUTED_ROWS: Final = Theme(
    "rows that the data send to a layer that draws",
    {
        VECTOR: (
            "functional.dropout(inner({vector}), 0.3)",
            "gru({matrix}.unsqueeze(0))[0].sum((0, 1))",
        ),
    },
    templates(
        r"""
whole = torch.stack([{vector}, {vector} * 2, {vector} - 1])
<if {mask}.any():|if {data}:|if not {mask}.all():>
    rows = {mask}.nonzero().squeeze(-1)
    part = functional.dropout(<inner(whole[rows])|whole[rows]>, <0.3|0.5>)
    whole = whole.index_add(0, rows, <part|part * torch.rand(())|part + torch.randn_like(part)>)
<else:|if {data}:>
    whole = whole + <torch.rand(3)|functional.dropout(whole, 0.25)|torch.randn(3, 3)|1>
{v:=vector} = whole.sum(0) * <1|torch.rand(())|functional.dropout(torch.ones(3), 0.5)>

whole = inner({matrix})
if {data}:
    whole = functional.dropout(whole, 0.2)
    taken = whole.sum(1) > 0
    if taken.any():
        rows = taken.nonzero().squeeze(-1)
        drawn = <whole[rows].exponential_()|torch.rand_like(whole[rows])|
            whole[rows].new_empty(len(rows), 3).uniform_(0, 2)|
            functional.dropout(whole[rows], 0.4)|torch.bernoulli(whole[rows].sigmoid())|
            whole[rows].clone().normal_(1.0, 2.0)|whole[rows][torch.randperm(len(rows))]>
        whole = whole.index_add(0, rows, drawn)
    <whole = whole * torch.rand(())|whole = whole + 1>
{v:=vector} = whole.sum(0)

whole = inner({matrix})
if {data}:
    if torch.rand(()) < <0.3|0.7>:
        if {mask}.any():
            rows = {mask}.nonzero().squeeze(-1) % max(len(whole), 1)
            whole = whole.index_add(0, rows, functional.dropout(inner(whole[rows]), 0.3))
        whole = whole * torch.randn(())
    else:
        whole = whole * 2
{v:=vector} = whole.sum(0) * torch.rand(())

if {data}:
    {v:=vector} = <torch.rand(3)|torch.randn(3)|functional.dropout({v}, 0.5)|
        torch.normal({v}, 1.0)> + {v}
    <return {v}|{v} = {v} * torch.rand(())|torch.manual_seed(3)|>
else:
    {v} = <functional.dropout({v}, 0.3)|{v} + torch.randint(0, 4, (3,))|
        torch.bernoulli({v}.sigmoid())>

for i in range(2):
    if {data}:
        {v:=vector} = functional.dropout({v}, <0.5|0.1>) + <random.random()|numpy.random.rand()|
            torch.rand(())>
"""
    ),
    gradients=True,
)
LAYERS_CHANGED: Final = Theme(
    "layers of a module, changed on one side",
    {VECTOR: ("filled.known + {vector}", "elman({matrix})[0].sum(0)")},
    templates(
        r"""
{v:=vector} = <gru|lstm|elman>({matrix}<|.unsqueeze(0)>)[0].reshape(-1, 3).sum(0)

found, state = <gru({matrix})|elman({matrix}, torch.zeros(1, 3))>
if {data}:
    found = found * 2
{v:=vector} = {v} + state[0]

if {data}:
    filled.register_buffer(<'known', |'late', |
        'other', persistent=False, tensor=>{vector}.detach().clone())
<print(sorted(filled._buffers))|{v:=vector} = filled.known + 0|print(len(list(filled.buffers())))>

if {data}:
    filled.<late|known|own|count> = <{vector}.detach()|{int}|nn.Parameter(torch.ones(3))|None>
<else:|if {data}:>
    filled.<late|known|count> = <{vector}.detach() * 2|{float}|torch.zeros(2)>
<print(hasattr(filled, 'late'))|{v:=vector} = filled.known * 1|print(sorted(vars(filled))[:3])|pass>

if {data}:
    del filled.<known|own|notes|nothing>
print(len(filled._buffers), <hasattr(filled, 'own')|'known' in filled._buffers|{int}>)

if {data}:
    filled.<add_module('layer', nn.Identity())|register_parameter('late', None)|notes.clear()|
        notes.update(b=2)>
    filled.notes['c'] = <{vector}.detach()|{int}>
print(sorted(filled.notes))

if {data}:
    <catalog['a'] = {vector}.detach()|catalog['new'] = {int}|ordered['third'] = {vector}.detach()|
        grouped['g'].append({vector}.detach())>
<elif {data}:|else:>
    <catalog['a'] = catalog['a'] * 2|catalog.pop('n')|ordered.pop('first')|
        grouped['g'] += [{vector}.detach()]>
<catalog['later'] = {int}|catalog.update(a=torch.ones(3))|ordered.clear()|
    grouped['h'].extend([{int}])|
    catalog.__ior__({'b': torch.ones(3)})>
<print(catalog.get('later'), 'other' in catalog)|print(len(ordered))|print(sorted(grouped))|pass>

held = <[{vector}]|collections.deque([{vector}], maxlen=3)|{{int}, 5}|{'a': {vector}}>
if {data}:
    held.<append({vector})|clear()|pop()|update([7])|extend([1, 2])|extendleft([1])|discard(5)>
<held.append({int})|held.extend({list})|held.update(b={int})|held.add(9)|held.reverse()|
    held.__ior__({8})|held += [1]|held.appendleft({int})>
print(<len(held)|type(held).__name__|bool(held)|5 in held>)

found = <gathered|[]|queue>
for v in {list}[:3]:
    if v.sum() > <0|{float}>:
        found.append(<v|(v, {int})|[v]>)
<found.extend([v * 2 for v in {list}[:1]])|found.append(found)|found.extend(gathered)|
    found.clear()|found.sort()>
<print(len(found))|gathered.append(len(found))|pass|return found>

place = {box}
if {data}:
    place.value, place.count = {vector}, {int}
    <place.other = {int}|del place.value|place.value = {'a': {vector}}|place.value = [{vector}]>
<print(getattr(place, 'other', 0))|{v:=vector} = {v} + place.count|place.count += 1|pass>

def stored_by(way):
    global made_late
    if {data}:
        made_late = <{vector}.detach()|{int}|None>
    else:
        made_late = <{vector}.detach()|{int}|way>
    return made_late
print(stored_by({int}) is None)
"""
    ),
)
