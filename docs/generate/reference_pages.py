"""Renders reference pages from the code: parameters, indicators, reasons, results folder, configuration, presets."""

import inspect
import re
from collections import Counter
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from page_parts import prose, table

from davylamp.adapters import IMPLEMENTATIONS, PARAMETERS
from davylamp.adapters.catalogue.lookup import accepted_parameters
from davylamp.adapters.display_text import format_radius
from davylamp.adapters.parameters import FOREIGN
from davylamp.adapters.result import fault_of
from davylamp.adapters.running.judge import KINDS, LITTLE, UNCHANGED
from davylamp.engine.checks import indicators as thresholds
from davylamp.engine.checks.indicators import INDICATORS
from davylamp.engine.plan.config import AttackChoice, Config
from davylamp.engine.plan.presets import PRESETS
from davylamp.engine.plan.schema import option_of_field
from davylamp.engine.sharing.flat_tables import COLUMNS, MEANINGS
from davylamp.engine.statistics.verdict import SIGNIFICANT, TOO_MANY_VIOLATIONS
from davylamp.engine.store import store

PROBED = ("more-steps", "unbounded", "random-noise", "active-test")  # the indicators that need runs
FAULTS = {"model": "the model", "library": "the library", "unknown": "not known"}
FOLDERS = {  # kind of record -> what its folder holds
    "clean": "predictions on clean images: one file per model and data",
    "cells": "finished runs, one file each: a row per image",
    "parts": "finished shards of runs in progress",
    "transfer": "the same examples tested on other models (`--transfer`)",
    "fits": "what fitted attacks have learned: perturbations, generators",
    "checks": "short extra runs of `davylamp check --probe`",
    "plans": "runs that are still to be done",
    "corruptions": "predictions on corrupted images (`davylamp corruptions run`)",
    "references": "results of other programs on the same images (`davylamp import`)",
    "detections": "detector scores of the examples (`davylamp detect`)",
    "published": "rows of published leaderboards (`davylamp import robustbench`)",
}


def render_all() -> dict[str, str]:
    """Return the text of each page, by file name."""
    return {
        "parameters.md": parameters(),
        "indicators.md": indicators(),
        "reasons.md": reasons(),
        "results-folder.md": results_folder(),
        "configuration.md": configuration(),
        "presets.md": presets(),
    }


def parameters() -> str:
    """Render the page of the canonical parameters."""
    text = prose("""
        # Parameters of attacks

        One name with one meaning in all libraries, whatever a library calls it. In Python they are keyword arguments:
        `davylamp.compare("pgd", ..., steps=20)`. On the command line: `--param steps=20`. The page of each
        [attack](attacks/index.md) has each library's own name and default.
    """)
    taken = Counter(name for row in IMPLEMENTATIONS.values() for name in accepted_parameters(row))
    rows = []
    for name, each in PARAMETERS.items():
        others = ", ".join(f"`{other}`" for other, meant in FOREIGN.items() if meant == name)
        rows.append([f"`{name}`", each.meaning, each.type.__name__, _range(each), taken[name], others])
    text += table(["parameter", "meaning", "type", "range", "implementations", "also known as"], rows) + "\n"
    return text + prose("""
        `step_size` may depend on the radius: `"2.5 epsilon / steps"`. Numbers may be fractions: `8/255`.

        The norm, the radius (`epsilon`), the target class and the seed belong to the threat model and the run, not to
        the attack: `--norm`, `--epsilon`, `--target`, `--seed`.
    """)


def _range(parameter: Any) -> str:
    low, high = parameter.low, parameter.high
    if parameter.type not in (int, float):
        return "true, false" if parameter.type is bool else ""
    if high != float("inf"):
        return f"{low:g} to {high:g}"
    return f"> {low:g}" if parameter.useless == low else f">= {low:g}"


