"""Leaderboards of others: read as what they are, labelled as theirs, and in no ranking of ours."""

import json
import math
import re
import shutil

import pytest
import torch

from davylamp.engine import ResultsStore
from davylamp.engine.exchange.every_eval_ever import export_every_eval_ever
from davylamp.engine.exchange.robustbench_import import import_robustbench
from davylamp.engine.sharing.data_folder import write_data_folder
from davylamp.engine.sharing.describe import Terms
from davylamp.engine.store.published_rows import published_note, read_published
from davylamp.engine.tables.published_table import build_published
from davylamp.engine.tables.table import build_table
from davylamp.errors import InvalidInput, Unavailable, Unsupported
from davylamp.intervals import share_interval

MODEL = {
    "link": "https://example.org", "name": "A robust <br>model", "authors": "A. Author", "additional_data": False,
    "number_forward_passes": 1, "dataset": "cifar10", "venue": "Somewhere 2026", "architecture": "ResNet-18",
    "eps": "0.1", "clean_acc": "93.25", "reported": "70.69", "autoattack_acc": "70.69", "unreliable": True,
    "external": "64.20", "footnote": "AutoAttack with <b>transfer</b>.",
}  # fmt: skip


# What Every Eval Ever's eval.schema.json 0.3.0 (MIT) requires of each object: "" is the log, a name the object in it.
REQUIRED = {
    "": {"schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "model_info", "eval_library",
         "evaluation_results"},
    "source_metadata": {"source_type", "source_organization_name", "evaluator_relationship"},
    "eval_library": {"name", "version"},
    "model_info": {"name", "id", "additional_details"},
}  # fmt: skip
OF_A_RESULT = {"evaluation_name", "source_data", "metric_config", "score_details"}


@pytest.fixture
def write(tmp_path):
    def put(name="One", norm="Linf", **changes):
        path = tmp_path / "model_info" / "cifar10" / norm / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {key: value for key, value in {**MODEL, **changes}.items() if value is not ...}
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return put


def test_what_is_published_is_read_as_it_is(write, tmp_path):
    write()
    write("Two", external=..., eps="8/255", unreliable=..., dataset="imagenet", footnote=None)
    write("Fog", norm="corruptions", autoattack_acc=..., external=..., eps=None, corruptions_acc="67.55")
    done = import_robustbench(tmp_path / "model_info", tmp_path / "results")
    assert (done.boards, done.refused) == ({("cifar10", "linf"): 2, ("cifar10", "corruptions"): 1}, [])
    rows, damaged = read_published(ResultsStore(tmp_path / "results", create=False))
    assert damaged == []
    fog, two, one = rows
    assert (one.robust, one.autoattack, one.clean) == pytest.approx((0.6420, 0.7069, 0.9325))
    assert (one.unreliable, one.images, one.judge) == (True, 10_000, "RobustBench, not davylamp")
    assert (one.title, one.note) == ("A robust model", "AutoAttack with transfer .")
    assert two.robust == pytest.approx(0.7069)
    assert two.epsilon == pytest.approx(8 / 255)
    assert (two.data, two.images, two.note) == ("cifar10", 10_000, "its file says imagenet")
    assert fog.robust == pytest.approx(0.6755)
    assert math.isnan(fog.epsilon)
    import_robustbench(tmp_path / "model_info", tmp_path / "results")
    assert len(read_published(ResultsStore(tmp_path / "results"))[0]) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clean_acc": "193"}, "clean_acc from 0 to 100"),
        ({"autoattack_acc": "much"}, "autoattack_acc from 0 to 100"),
        ({"eps": "nan"}, "eps as 8/255"),
        ({"eps": None}, "eps as 8/255"),
        ({"autoattack_acc": ..., "external": ...}, "a robust accuracy"),
        ({"dataset": ...}, "a model of RobustBench"),
        ({"norm": "L7"}, "whose folder says the norm"),
    ],
)
def test_what_is_no_such_file_is_refused_and_the_others_are_read(write, tmp_path, changes, message):
    path = write("Bad", **changes)
    with pytest.raises(InvalidInput, match=message):
        import_robustbench(path, tmp_path / "results")
    write("Good")
    (refused,) = import_robustbench(tmp_path / "model_info", tmp_path / "results").refused
    assert "Bad.json" in refused
    with pytest.raises(Unavailable, match="expected a JSON file"):
        import_robustbench(tmp_path / "nowhere", tmp_path / "results")


