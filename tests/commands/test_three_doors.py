"""One evaluation as a TOML file, as options and as keywords: the same keys, and the same words where it is refused."""

import random
import re

import pytest
import tomli_w

from davylamp.api.evaluation import configure
from davylamp.engine.plan.cells import cells_of
from davylamp.engine.plan.config_file import config_from
from davylamp.errors import DavylampError

from davylamp.engine.attack_run import ModelOnData  # isort: skip

ATTACKS = {
    "foolbox:pgd": {"norm": ["linf", "l2"], "epsilon": [4 / 255, 0.1, "8/255"], "parameters": ["steps", "step_size"]},
    "pgd": {"norm": ["linf", "l2", None], "epsilon": [None, 0.05], "parameters": ["steps"]},
    "foolbox:fgsm": {"norm": ["linf", None], "epsilon": [None, "2/255"], "parameters": []},
    "foolbox:deepfool": {"norm": ["l2", None], "epsilon": [None], "parameters": ["steps", "overshoot"]},
    "best(foolbox:fgsm)": {"norm": ["linf"], "epsilon": [None], "parameters": []},
}
PARAMETERS = {"steps": [1, 3, 10], "step_size": [0.01, "1/255", "2.5 epsilon / steps"], "overshoot": [0.02]}
SETTINGS = {
    "data": ["demo:imagenet", "npz:images.npz"],
    "limit": [None, 1, 20],
    "images": [(), ("a", "b")],
    "libraries": [(), ("foolbox",), ("foolbox", "torchattacks")],
    "fixed": [False, True],
    "seeds": [(0,), (3,), (1, 2)],
    "max_queries": [None, 500],
    "batch_size": [None, 8],
    "precision": [None, "bfloat16"],
    "shard_size": [64, 16],
    "order": ["given", "cheap-first"],
    "eight_bit": [False, True],
    "transfer": ["no", "full"],
    "keep_images": [False, True],
    "judge_samples": [20, 7],
    "eot": [1, 4],
    "isolate": ["no", "auto"],
    "time_limit": [600.0, 2.5],
    "memory_limit": [None, 3.0],
    "timeout": [60.0, 5.0],
    "request_rate": ["", "20", "5 requests"],
    "no_cache": [False, True],
}
NAMES = {"images": "image", "libraries": "library", "seeds": "seed", "measures": "metric", "parameters": "param"}
WRONG = [
    {"limit": 0},
    {"seeds": (-1,)},
    {"libraries": ("foolbx",)},
    {"batch_size": "many"},
    {"shard_size": 1.5},
    {"precision": "float16"},
    {"precision": "tf32"},
    {"order": "fast"},
    {"transfer": "all"},
    {"judge_samples": 0},
    {"eot": 10**9},
    {"isolate": "maybe"},
    {"time_limit": 0.0},
    {"memory_limit": -1.0},
    {"request_rate": "fast"},
    {"timeout": 0.0},
    {"preset": "canari"},
    {"norm": "l7"},
    {"epsilon": -0.5},
    {"epsilon": "8/x"},
    {"target": "third-likely"},
]


def draw(seed):
    """An attack with its threat model and parameters, and settings, all of them plain values."""
    chance = random.Random(seed)
    attack = chance.choice([*ATTACKS])
    known = ATTACKS[attack]
    threat = {name: value for name in ("norm", "epsilon") if (value := chance.choice(known[name])) is not None}
    if threat.get("norm") is None and attack != "foolbox:fgsm":
        threat.pop("epsilon", None)
    if chance.random() < 0.2 and attack == "foolbox:pgd":
        threat["target"] = chance.choice(["second-likely", "3"])
    if chance.random() < 0.3:
        threat["defaults"] = True
    words = [name for name in known["parameters"] if chance.random() < 0.6]
    parameters = {name: chance.choice(PARAMETERS[name]) for name in words}
    if "epsilon / steps" in str(parameters.get("step_size")):
        parameters["steps"] = 10
    settings = {name: chance.choice(values) for name, values in SETTINGS.items()}
    if "foolbox" in attack or attack == "pgd":
        settings["libraries"] = chance.choice([(), ("foolbox",)])
    return attack, threat, parameters, settings


def as_toml(attack, threat, parameters, settings):
    table = {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
    table["attacks"] = [{"attack": attack, **threat, "parameters": parameters}]
    return {name: value for name, value in table.items() if value is not None}


def as_options(attack, threat, parameters, settings):
    words = ["--attacks", attack, *(f"--param={name}={value}" for name, value in parameters.items())]
    for name, value in {**threat, **settings}.items():
        option = f"--{NAMES.get(name, name).replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, tuple):
            words += [f"{option}={each}" for each in value]
        elif value is not None and value is not False and value != "":
            words.append(f"{option}={value}")
    return words


def keys_of(config):
    """The cells of a config on a model that need not be loaded."""
    model = ModelOnData("m", "0" * 16, config.data, "1" * 16, 5)
    return {cell.key for _, cell in cells_of(config, model, 3 * 8 * 8, {})}


@pytest.mark.parametrize("seed", range(60))
def test_one_evaluation_in_three_forms_has_the_same_keys(run, tmp_path, seed):
    case = draw(seed)
    attack, threat, parameters, settings = case
    config = configure(attacks=attack, **threat, parameters=parameters, **settings)
    (tmp_path / "run.toml").write_text(tomli_w.dumps(as_toml(*case)))
    code, of_file, err = run("evaluate", tmp_path / "run.toml", "--print-config")
    assert code == 0, err
    code, of_options, err = run("evaluate", *as_options(*case), "--print-config")
    assert code == 0, err
    configs = [config, config_from(read(of_file)), config_from(read(of_options))]
    assert keys_of(configs[0])
    assert keys_of(configs[0]) == keys_of(configs[1]) == keys_of(configs[2])
    assert configs[0] == configs[1] == configs[2]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_wrong_value_is_refused_in_three_forms_with_the_same_words(run, tmp_path, wrong):
    threat = {name: value for name, value in wrong.items() if name in ("norm", "epsilon", "target")}
    settings = {name: value for name, value in wrong.items() if name not in threat}
    with pytest.raises(DavylampError) as caught:
        configure(attacks="foolbox:pgd", **threat, **settings)
    (tmp_path / "run.toml").write_text(tomli_w.dumps(as_toml("foolbox:pgd", threat, {}, settings)))
    code, _, of_file = run("evaluate", tmp_path / "run.toml", "--print-config")
    assert code == 1
    of_file = of_file.removeprefix("davylamp: ").removeprefix(f"{tmp_path / 'run.toml'}: ").strip()
    code, _, of_options = run("evaluate", *as_options("foolbox:pgd", threat, {}, settings), "--print-config")
    assert code == 1
    of_options = of_options.removeprefix("davylamp: ").strip()
    assert plain(str(caught.value)) == plain(of_file) == plain(of_options)
    (name,) = wrong
    option = NAMES.get(name, name).replace("_", "-")
    assert f"--{option}" in of_options or f"unknown {option} " in of_options


def plain(message):
    """A message without the name of what it is about."""
    return re.sub(r"^(unknown )?[-\w.\[\]]+(:| (?='))", r"\1NAME\2", message)


def read(text):
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)
