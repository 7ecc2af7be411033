"""What can be used here, and how the rest is installed."""

import json
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import tomllib

import davylamp
from davylamp.adapters.catalogue import lookup
from davylamp.commands import doctor

PROJECT = Path(davylamp.__file__).with_name("pyproject.toml")


def test_what_is_installed_can_be_used(run):
    code, out, _ = run("doctor", "--json")
    document = json.loads(out)
    assert code == 0
    assert {state["name"] for state in document["libraries"]} == set(lookup.LIBRARIES)
    for state in document["libraries"]:
        assert (state["problem"], state["command"]) == ("", "")
        if state["name"] != "davylamp":
            assert state["version"] == version(lookup.LIBRARIES[state["name"]].distribution)


def test_every_extra_is_a_library_or_examined():
    extras = set(tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"])
    assert set(doctor.EXTRAS) == extras - set(lookup.LIBRARIES) - {"all", "docs", "test"}


def test_what_is_missing_or_broken_is_named_with_its_command(run, monkeypatch):
    here = dict(lookup.LIBRARIES)
    missing = replace(here["cleverhans"], module="not_there", attacks=here["cleverhans"].attacks)
    broken = replace(here["foolbox"].attacks[0], classes={"linf": ".attacks:NoSuchClass"})
    changed = here | {"cleverhans": missing, "foolbox": replace(here["foolbox"], attacks=(broken,))}
    monkeypatch.setattr(lookup, "LIBRARIES", changed)
    real = lookup.load_class

    def load(row, norm):
        if row.library == "cleverhans":
            raise lookup._missing(missing)
        return real(row, norm)

    monkeypatch.setattr(lookup, "load_class", load)
    document = json.loads(run("doctor", "--json")[1])
    states = {state["name"]: state for state in document["libraries"]}
    assert states["cleverhans"]["command"] == missing.command
    assert "NoSuchClass" in states["foolbox"]["problem"]
    code, out, _ = run("doctor")
    assert code == 0
    assert missing.command in out
    assert f"{len(here) - 2} of {len(here)}" in out.splitlines()[-1]


def test_an_extra_without_one_of_its_packages(monkeypatch):
    def without_ray(name):
        if name in ("ray", "imagecorruptions-imaug"):
            raise PackageNotFoundError(name)
        return distribution(name)

    assert not [state for state in doctor.examine_extras() if state.problem]
    monkeypatch.setattr(doctor, "distribution", without_ray)
    lacking = {state.name: state for state in doctor.examine_extras() if state.problem}
    assert lacking.keys() == {"ray", "corruptions"}
    assert lacking["ray"].command == 'pip install "davylamp[ray]"'
    assert "--no-deps" in lacking["corruptions"].command
