"""A report orders its sites, and shows them as text, JSON, HTML and a rich table."""

from __future__ import annotations

import html.parser
import io
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bcmend.reasons import REASONS
from bcmend.reports.outcomes import Retrace, SiteRecord
from bcmend.reports.places import package_of
from bcmend.reports.site_report import Report
from bcmend.reports.texts import aligned, plural

MENDED = SiteRecord(
    name="net.Net.forward:12:branch",
    file="net.py",
    line=12,
    function="Net.forward",
    offset=40,
    kind="branch",
    status="mended",
    lowering="where",
    refusal=None,
)
REFUSED = SiteRecord(
    name="net.Net.forward:30:branch",
    file="net.py",
    line=30,
    function="Net.forward",
    offset=90,
    kind="branch",
    status="refused",
    lowering=None,
    refusal="arms-differ",
    detail="y is [None] or <tensor>\nsecond line",
)
WITHDRAWN = replace(
    MENDED, name="a.f:3:guard", file="a.py", line=3, status="withdrawn", refusal="not-captured"
)


def _report(*sites: SiteRecord) -> Report:
    return Report("Net", sites, functions_reached=9, functions_changed=2)


def _many(count: int) -> tuple[SiteRecord, ...]:
    return tuple(replace(MENDED, line=line, name=f"site {line}") for line in range(count))


def test_sites_are_ordered_by_file_line_and_offset_however_they_come() -> None:
    nowhere = replace(MENDED, line=None)
    earlier = replace(MENDED, offset=8)
    expected = (WITHDRAWN, nowhere, earlier, MENDED, REFUSED)
    for order in itertools.permutations(expected):
        assert _report(*order).sites == expected


def test_sites_are_told_apart_by_status() -> None:
    report = _report(REFUSED, WITHDRAWN, MENDED)
    assert report.mended == (MENDED,)
    assert report.refused == (REFUSED,)


def test_dictionary_survives_json_and_explains_refusals() -> None:
    report = _report(MENDED, REFUSED)
    loaded = json.loads(report.to_json())
    assert loaded == report.to_dict()
    assert loaded["counts"] == {"mended": 1, "planned": 0, "refused": 1, "withdrawn": 0}
    assert (loaded["functions_reached"], loaded["functions_changed"]) == (9, 2)
    mended, refused = loaded["sites"]
    assert mended["refusal"] is None
    assert mended["lowering"] == "where"
    reason = REASONS["arms-differ"]
    assert refused["refusal"] == {
        "slug": "arms-differ",
        "meaning": reason.meaning,
        "hint": reason.hint,
    }
    assert set(mended) == set(SiteRecord.__slots__)


def test_json_indentation_is_the_callers() -> None:
    report = _report(MENDED)
    assert "\n" not in report.to_json(indent=None)
    assert '\n    "subject": "Net"' in report.to_json(indent=4)


def test_text_without_sites_is_a_heading_and_a_summary() -> None:
    assert str(_report()).splitlines() == [
        "bcmend: Net",
        "0 sites; 9 functions reached, 2 changed",
    ]


def test_text_counts_one_in_the_singular() -> None:
    report = Report("Net", (MENDED,), functions_reached=1, functions_changed=1)
    assert "1 site mended, nothing left; 1 function reached, 1 changed" in str(report)


def test_text_names_file_line_function_and_reason() -> None:
    text = str(_report(REFUSED, MENDED))
    lines = text.splitlines()
    assert lines.count("  net.py") == 2, "once for each status"
    row = lines[lines.index("still breaks the graph") + 2]
    assert row.split() == "30 branch Net.forward arms-differ: y is [None] or <tensor>".split()
    assert lines.index("still breaks the graph") < lines.index("mended")
    assert "second line" not in text, "a row is one line"
    assert REASONS["arms-differ"].meaning in text
    assert REASONS["arms-differ"].hint in text


