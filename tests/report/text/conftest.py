"""A strict reader of LaTeX tables."""

import re

import pytest


def parse(text):
    """Caption, headings and rows of cells; fails where TeX would."""
    opened = re.findall(r"\\(begin|end)\{(\w+)\}", text)
    assert opened == [("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table")]
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("%", r"\providecommand")))
    plain = re.sub(r"\\[\\&%$#_{}]", "", text)  # without what is escaped
    plain = re.sub(r"~\\(?:cite|ref)\{[\w:,-]+\}", "", plain)
    depth = 0
    for character in plain:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert not re.search(r"[#~%]", plain)
    columns = re.search(r"\\begin\{tabular\}\{((?:[lr]|@\{[^{}]*\})+)\}", text)
    width = len(re.sub(r"@\{[^{}]*\}", "", columns[1]))
    body = text.partition("\\toprule\n")[2].partition("\n\\bottomrule")[0].split("\n")
    assert body.pop(1) == "\\midrule"
    rows = []
    for line in body:
        assert line.endswith(" \\\\")
        assert line[0] not in "[*"
        cells = re.split(r"(?<!\\) & ", line.removesuffix(" \\\\"))
        assert len(cells) + sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d)\}", line)) == width, line
        maths = re.sub(r"\\\$", "", line).split("$")
        assert len(maths) % 2 == 1
        assert not re.search(r"(?<!\\)[_^]", "".join(maths[::2]))
        rows.append(cells)
    return re.search(r"\\caption\{(.*)\}\n\\label\{tab:[\w-]+\}", text)[1], rows[0], rows[1:]


@pytest.fixture(scope="session")
def parse_latex():
    return parse
