"""The page: complete, alone, escaped, and with the numbers of `davylamp table`."""

import json
import re
from dataclasses import replace

import pytest
from scipy import stats

from davylamp.engine import load
from davylamp.engine.tables.table import build_table
from davylamp.errors import Unavailable
from davylamp.report.page.build import build_report, render, write_file
from davylamp.report.parts.report_data import read_folder
from davylamp.report.sections.leaderboard import present_symbols
from davylamp.report.text.tables import table_json
from davylamp.tools.speed.synthetic_results import write_results

from ..conftest import ATTACKS

ORDER = ["verdict", "ranking", "agreement", "leaderboard", "curves", "metrics", "gallery", "images", "cost"]


def test_the_sections_are_there_in_order(page):
    names = [attributes.get("id") for tag, attributes in page.elements if tag == "section"]
    assert names == [*ORDER, "trust", "provenance", "glossary"]


def test_no_section_is_empty(text):
    sections = re.findall(r'<section id="([^"]*)".*?</h2>(.*?)</section>', text, re.DOTALL)
    assert len(sections) == len(ORDER) + 3
    for name, inside in sections:
        assert len(re.sub(r"<[^>]*>|\s", "", inside)) > 100, name


@pytest.mark.parametrize("attacks", [ATTACKS, ("foolbox:pgd", "art:square")])
def test_a_section_without_content_is_left_out_and_no_link_leads_to_it(tmp_path, read_page, attacks):
    """No attack in two libraries: no agreement. One model: no ranking. No other model: no transfer."""
    write_results(tmp_path / "results", models=("alone",), attacks=attacks, images=8, classes=4, side=32)
    page = read_page(build_report(tmp_path / "results", bootstrap=20))
    names = {attributes.get("id") for tag, attributes in page.elements if tag == "section"}
    assert "transfer" not in names
    assert ("agreement" in names) == (attacks is ATTACKS)
    links = {attributes["href"] for tag, attributes in page.elements if tag == "a"}
    ids = {attributes["id"] for _, attributes in page.elements if attributes.get("id")}
    assert links
    assert {link.removeprefix("#") for link in links} <= ids


@pytest.mark.parametrize(("left_out", "pictures"), [((), 5), (("before", "cam"), 3), (("before", "cam", "change"), 2)])
def test_a_card_has_a_box_for_each_picture_that_there_is(folder, left_out, pictures):
    from davylamp.report.sections.gallery import write_gallery

    def without(uris):
        return {name: uri for name, uri in uris.items() if name not in left_out}

    section = write_gallery(read_folder(folder), [])
    gallery, *_ = section.blocks
    shown = tuple(replace(each, uris=without(each.uris)) for each in gallery.pictures[:2])
    clean = {name: without(uris) for name, uris in gallery.clean.items()}
    section = replace(section, blocks=(replace(gallery, pictures=shown, clean=clean),))
    cards = re.findall(r'<figure class="card.*?</figure>', render("Gallery", [section], source=""), re.DOTALL)
    assert [len(re.findall(r'class="thumb ', card)) for card in cards] == [pictures] * 2


def test_a_card_says_the_class_before_and_after_the_attack(folder):
    from davylamp.engine import load
    from davylamp.report.sections.gallery import write_gallery

    gallery, *_ = write_gallery(read_folder(folder), []).blocks
    records = load(folder).set_index(["model", "implementation", "image"])
    assert gallery.pictures
    for picture in gallery.pictures:
        record = records.loc[picture.model, re.split(r"[ ,]", picture.attack)[0], picture.image]
        said = [int(number) for number in re.findall(r"(\d+)(?![\d%])", picture.lines[0])]
        assert said == [record["label"], record["predicted"], record["adv_predicted"]]


def test_the_page_needs_nothing_else(text, page):
    assert "default-src 'none'" in text
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "img", "object") or attributes.get("href") == "data:,"
        for name in ("src", "href", "xlink:href", "action", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), attributes
    outside = [url for url in re.findall(r"url\(([^)]*)\)", text) if not url.startswith(("data:", "#", "${"))]
    assert outside == []
    assert "@import" not in text


def test_names_are_escaped(evil_text, evil, read_page):
    page = read_page(evil_text)
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert not [tag for tag, _ in page.elements if tag in ("img", "b")]
    assert not [attributes for _, attributes in page.elements if any(name.startswith("on") for name in attributes)]
    assert any(evil in data for data in page.texts)
    assert evil in {row["model"].text for row in page.table("verdict-table")}