def test_text_of_two_hundred_sites_has_one_aligned_row_each_if_asked_for() -> None:
    text = _report(*_many(200)).to_text(every=True)
    rows = [line for line in text.splitlines() if line.startswith("    ")]
    assert len(rows) == 200
    assert len({row.index("Net.forward") for row in rows}) == 1


def test_many_mended_sites_are_counted_by_file() -> None:
    others = (replace(MENDED, file="a.py", kind="output"), replace(MENDED, file="a.py", line=13))
    text = str(_report(*_many(200), *others, REFUSED))
    assert text.splitlines()[2:12] == [
        "",
        "still breaks the graph",
        "  net.py",
        "    30  branch  Net.forward  arms-differ: y is [None] or <tensor>",
        "",
        f"arms-differ: {REASONS['arms-differ'].meaning}",
        f"  What to do: {REASONS['arms-differ'].hint}",
        "",
        "mended, by file",
        "  a.py  2 sites: 1 output, 1 branch",
    ]
    assert "  net.py  200 sites: 200 branch" in text


def test_a_line_of_source_is_shown_where_nothing_was_mended(tmp_path: Path) -> None:
    file = tmp_path / "shown.py"
    file.write_text("x = 1\nif x:\n    pass  # <here>\n")
    refused, mended = (replace(each, file=str(file), line=3) for each in (REFUSED, MENDED))
    assert "| pass  # <here>" in str(_report(refused))
    assert "pass" not in str(_report(mended))
    assert "pass  # &lt;here&gt;" in _report(refused).to_html()


def test_paths_are_relative_to_the_working_directory_or_to_where_packages_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    installed = str(Path(pytest.__file__).parent)
    files = [str(tmp_path / "own" / "net.py"), f"{installed}/net.py", "/elsewhere/net.py"]
    report = _report(*(replace(MENDED, file=file) for file in files))
    lines = [line.strip() for line in str(report).splitlines()]
    assert {"own/net.py", "pytest/net.py", "/elsewhere/net.py"} <= set(lines)
    assert package_of(files[1]) == f"pytest {pytest.__version__}"
    assert not package_of(files[0]) and not package_of(files[2])


def test_where_graphs_break_comes_first_unless_a_site_says_it() -> None:
    stop = Retrace("net.py", 8, "f", "Data-dependent branching", stays=True)
    stops = (stop, stop, replace(stop, line=9, stays=False), replace(stop, line=30))
    report = Report("Net", (REFUSED, MENDED), 1, 1, retraces=stops)
    assert report.still_breaking == (stop,)
    lines = str(report).splitlines()
    assert lines[3:5] == ["still breaks the graph", "  net.py:8  f  Data-dependent branching"]
    page = _Page(report.to_html())
    assert page.text.index("net.py:8") < page.text.index("net.py:30") < page.text.index("net.py:12")


def test_versions_policy_and_changed_packages_are_in_every_form() -> None:
    about = {
        "versions": (("bcmend", "1.2"), ("torch", "3.4")),
        "policy": "Policy(branch='cond')",
        "packages": ("transformers 5.6",),
        "unmatched": ("off='mymodl.*'",),
    }
    report = Report("Net", (), 1, 1, **about)
    forms = [str(report), _Page(report.to_html()).text, report.__rich__().title]
    for form, text in itertools.product(
        map(str, forms), ("bcmend 1.2, torch 3.4", "cond", "5.6", "mymodl")
    ):
        assert text in form
    loaded = json.loads(report.to_json())
    assert loaded["versions"] == {"bcmend": "1.2", "torch": "3.4"}
    assert loaded["unmatched"] == ["off='mymodl.*'"]
    assert (loaded["policy"], loaded["packages"]) == ("Policy(branch='cond')", ["transformers 5.6"])


def test_text_gives_each_reason_once() -> None:
    text = str(_report(REFUSED, replace(REFUSED, line=31), replace(REFUSED, line=32)))
    assert text.count(REASONS["arms-differ"].meaning) == 1