def test_theirs_stand_beside_ours_with_who_says_so_and_n(small_folder, write, tmp_path, run):
    folder = tmp_path / "results"
    shutil.copytree(small_folder, folder)
    with pytest.raises(Unsupported, match="import robustbench"):
        build_published(folder)
    ours = build_table(folder, by="models", metrics=["CA", "RA"], bootstrap=50)
    write()
    write("Other", eps="0.2")
    assert run("import", "robustbench", tmp_path / "model_info", "-o", folder)[0] == 0
    table = build_published(folder, bootstrap=50)
    judged = {row.labels["model"]: row.labels["judged by"] for row in table.rows}
    assert judged == {"cnn": "davylamp", "One": "RobustBench, not davylamp"}  # 0.2 is no radius of ours
    (one,) = (row for row in table.rows if row.labels["model"] == "One")
    assert one.labels["images"] == one.metrics["RA"].n == 10_000
    assert (one.metrics["RA"].low, one.metrics["RA"].high) == pytest.approx(share_interval(6420, 10_000))
    mine = [repr(row.metrics["RA"]) for row in table.rows if row.labels["model"] == "cnn"]
    assert sorted(mine) == sorted(repr(row.metrics["RA"]) for row in ours.rows)
    code, out, _ = run("table", folder, "--published", "--json")
    assert code == 0
    assert "not judged by davylamp" in out
    assert run("table", folder, "--published")[0] == 0
    assert "without --latex" in run("table", folder, "--published", "--latex")[2]


def test_every_eval_ever_has_the_numbers_of_the_table(small_folder, tmp_path):
    exported = export_every_eval_ever(small_folder, tmp_path / "logs", creator="A laboratory", bootstrap=50)
    (file,) = exported.files
    assert file.relative_to(tmp_path / "logs").parts[:3] == ("davylamp", "local", "cnn")
    log = json.loads(file.read_text(encoding="utf-8"))
    table = build_table(small_folder, by="pairs", metrics=["CA", "RA", "MR"], bootstrap=50)
    assert len(log["evaluation_results"]) == 1 + 2 * len(table.rows)
    scores = {
        (each["metric_config"]["metric_id"], each["metric_config"]["additional_details"]["implementation"]): each
        for each in log["evaluation_results"][1:]
    }
    for row in table.rows:
        each = scores["davylamp.ra", row.labels["implementation"]]["score_details"]
        assert each["score"] == row.metrics["RA"].value
        assert each["uncertainty"]["confidence_interval"]["lower"] == row.metrics["RA"].low
        assert each["uncertainty"]["num_samples"] == row.metrics["RA"].n
    again = export_every_eval_ever(small_folder, tmp_path / "again", creator="A laboratory", bootstrap=50)
    assert again.files[0].name == file.name


def test_every_eval_ever_has_what_its_schema_requires(small_folder, tmp_path):
    (file,) = export_every_eval_ever(small_folder, tmp_path / "logs", bootstrap=50).files
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.json", file.name)
    log = json.loads(file.read_text(encoding="utf-8"))
    for name, fields in REQUIRED.items():
        assert fields <= set(log[name] if name else log)
    details = log["model_info"]["additional_details"]
    assert details["deployment_type"] in {"self_deployed", "externally_managed", "unknown"}
    assert details["model_availability"] in {"open_weights", "closed_weights", "unknown"}
    assert log["retrieved_timestamp"].isdecimal()
    for each in log["evaluation_results"]:
        config, score = each["metric_config"], each["score_details"]
        assert set(each) >= OF_A_RESULT
        assert each["source_data"]["source_type"] == "other"
        assert config["lower_is_better"] is (config["metric_id"] == "davylamp.mr")
        assert config["min_score"] <= score["score"] <= config["max_score"]  # both are required of a continuous one
        further = config.get("additional_details", {})
        assert all(isinstance(text, str) and text != "nan" for text in further.values())
        assert ("epsilon" in further) == ("radius" in each["evaluation_name"])
    assert any("ddn" in each["evaluation_name"] for each in log["evaluation_results"])  # the one without a radius


