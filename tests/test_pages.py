"""Pages say first what became of the object, then what is left, then what was mended; and how."""

from __future__ import annotations

import importlib.resources
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bcmend.reports.explanation import Cause, Explanation, Side, Treatment
from bcmend.reports.model_tree import Part
from bcmend.reports.outcomes import Retrace, SiteRecord
from bcmend.reports.search_report import TraceRecord, Why
from bcmend.reports.site_report import Report
from bcmend.reports.source import Span
from bcmend.reports.verdict import Difference, SideRecord, Sides, Verdict

SOURCE = """\
def forward(self, x):
    if (
        x.sum() > 0
        and x.isfinite().all()
    ):
        x = x + 1
    print("<größe>", x.mean())
    return x
"""
CONDITION, OUTPUT = Span(3, 3, 8, 19), Span(7, 7, 4, 9)
SIDE = Side(3, 2, 9, 0.5, 0, 1.0, 1.0, "")
HOSTILE = "<script>alert('&')</script>"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def _cause(file: str, mended: int, **changed: Any) -> Cause:
    treatment = Treatment("net:3:branch", "branch", "refused", "arms-differ", "Make both alike.")
    cause = Cause(
        file,
        3,
        "forward",
        "x.sum() > 0",
        ("layers.0",),
        "Branching",
        "GB0170",
        "",
        2,
        mended,
        (treatment,) if mended else (replace(treatment, status="mended", how="where", hint=""),),
        (CONDITION,),
    )
    return replace(cause, **changed)


def _explanation(*causes: Cause, parts: tuple[Part, ...] = (), **changed: Any) -> Explanation:
    mended = replace(SIDE, breaks=sum(each.mended for each in causes))
    stock = replace(SIDE, breaks=sum(each.stock for each in causes))
    found = Explanation("Net", "2.13", "eager", True, False, 0.1, "", stock, mended, causes, parts)
    return replace(found, **changed)


def _site(file: str, **changed: Any) -> SiteRecord:
    site = SiteRecord(
        "net:3:branch", file, 3, "forward", 8, "branch", "mended", "where", None, span=CONDITION
    )
    return replace(site, **changed)