class _Page(html.parser.HTMLParser):
    """Collects the text of a page, and fails on a tag that is not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.links: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("count", [0, 1, 200])
def test_html_is_one_closed_page_with_a_row_per_site(count: int) -> None:
    page = _Page(_report(*_many(count)).to_html())
    assert page.open == []
    assert page.links == []
    assert page.tags.count("li") == count


def test_many_sites_are_folded_in_groups_with_the_reason_in_view() -> None:
    few = _report(*_many(5), REFUSED).to_html()
    assert few.count("<details open>") == few.count("<details") == 2
    sites = (replace(REFUSED, line=line, name=f"site {line}") for line in range(500))
    many = _report(*sites, *_many(500)).to_html()
    assert "<details open>" not in many and many.count("<details>") == 2
    summary = many.partition("<summary>")[2].partition("</summary>")[0]
    assert "arms-differ" in summary and REASONS["arms-differ"].meaning in summary


def test_html_escapes_what_the_program_is_called() -> None:
    script = "<script>alert('&')</script>"
    hostile = replace(REFUSED, name=script, file=script, function=script, detail=script)
    page = _Page(Report(script, (hostile,), 1, 0).to_html())
    assert "script" not in page.tags
    assert page.text.count(script) == 6, "title, heading, file, name, function, detail"
    assert REASONS["arms-differ"].hint in page.text


@pytest.mark.parametrize("count", [0, 1, 200])
def test_rich_table_has_a_row_per_site(count: int) -> None:
    rich_table = pytest.importorskip("rich.table")
    table = _report(*_many(count)).__rich__()
    assert isinstance(table, rich_table.Table)
    assert table.row_count == count


def test_rich_shows_square_brackets_as_they_are() -> None:
    rich_console = pytest.importorskip("rich.console")
    console = rich_console.Console(width=200, record=True, file=io.StringIO())
    console.print(_report(REFUSED))
    shown = console.export_text()
    assert "y is [None] or <tensor>" in shown
    assert "Make both arms produce" in shown


def test_a_slug_that_is_not_in_the_table_costs_no_report() -> None:
    report = _report(replace(REFUSED, refusal="from-the-future"))
    assert "from-the-future" in str(report)
    assert "from-the-future" in report.to_html()
    (site,) = json.loads(report.to_json())["sites"]
    assert site["refusal"] == {"slug": "from-the-future", "meaning": "", "hint": ""}


def test_equal_reports_have_equal_text() -> None:
    assert _report(MENDED, REFUSED) == _report(REFUSED, MENDED)
    assert str(_report(MENDED, REFUSED)) == str(_report(REFUSED, MENDED))


def test_the_cost_of_copies_is_in_every_form_of_the_report() -> None:
    costly = replace(MENDED, kind="output", lowering="deferred", clone_bytes=4096)
    free = replace(MENDED, name="other", offset=99, clone_bytes=0)
    report = Report("net", (costly, free), 1, 1)
    assert str(report).count("copies 4096 bytes of tensors") == 1
    assert str(report).count("copies") == 1
    assert report.to_html().count("copies 4096 bytes of tensors") == 1
    sites = json.loads(report.to_json())["sites"]
    assert [site["clone_bytes"] for site in sites] == [4096, 0]


def test_columns_are_aligned_but_for_the_last() -> None:
    assert aligned([("a", "long", "x"), ("bcd", "s", "yyyyy")]) == [
        "a    long  x",
        "bcd  s     yyyyy",
    ]


def test_an_empty_last_column_leaves_no_spaces_behind() -> None:
    assert aligned([("a", "bb", ""), ("a", "b", "c")]) == ["a  bb", "a  b   c"]


def test_no_rows_are_no_lines() -> None:
    assert aligned([]) == []


@pytest.mark.parametrize(("count", "text"), [(0, "0 sites"), (1, "1 site"), (2, "2 sites")])
def test_only_one_is_singular(count: int, text: str) -> None:
    assert plural(count, "site") == text
