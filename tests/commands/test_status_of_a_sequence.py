"""`davylamp status` says where a sequence of images stands, as the end of its evaluation did."""

import json

from ..golden import corpus


def test_status_has_the_state_of_a_sequence(tmp_path, monkeypatch):
    corpus.copy_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    line = "evaluate --models models.py:cnn --data npz:images.npz --attacks foolbox:fgsm --epsilon 0.3 --isolate no"
    assert "sequence" not in json.loads(_status(f"{line} --limit 4 -o plain", "plain", "--json"))
    stated = json.loads(_status(f"{line} --until 'RA >= 0.9' -o drawn", "drawn", "--json"))["sequence"]
    assert (stated["until"], stated["is_decided"]) == ("RA >= 0.9", True)
    assert stated == json.loads((tmp_path / "drawn" / "sequence.json").read_text())
    assert "until 'RA >= 0.9': decided after" in " ".join(corpus.run("status drawn")[1].split())


def _status(evaluate, folder, *options):
    assert corpus.run(evaluate)[0] == 0
    return corpus.run(" ".join(("status", folder, *options)))[1]
