"""BibTeX: read by another program's parser, held against what the catalogue and the metrics say of their sources."""

import json
import re
import shutil
import subprocess
import unicodedata
from importlib.metadata import version

import pytest
from pybtex.database import parse_string

import davylamp
from davylamp.adapters.catalogue.lookup import ATTACKS, LIBRARIES
from davylamp.adapters.data.torchvision_datasets import PUBLISHED
from davylamp.adapters.models.defences.catalogue import DEFENCES
from davylamp.adapters.models.detectors.detector_rows import DETECTORS
from davylamp.adapters.models.zoo.load import model_name_patterns
from davylamp.engine.training.methods import METHODS
from davylamp.errors import Unavailable, UnknownName
from davylamp.metrics import METRICS
from davylamp.report.citations.bibliography import entries_for, entries_named, read_entries, software_entry
from davylamp.report.citations.cite import Bibliography, cite
from davylamp.report.citations.usage import CitedItem, split_data, split_model

# A part of a source as davylamp writes it: "Croce and Hein 2020b, adversarial-library".
SOURCE = re.compile(r"(?P<author>[\w-]+)(?: et al\.| and [\w-]+)? (?P<year>\d{4})")


def folded(text):
    """Letters only, without accents and TeX."""
    plain = re.sub(r"\{?\\[`'^\"~]\{?(\w)\}?\}?", r"\1", text)
    plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub("[^a-z0-9]", "", plain.lower())


def agrees(entry, source):
    """Whether an entry has the first author and the year that a source names."""
    named = SOURCE.search(source)
    author = entry.fields["author"].partition(",")[0]
    return named and folded(named["author"]) == folded(author) and named["year"] == entry.fields["year"]


def test_every_entry_is_as_another_program_reads_it():
    entries = read_entries()
    text = "\n".join(entry.text for entry in entries)
    read = parse_string(text, "bibtex").entries
    assert len(read) == len(entries) > 150  # no key twice: the parser refuses it
    for entry in entries:
        other = read[entry.key]
        persons = " and ".join(str(person) for person in other.persons["author"])
        fields = {**other.fields, "author": persons}
        assert other.type == entry.kind
        assert {name: folded(value) for name, value in fields.items()} == {
            name: folded(value) for name, value in entry.fields.items()
        }
        assert re.fullmatch(rf"[a-z]+{entry.fields['year']}[a-z0-9]+", entry.key)
        assert entry.key.startswith(folded(entry.fields["author"].partition(",")[0]))
        assert "title" in entry.fields
        assert {"journal", "booktitle", "institution", "url"} & set(entry.fields)
        assert entry.sources or entry.named, entry.key


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_has_the_paper_that_the_catalogue_names(name):
    source, entries = ATTACKS[name].source, entries_for("attack", name)
    if source.lower() in LIBRARIES:
        assert not entries  # it has no paper: the library is cited, and a line says so
        cited = cite(f"attack:{name}")
        assert {entry.key for entry, _ in cited.entries[1:]} == {e.key for e in entries_for("library", source.lower())}
        assert [line for line in cited.missing if f"attack {name}: the attack has no paper" in line]
    else:
        assert len(entries) == 1
        assert agrees(entries[0], source), (source, entries[0].text)


@pytest.mark.parametrize("symbol", [symbol for symbol, record in METRICS.items() if record.source])
def test_every_metric_has_the_papers_that_it_names(symbol):
    entries, unknown = entries_named(METRICS[symbol].source)
    assert entries
    assert not unknown
    for part in METRICS[symbol].source.split(";"):
        assert any(agrees(entry, part) for entry in entries), part


@pytest.mark.parametrize(
    ("kind", "name", "source"),
    [
        *(("defence", name, row.source) for name, row in DEFENCES.items()),
        *(("detector", name, row.source) for name, row in DETECTORS.items()),
        *(("training", name, row.source) for name, row in METHODS.items() if row.source),
    ],
)
def test_what_is_named_with_its_title_has_that_title(kind, name, source):
    (entry,) = entries_for(kind, name)
    assert agrees(entry, source)
    title = re.split(r",(?! with)|:", source.partition(", ")[2])[0]
    assert folded(entry.fields["title"]).startswith(folded(title)[:30]), (entry.fields["title"], title)


def test_every_library_data_set_and_embedded_model_has_an_entry():
    assert [name for name in LIBRARIES if name != "davylamp" and not entries_for("library", name)] == []
    for name in PUBLISHED:
        (used,) = split_data(f"torchvision:{name}:some/folder")
        assert entries_for("data", used.name), name
    embedded = [name for name in model_name_patterns() if name.startswith("demo:")]
    assert embedded
    assert [name for name in embedded if not entries_for("model", name)] == []