class _Page(HTMLParser):
    """Collects what an HTML text shows; fails on a tag that is not closed in order.

    ``underlined`` has the text of each line of source that is, ``by_class`` that of elements.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.text = ""
        self.underlined: list[str] = []
        self.rows: list[str] = []
        self.by_class: dict[str, list[str]] = {}
        self.paths: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.tags.append(tag)
        assert not {"src", "onclick"} & named.keys()
        assert (named.get("href") or "#").startswith("#"), "nothing is loaded from elsewhere"
        if tag == "u":
            self.underlined.append("")
        if "data-path" in named:
            self.rows.append("")
            self.paths.append(named["data-path"] or "")
        for each in (named.get("class") or "").split():
            self.by_class.setdefault(each, []).append("")
        if tag not in {"meta", "br"}:
            self.open.append((tag, named.get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self.open]
        if "style" in tags:
            return
        self.text += data
        if "u" in tags:
            self.underlined[-1] += data
        classes = {each for _, names in self.open for each in names.split()}
        for each in classes:
            self.by_class[each][-1] += data
        if "row" in classes and self.rows:
            self.rows[-1] += data

    def row(self, path: str) -> str:
        """What the picture shows beside a submodule."""
        return " ".join(self.rows[self.paths.index(path)].split())


def _pages(file: str) -> dict[str, tuple[str, str]]:
    """The page and the fragment of each report that has both."""
    left, gone = _site(file, status="refused", lowering=None, refusal="arms-differ"), _site(file)
    sites = (replace(left, line=7, span=OUTPUT, kind="output"), gone)
    explained = _explanation(
        _cause(file, 0), _cause(file, 1, line=7, spans=(OUTPUT,)), parts=(Part("", "Net"),)
    )
    difference = Difference(1, "result", "result[0]", "1", "2", False)
    sides = Sides((SideRecord(gone.name, "true", "forced"),), (0, 0), 1.0)
    verdict = Verdict("Net", "2.13", "eager", 2, False, True, difference, (gone,), (), sides)
    return {
        "explain": (explained.to_html(), explained._repr_html_()),
        "report": (Report("Net", sites, 1, 1).to_html(), Report("Net", sites, 1, 1)._repr_html_()),
        "verify": (verdict.to_html(), verdict._repr_html_()),
    }


def test_the_verdict_stands_first_then_what_is_left_then_what_was_mended(file: str) -> None:
    for name, forms in _pages(file).items():
        for form in forms:
            text = _Page(form).text
            verdict = {"explain": "1; 1 place left", "report": "1 place still", "verify": "differs"}
            left = "result[0]" if name == "verify" else "What still breaks the graph"
            order = [verdict[name], left, "What was mended"]
            places = [text.index(each) for each in order]
            assert places == sorted(places), (name, places)


def test_the_expression_of_a_break_is_underlined_and_nothing_else(file: str) -> None:
    for name in ("explain", "report"):
        page, _ = _pages(file)[name]
        expected = ['print("<größe>", x.mean())', "x.sum() > 0"]  # what is left comes first
        assert _Page(page).underlined == expected, name
    condition = _Page(Report("Net", (_site(file),), 1, 1).to_html())
    for line in SOURCE.splitlines()[1:5]:
        assert line.strip() in condition.text, "all lines of the condition"
    assert "x = x + 1" not in condition.text


def test_the_text_has_carets_below_the_expression(file: str) -> None:
    lines = str(_explanation(_cause(file, 1))).splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip() == "^" * 11)
    begin = lines[at].index("^")
    assert lines[at - 1][begin : begin + 11] == "x.sum() > 0"


def test_without_the_source_there_is_the_place_alone(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.py")
    page = _Page(_explanation(_cause(gone, 1, source="")).to_html())
    assert f"{gone}:3" in page.text and "source" not in page.by_class and page.underlined == []
    assert "|" not in str(_explanation(_cause(gone, 1, source="")))
    assert f"{gone}:3" in _Page(Report("Net", (_site(gone),), 1, 1).to_html()).text


PARTS = (
    Part("", "Net", ((1, 2),), ((1, 2),)),
    Part("layers", "ModuleList"),
    Part("layers.0", "Layer", ((1, 3), (2, 1)), ((1, 4),), 2, 0),
    Part("layers.1", "Layer", (), ((1, 4),)),
    Part("layers.0.norm", "Norm", ((2, 1),), ((1, 1),)),
    Part("layers.1.norm", "Norm", (), ((1, 1),)),
    Part("head", "Head", ((3, 1),), ((2, 1),), 1, 1),
    Part("drop", "Dropout"),
    Part("pool", "Pool"),
    Part(None, "functions", ((3, 5),), (), 0, 1),
)


def test_a_break_stands_at_its_module_in_the_picture(file: str) -> None:
    page = _Page(_explanation(_cause(file, 0), parts=PARTS).to_html())
    assert page.row("layers.0, layers.1") == "0 to 1 2 \N{MULTIPLICATION SIGN} Layer ✕ 2 ✓ 0"
    assert page.row("head") == "head Head ✕ 1 ✕ 1"
    assert page.row("") == "Net"
    assert page.row("functions") == "functions ✕ 1"
    assert page.text.count("✕") == 4 + 1, "each once, and in the caption"


def test_modules_without_a_break_fold_together(file: str) -> None:
    page = _Page(_explanation(_cause(file, 0), parts=PARTS).to_html())
    assert page.text.count("+ 2 modules without a break") == 2, "two norms; and two of the model"
    assert not any(each in page.text for each in ("Norm", "Dropout", "Pool"))


def test_bars_have_a_piece_for_each_graph(file: str) -> None:
    html = _explanation(_cause(file, 0), parts=PARTS).to_html()
    (row,) = re.findall(r'data-path="layers.0, layers.1".*?\n</div>', html, re.DOTALL)
    stock, mended = row.split('class="side is-mended"')
    assert re.findall(r"graph \d: \d operators?", stock) == [
        "graph 1: 3 operators",
        "graph 2: 2 operators",
    ]
    assert re.findall(r"graph \d: \d+ operators?", mended) == ["graph 1: 10 operators"]


def test_what_a_program_is_called_is_escaped(file: str) -> None:
    hostile = _cause(HOSTILE, 1, function=HOSTILE, modules=(HOSTILE,), kind=HOSTILE, source=HOSTILE)
    explained = _explanation(hostile, parts=(Part("", HOSTILE),), subject=HOSTILE)
    difference = Difference(1, "result", HOSTILE, HOSTILE, HOSTILE, False)
    verdict = Verdict(HOSTILE, "2", HOSTILE, 1, False, True, difference, (_site(HOSTILE),))
    trace = TraceRecord(HOSTILE, HOSTILE, 1, HOSTILE, HOSTILE, 0.0, ())
    report = Report(HOSTILE, (_site(HOSTILE),), 1, 1, retraces=(Retrace(HOSTILE, 1, "f", HOSTILE),))
    forms = [
        each() for one in (explained, verdict, report) for each in (one.to_html, one._repr_html_)
    ]
    forms.append(Why(HOSTILE, (trace,))._repr_html_())
    for form in forms:
        page = _Page(form)
        assert "script" not in page.tags and HOSTILE in page.text


def test_a_fragment_is_no_page_and_its_style_reaches_nothing_else(file: str) -> None:
    forms = [fragment for _, fragment in _pages(file).values()]
    forms.append(Why("f", ())._repr_html_())
    for form in forms:
        assert not {"html", "head", "body", "title"} & set(_Page(form).tags)
        style = form.partition("<style>")[2].partition("</style>")[0]
        rules = re.sub(r"@media [^{]*\{|/\*.*?\*/", "", style)
        for selectors in re.findall(r"([^{}]+)\{[^{}]*\}", rules):
            for each in selectors.split(","):
                assert each.strip().startswith(".bcmend"), each


def test_a_page_is_whole_and_has_both_colours(file: str) -> None:
    for page, _ in _pages(file).values():
        assert page.startswith("<!doctype html>") and "prefers-color-scheme: dark" in page
        assert "http" not in page and "@import" not in page and "url(" not in page


def test_a_count_of_nothing_is_no_good_news_where_the_call_raised() -> None:
    raised = replace(SIDE, breaks=0, raised="ValueError: no")
    found = _explanation(stock=raised, mended=raised)
    assert found.verdict.startswith("the call raised ValueError: no")
    worse = _explanation(mended=raised)
    assert worse.raises_mended and worse.verdict.endswith("the call raises mended: ValueError: no")


@pytest.mark.parametrize(
    "mended, expected",
    [((0,), "2 breaks -> 0; nothing left"), ((0, 3), "4 breaks -> 3; 1 place left")],
)
def test_the_verdict_counts_breaks_and_places(
    file: str, mended: tuple[int, ...], expected: str
) -> None:
    found = _explanation(*(_cause(file, count) for count in mended))
    assert found.verdict == expected and str(found).splitlines()[1] == expected
    assert expected.replace("->", "→") in _Page(found.to_html()).by_class["verdict"][0]


def test_what_went_without_a_site_is_told(file: str) -> None:
    stop = Retrace(file, 3, "forward", "Data-dependent branching", begins=True, span=CONDITION)
    known = _site(file, line=7, status="known", lowering=None, detail="every number gives one")
    report = Report("Net", (known,), 1, 1, retraces=(stop,))
    assert report.mended_without_a_site == (stop,)
    assert report.verdict == "2 places mended by what is known, nothing left"
    for form in (str(report), _Page(report.to_html()).text):
        assert "every number gives one" in form and "mended by what is known" in form
    again = Report("Net", (), 1, 1, retraces=(stop, replace(stop, begins=False)))
    assert again.mended_without_a_site == (), "a later trace has stopped there too"


def test_what_is_not_mended_in_one_graph_is_not_called_a_break(file: str) -> None:
    refused = _site(file, status="refused", lowering=None, refusal="arm-untraceable")
    assert Report("Net", (refused,), 1, 1).places_left == 1
    whole = Report("Net", (refused,), 1, 1, is_whole=True)
    assert whole.places_left == 0
    for form in (str(whole), _Page(whole.to_html()).text):
        assert "still break" not in form and "no graph break: torch has captured it" in form


@pytest.mark.parametrize(
    "make", [_explanation, lambda: Report("f", (), 1, 1), lambda: Why("f", ())]
)
def test_what_has_nothing_to_show_is_shown(make: Callable[[], Any]) -> None:
    assert _Page(make()._repr_html_()).by_class["verdict"][0].strip()


def test_what_is_pickled_shows_the_same(file: str) -> None:
    found = _explanation(_cause(file, 1), parts=PARTS)
    assert pickle.loads(pickle.dumps(found)).to_html() == found.to_html()


def test_the_templates_are_files_of_the_package() -> None:
    folder = importlib.resources.files("bcmend.reports") / "templates"
    names = {each.name for each in folder.iterdir()}
    assert {"base.html", "parts.html", "style.css"} < names
    assert {f"{each}.html" for each in ("explanation", "report", "verdict", "why")} < names