def test_every_eval_ever_keeps_data_sets_and_weights_apart(writer, tmp_path):
    labels = torch.arange(12) % 3
    clean = 9 * torch.eye(3)[labels]
    few, wrong = clean[:6].clone(), clean[:6].roll(1, 1)
    few[0] = few[0].roll(1)
    for digest, data, logits in (("a" * 20, "all", clean), ("a" * 20, "few", few), ("b" * 20, "few", few)):
        known = labels[: len(logits)]
        subject = writer.clean("m", logits, known, data=data, digest=f"of {data}", model_digest=digest)
        writer.cell(subject, "foolbox:pgd", logits, logits if data == "all" else wrong, known)
    files = export_every_eval_ever(writer.store.folder, tmp_path / "logs").files
    logs = {log["model_info"]["name"]: log for log in (json.loads(file.read_text()) for file in files)}
    digests = {name: log["model_info"]["additional_details"]["davylamp_model_digest"] for name, log in logs.items()}
    assert digests == {"m [aaaaaa]": "a" * 20, "m [bbbbbb]": "b" * 20}
    both = logs["m [aaaaaa]"]["evaluation_results"]
    scores = {
        (each["source_data"]["dataset_name"], each["metric_config"]["metric_id"]): (
            each["score_details"]["score"], each["score_details"]["uncertainty"]["num_samples"]
        )
        for each in both
    }  # fmt: skip
    assert len(both) == len(scores) == len({each["evaluation_result_id"] for each in both}) == 6
    assert scores["all", "davylamp.ca"] == (1, 12)
    assert scores["few", "davylamp.ca"] == (5 / 6, 6)
    assert scores["all", "davylamp.ra"] == (1, 12)
    assert scores["few", "davylamp.ra"] == (0, 6)


@pytest.mark.parametrize(
    ("model", "identifier"),
    [
        ("hf:org/net", "org/net"), ("timm:resnet18", "timm/resnet18"), ("torchvision:resnet50", "pytorch/resnet50"),
        ("hf:./my/net", "local/hf_._my_net"), ("net.py:build", "local/net.py_build"),
    ],
)  # fmt: skip
def test_only_models_of_a_hub_have_its_name(writer, tmp_path, model, identifier):
    labels = torch.arange(6) % 3
    clean = 9 * torch.eye(3)[labels]
    writer.cell(writer.clean(model, clean, labels), "foolbox:pgd", clean, clean, labels)
    (file,) = export_every_eval_ever(writer.store.folder, tmp_path / "logs").files
    assert json.loads(file.read_text(encoding="utf-8"))["model_info"]["id"] == identifier


def test_a_data_folder_is_what_hugging_face_reads(small_folder, tmp_path):
    yaml = pytest.importorskip("yaml")
    files = write_data_folder(small_folder, tmp_path / "set", terms=Terms("CC-BY-4.0", name="Digits: a | test"))
    assert {path.name for path in files} >= {"README.md", "responses.parquet", "croissant.json"}
    card = (tmp_path / "set" / "README.md").read_text(encoding="utf-8")
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["license"] == "cc-by-4.0"
    assert front["pretty_name"] == "Digits: a | test"
    for config in front["configs"]:
        assert (tmp_path / "set" / config["data_files"]).is_file()
    assert [config.get("default", False) for config in front["configs"]] == [True, False, False]
    croissant = json.loads((tmp_path / "set" / "croissant.json").read_text(encoding="utf-8"))
    for each in croissant["distribution"]:
        assert (tmp_path / "set" / each["contentUrl"]).is_file()


def test_a_ranking_says_that_published_rows_are_not_in_it(write, tmp_path):
    store = ResultsStore(tmp_path / "board")
    assert published_note(store) == []
    import_robustbench(write(), store.folder)
    (note,) = published_note(store)
    assert "1 rows published by RobustBench are not in here" in note