def indicators() -> str:
    """Render the page of the failure indicators."""
    text = prose(f"""
        # Failure indicators

        `davylamp check FOLDER` reports each of the {len(INDICATORS)} as pass, warn, fail or unknown, with the images
        concerned ([how to](../check.md)). If none fails, robustness is not proven: only these failures are ruled out.
    """)
    parts = {
        "From the stored results": [each for each in INDICATORS.values() if each.name not in PROBED],
        "From short extra runs (`--probe`)": [each for each in INDICATORS.values() if each.name in PROBED],
    }
    for title, listed in parts.items():
        rows = [[each.title, f"`{each.name}`", each.advice, each.source] for each in listed]
        text += (
            f"## {title}\n\n" + table(["indicator", "name in `--json`", "if it warns or fails", "source"], rows) + "\n"
        )
    text += prose(f"""
        ## Thresholds

        Indicators that compare rates or pairs pass if no image says otherwise, and fail if an exact
        test is significant at {SIGNIFICANT:.0%}. The others:
    """)
    return text + table(["indicator", "warns", "fails"], _thresholds())


def _thresholds() -> list[list[str]]:
    few, most = f"{thresholds.SEED_WARN:.0%}", f"{thresholds.SEED_FAIL:.0%}"
    lost = f"more than {thresholds.LOST_WARN:.0%} of the successes", f"more than {thresholds.LOST_FAIL:.0%}"
    invalid = ["one image", f"more than {TOO_MANY_VIOLATIONS:.0%} of the attacked images"]
    shorter = f"the median distance falls below {thresholds.SHRINK_WARN} of what it was, or a further image is fooled"
    return [
        *([INDICATORS[name].title, *invalid] for name in ("bounds", "returns", "evidence")),
        [INDICATORS["gradients"].title, "one image", f"more than {thresholds.GRADIENT_FAIL:.0%} of the images"],
        [INDICATORS["eight-bit"].title, *lost],
        [INDICATORS["seeds"].title, f"more than {few} of the images depend on the seed", f"more than {most}"],
        [f"{INDICATORS['more-steps'].title} (minimum-norm)", shorter, f"below {thresholds.SHRINK_FAIL}"],
        [INDICATORS["zero-epsilon"].title, "", "one image"],
    ]


def reasons() -> str:
    """Render the table of reasons for invalid results, which `invalid-results.md` includes."""
    rows = [[f"`{kind}`", meaning, FAULTS[fault_of([kind])]] for kind, meaning in KINDS.items()]
    text = table(["reason", "what happened", "fault"], rows) + "\n"
    return text + prose(f"""
        `unchanged` allows a change of a pixel by up to {UNCHANGED:g}, and `barely-moved` means less than {LITTLE:g} of
        the radius.
    """)


def results_folder() -> str:
    """Render the page of the files in a results folder and the columns of its tables."""
    text = prose("""
        # The results folder

        `davylamp evaluate -o results` writes one Parquet file per run: one implementation with fixed parameters and
        seed, on one model and one data set, with a row per image. Any Parquet reader opens it. Folders can be merged,
        packed into one file, and read while an evaluation is running.

        ```python
        frame = davylamp.load("results")  # every image of every finished run, as a pandas table
        ```

        ## Files
    """)
    rows = [["`davylamp.json`", "marks a results folder, with the version of its format"]]
    rows += [[f"`{kind}/`", FOLDERS[kind]] for kind in store.KINDS]
    rows += [["`images/`", "adversarial images, without loss (`--keep-images`)"]]
    rows += [["`locks/`", "which process works on what"]]
    text += table(["in the folder", "what it holds"], rows) + "\n"
    text += prose("""
        A file is called `KIND/KEY.CONTENT.parquet`. KEY is a hash of everything that can change the result: model,
        data, attack, parameters, threat model, seed, versions. CONTENT is a hash of the result. The file also holds a
        checksum of itself: a damaged file is reported and left out.

        ## Columns

        `davylamp.load` returns the first of these tables, `davylamp export FOLDER` writes all of them.
    """)
    text += table(["table", "rows"], [[f"{name}", meaning] for name, meaning in MEANINGS.items()]) + "\n"
    text += prose("""
        Each [metric](metrics/index.md) has a column with its symbol as name. `l2_8bit` and the like are distances after
        rounding to 8 bits.
    """)
    return text + table(["column", "meaning"], [[f"`{name}`", meaning] for name, meaning in COLUMNS.items()])