def test_names_of_data_and_models_are_taken_apart():
    assert split_data("torchvision:cifar10-train:/x+fog:3") == [
        CitedItem("data", "cifar10"),
        CitedItem("data", "corrupted"),
    ]
    assert split_data("foolbox:fashionMNIST") == [CitedItem("data", "fashionmnist")]
    assert split_data("imagenet-c:/x+fog:3") == [CitedItem("data", "imagenet-c"), CitedItem("data", "corrupted")]
    assert split_data("imagefolder:/x/mnist") == [CitedItem("data", "imagefolder:/x/mnist")]
    assert split_model("timm:vit_tiny+jpeg:quality=50") == [
        CitedItem("model", "timm:vit_tiny"),
        CitedItem("defence", "art:jpeg"),
    ]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("pgd", "madry2018towards"),
        ("foolbox:pgd", "rauber2020foolbox"),
        ("SSIM", "wang2004image"),
        ("FR@10", "mopuri2020adversarial"),
        ("trades", "zhang2019theoretically"),
        ("torchvision:cifar10", "krizhevsky2009learning"),
        ("torchvision:resnet50", "he2016deep"),
        ("timm:deit_tiny_patch16_224", "touvron2021training"),
        ("clopper-pearson", "clopper1934use"),
        ("training:least-likely", "kurakin2017scale"),
    ],
)
def test_a_name_is_what_it_means(name, key):
    assert key in {entry.key for entry, _ in cite(name).entries}


def test_a_name_with_two_meanings_gives_both_and_one_if_it_says_which():
    both = cite("least-likely").keys
    assert both["attack least-likely"] == ("kurakin2017physical",)
    assert both["training by least-likely"] == ("kurakin2017scale",)
    assert "attack least-likely" not in cite("training:least-likely").keys
    with pytest.raises(UnknownName, match="did you mean"):
        cite("deepfol")


def test_a_folder_cites_what_it_used_and_says_what_has_no_entry(folder):
    cited = davylamp.cite(folder)
    keys = cited.keys
    assert keys["davylamp"] == ("davylamp",)
    assert keys["attack pgd"] == ("madry2018towards",)
    assert keys["attack deepfool"] == ("moosavidezfooli2016deepfool",)
    assert {use for use in keys if use.startswith("library ")} == {
        *(f"library {name}" for name in ("art", "foolbox", "torchattacks")),
        f"library torch {version('torch').partition('+')[0]}",
    }
    assert {use for use in keys if use.startswith("attack ")} == {"attack pgd", "attack deepfool"}
    assert "metric MR" in keys
    assert [line for line in cited.missing if "model-a" in line and "where the model comes from" in line]
    assert parse_string(cited.text, "bibtex").entries.keys() == {entry.key for entry, _ in cited.entries}
    with pytest.raises(Unavailable):
        cite(folder.parent)


BIBTEX = r"""
\documentclass{article}\usepackage{natbib,url}\begin{document}\nocite{*}
\bibliographystyle{plainnat}\bibliography{refs}\end{document}
"""
BIBER = r"""
\documentclass{article}\usepackage[backend=biber]{biblatex}\addbibresource{refs.bib}
\begin{document}\nocite{*}\printbibliography\end{document}
"""


@pytest.mark.parametrize(
    ("program", "document", "begins"), [("bibtex", BIBTEX, r"\bibitem"), ("biber", BIBER, r"\entry{")]
)
def test_the_programs_themselves_read_every_entry_without_a_warning(program, document, begins, tmp_path):
    """And the comments: to BibTeX an at sign begins an entry wherever it stands between two."""
    if shutil.which("pdflatex") is None or shutil.which(program) is None:
        pytest.skip(f"needs pdflatex and {program}")
    uses = ("model m@{v2}\\q.py:f%\n@x",)
    entries = (software_entry(["0.2"]), *read_entries())
    Bibliography(tuple((entry, uses) for entry in entries), uses).write(tmp_path / "refs.bib")
    (tmp_path / "t.tex").write_text(document, encoding="utf-8")
    tex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t"]
    done = [
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=240)
        for command in (tex, [program, "t"], tex, tex)
    ]
    assert not re.search("warning|error", done[1].stdout, re.IGNORECASE), done[1].stdout
    assert not re.search("undefined|Missing character", done[3].stdout)
    assert (tmp_path / "t.bbl").read_text(encoding="utf-8").count(begins) == len(entries)


def test_a_comment_has_no_at_sign():
    entry = software_entry(["0.2"])
    text = Bibliography(((entry, ("model hf:a/b@main",)),), ("model m@v2.py:f\n@misc{x}: cite it",)).text
    assert re.findall("^.*@.*$", text, re.MULTILINE) == ["@misc{davylamp,"]
    assert "% model hf:a/b(at)main\n" in text
    assert entry.fields["year"].isdecimal()


def test_the_command_writes_a_file_lists_keys_and_says_what_is_missing(run, folder, tmp_path):
    code, out, err = run("cite", folder, "hopskipjump", "-o", "refs.bib")
    assert code == 0
    assert "refs.bib: " in out
    assert "no entry: model model-a" in err
    text = (tmp_path / "refs.bib").read_text(encoding="utf-8")
    assert "chen2020hopskipjump" in parse_string(text, "bibtex").entries
    assert "% no entry: model model-a" in text
    _, out, _ = run("cite", "pgd", "--keys")
    assert re.search(r"^attack pgd +madry2018towards\s*$", out, re.MULTILINE)
    _, out, _ = run("cite", "pgd", "--json")
    (ours, other) = json.loads(out)["entries"]
    assert ours["key"] == "davylamp"
    assert other["fields"]["eprint"] == "1706.06083"
    code, _, err = run("cite", "deepfol")
    assert code == 1
    assert "did you mean deepfool" in err