@pytest.mark.parametrize("by", ["pairs", "models", "attacks"])
def test_the_numbers_are_those_of_davylamp_table(folder, page, by):
    symbols = present_symbols(read_folder(folder)) if by == "pairs" else None
    document = json.loads(table_json(build_table(folder, by=by, metrics=symbols, bootstrap=200)))
    shown = page.table(f"metrics-{by}")
    assert len(shown) == len(document["rows"]) > 0
    label = {"pairs": "model", "models": "model", "attacks": "implementation"}[by]
    for row, known in zip(shown, document["rows"], strict=True):
        assert row[label].text == known[label]
        known["metrics"].pop("RA_worst", None)  # the old name of RA, in JSON alone
        for symbol, estimate in known["metrics"].items():
            cell = row[symbol]
            # To the last digit but one: columns that are multiplied together with others are summed in another order.
            assert cell.value == (estimate["value"] and pytest.approx(estimate["value"], rel=1e-12)), symbol
            if estimate["low"] is not None and estimate["value"] is not None:
                assert float(cell.attributes["data-low"]) == pytest.approx(estimate["low"], rel=1e-12, abs=1e-15)
                assert float(cell.attributes["data-high"]) == pytest.approx(estimate["high"], rel=1e-12, abs=1e-15)


def test_the_worst_case_is_what_no_attack_fools(folder, page):
    records = load(folder)
    bounded = records[~records["epsilon"].isna()]
    for row in page.table("verdict-table"):
        of_model = bounded[bounded["model"] == row["model"].text]
        robust = of_model.groupby("image")["robust"].all()
        cell = row["worst-case robust accuracy"]
        assert cell.value == pytest.approx(robust.mean())
        low, high = stats.binomtest(int(robust.sum()), len(robust)).proportion_ci(method="exact")
        assert float(cell.attributes["data-low"]) == pytest.approx(low)
        assert float(cell.attributes["data-high"]) == pytest.approx(high)


def test_the_first_place_is_tested_on_paired_images(folder, text):
    records = load(folder)
    bounded = records[~records["epsilon"].isna()]
    robust = bounded.pivot_table(index="image", columns="model", values="robust", aggfunc="min").astype(bool)
    first, second = robust.mean().sort_values(ascending=False, kind="stable").index[:2]
    only = [(robust[a] & ~robust[b]).sum() for a, b in ((first, second), (second, first))]
    p = stats.binomtest(int(only[0]), int(sum(only))).pvalue
    shown = re.sub(r"<[^>]*>", "", text.replace("\N{NO-BREAK SPACE}", " "))
    assert p < 0.05  # the least difference of the first from any other, so that it is told apart from each
    assert f"{first} classifies {robust[first].mean():.0%}"[:-1] in shown
    assert f"Significantly different from each of the 2 others: largest exact McNemar p = {p:.2g}" in shown


def test_pairs_of_libraries_are_counted_image_by_image(folder, page):
    records = load(folder)
    rows = page.table("agreement-images")
    assert len(rows) == 3 * (3 + 1)
    for row in rows:
        a, b = (
            records[(records["model"] == row["model"].text) & (records["implementation"] == row[name].text)]
            .set_index("image")
            .sort_index()
            for name in ("a", "b")
        )
        both = a["attacked"] & b["attacked"]
        assert row["only a"].value == (both & a["success"] & ~b["success"]).sum()
        assert row["only b"].value == (both & b["success"] & ~a["success"]).sum()
        assert row["agree on"].value == pytest.approx((a["success"] == b["success"])[both].mean())


def test_hard_images_are_counted(folder, page):
    records = load(folder)
    known = records.groupby("image")["robust"].sum()
    rows = page.table("hard-images-0")
    assert len(rows) == 20
    assert [row["survived"].value for row in rows] == [known[row["image"].text] for row in rows]
    assert rows[0]["survived"].value == known.min()
    assert rows[-1]["survived"].value == known.max()


def test_thumbnails_keep_to_the_budget(folder):
    from davylamp.report.sections.gallery import write_gallery

    full, small = (write_gallery(read_folder(folder), [], budget=budget).blocks[0] for budget in (10**9, 300_000))
    assert len(full.pictures) == 3 * 5 * 6
    assert full.note == ""
    assert 0 < len(small.pictures) < len(full.pictures)
    spent, fitting = sum(len(uri) for uris in small.clean.values() for uri in uris.values()), []
    for picture in full.pictures:  # one by one, though several are drawn at once
        if spent < 300_000:
            fitting.append(picture)
            spent += sum(map(len, picture.uris.values()))
    assert list(small.pictures) == fitting
    assert spent < 320_000
    assert small.note.startswith(f"{90 - len(small.pictures)} more examples are omitted")


def test_thumbnails_are_small_pictures(folder):
    import base64
    import io

    from PIL import Image

    from davylamp.report.sections.gallery import write_gallery

    picture = write_gallery(read_folder(folder), []).blocks[0].pictures[0]
    for name in ("adv", "change"):
        shown = Image.open(io.BytesIO(base64.b64decode(picture.uris[name].partition(",")[2])))
        assert max(shown.size) == 112


def test_a_folder_without_results_is_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "davylamp.json").write_text('{"format": 1}')
    with pytest.raises(Unavailable, match="no finished runs"):
        build_report(tmp_path / "empty")
    with pytest.raises(Unavailable, match="expected a results folder"):
        build_report(tmp_path / "nowhere")


def test_a_page_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="could not write"):
        write_file("", tmp_path / "file" / "report.html")