def configuration() -> str:
    """Render the page of the keys in a TOML file for `davylamp evaluate`."""
    text = prose("""
        # Configuration file

        ```
        davylamp evaluate --models net.py:make --attacks pgd --print-config > run.toml
        davylamp evaluate run.toml -o results
        ```

        `--print-config` writes the file for any options. An option on the command line takes precedence over the file.
        Numbers may be fractions in quotes. Without a file, the command line has `isolate = "auto"`.

        ```toml
        models = ["net.py:make", "timm:resnet18"]
        data = "imagefolder:photos"
        limit = 200

        [[attacks]]
        attack = "pgd"
        norm = "linf"
        epsilon = "4/255"

        [attacks.parameters]
        steps = 20
        ```
    """)
    return f"{text}## Keys\n\n{_keys(Config)}\n## Keys of an attack\n\n{_keys(AttackChoice)}"


def _keys(record: type) -> str:
    described = dict(
        re.findall(r"^ {4}(\w+): (.+?)(?=\n {4}\w+:|\n\n|\Z)", inspect.getdoc(record) or "", re.DOTALL | re.MULTILINE)
    )
    hints, rows = get_type_hints(record, include_extras=True), []
    for each in fields(record):
        if each.repr:
            option = option_of_field(hints[each.name])
            dashed = f"`--{option.name or each.name.replace('_', '-')}`" if option else ""
            meaning = option.help if option else " ".join(described[each.name].split())
            rows.append([f"`{each.name}`", meaning, _type(hints[each.name]), _default(each), dashed])
    return table(["key", "meaning", "type", "default", "option"], rows)


def _type(hint: Any) -> str:
    """Format a Python type in TOML's terms."""
    if hasattr(hint, "__metadata__"):
        return _type(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return ", ".join(get_args(hint))
    inside = [_type(each) for each in get_args(hint) if each not in (type(None), Ellipsis)]
    if get_origin(hint) is tuple:
        return f"list of {inside[0]}"
    names = {int: "whole number", float: "number", bool: "true or false", str: "text", AttackChoice: "text or table"}
    return names.get(hint) or (inside[0] if get_origin(hint) in (Union, UnionType) else "table")


def _default(each: Any) -> str:
    made = each.default if each.default_factory is MISSING else each.default_factory()
    if made is MISSING:
        return "required"
    if isinstance(made, tuple):
        made = ", ".join(item.attack if isinstance(item, AttackChoice) else str(item) for item in made)
    return f"`{str(made).lower() if isinstance(made, bool) else made}`" if made not in (None, "", {}) else ""


def presets() -> str:
    """Render the page of the presets."""
    text = prose("""
        # Presets

        The setting of a paper, as far as the libraries have its attacks:

        ```
        davylamp evaluate --preset robic --models demo:efficientnet-lite0 --limit 50 -o results
        davylamp evaluate --preset robic --print-config > robic.toml
        ```
    """)
    for name, preset in PRESETS.items():
        text += f"\n## `{name}`\n\n{preset.source}.\n\n"
        text += table(
            ["attack", "norm", "radius", "target", "parameters"],
            [_attack(each, preset.radii) for each in preset.config.attacks],
        )
        text += f"\nMetrics: {', '.join(f'[{symbol}](metrics/{_page(symbol)}.md)' for symbol in preset.metrics)}.\n"
        notes = [*preset.readings, *(f"not in any library here: {each}" for each in preset.missing)]
        text += "".join(f"\n- {line}" for line in notes) + "\n" if notes else ""
    return text


def _page(symbol: str) -> str:
    return "FR@K" if symbol.startswith("FR@") else symbol


def _attack(choice: AttackChoice, radii: Any) -> list[str]:
    small_large = [format_radius(choice.norm, each) for each in radii.get(choice.norm, ())]
    radius = format_radius(choice.norm, choice.epsilon) if choice.epsilon else " or ".join(small_large)
    given = ", ".join(f"`{name}={value}`" for name, value in choice.parameters.items())
    via = f" via {' + '.join(choice.surrogate)}" if choice.surrogate else ""
    return [f"`{choice.attack}`{via}", choice.norm or "", radius, choice.target, given]
