"""Cells of a results folder as Every Eval Ever's JSON (schema 0.3.0), a file for each model."""

import hashlib
import json
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from ... import __version__
from ...adapters.models.remote.address import is_address
from ...errors import Unavailable, Unsupported
from ..cell import ModelOnData
from ..store.files import expand_path, write_whole
from ..store.outcomes import Outcome, outcomes_of
from ..tables.groups import model_names
from ..tables.table import TableRow, build_table

SCHEMA = "0.3.0"
_HUBS = {"hf": "", "timm": "timm/", "torchvision": "pytorch/"}  # before a name that has no organisation
_METRICS: Mapping[str, tuple[str, str, bool]] = {
    "CA": ("Clean accuracy", "share of the images that the model gets right", False),
    "RA": (
        "Robust accuracy",
        "share of all images that stay right under the attack; violations do not count",
        False,
    ),
    "MR": ("Misclassification ratio", "share of the images that were right when clean and are fooled", True),
}


class Evaluations(NamedTuple):
    """The files that were written, and a line for everything that has no place in them."""

    files: list[Path]
    notes: list[str]


class _OnData(NamedTuple):
    """One model on one data set: its finished cells, and the rows of their table."""

    done: tuple[Outcome, ...]
    rows: tuple[TableRow, ...]

    @property
    def subject(self) -> ModelOnData:
        return self.done[0].cell.subject


def export_every_eval_ever(
    folder: str | Path, path: str | Path, *, creator: str = "", bootstrap: int = 1000, seed: int = 0
) -> Evaluations:
    """Write accuracy, robust accuracy and misclassification ratio of every model, with n and 95 % intervals.

    Args:
        folder: made by `davylamp evaluate`.
        path: a folder for the files, `davylamp/DEVELOPER/MODEL/UUID.json`; made if its parent is there.
        creator: the organisation that reports; "": "not stated".
        bootstrap: replicates of intervals that are not of shares.
        seed: random seed of the resampling.

    Raises:
        Unavailable: if there is no such folder, or a file cannot be written.
        Unsupported: if there is no finished cell.
    """
    outcomes = outcomes_of(folder)
    if not outcomes.done:
        raise Unsupported(f"expected finished cells in {folder}, got none")
    target, files, names = expand_path(path), [], model_names(outcomes)
    notes = [f"left out, as it failed: {cell.title} on {cell.subject.model}" for cell, _ in outcomes.failed]
    measured: dict[str, list[_OnData]] = {}
    for key in dict.fromkeys(outcome.cell.subject.key for outcome in outcomes.done):
        done = tuple(outcome for outcome in outcomes.done if outcome.cell.subject.key == key)
        table = build_table(
            replace(outcomes, done=done, failed=()),
            metrics=["CA", "RA", "MR"],
            by="pairs",
            bootstrap=bootstrap,
            seed=seed,
        )
        measured.setdefault(names[key], []).append(_OnData(done, table.rows))
    for model, sets in measured.items():
        document = _document(model, sets, creator)
        if not document["evaluation_results"]:
            notes.append(f"left out, as nothing was measured: {model}")
            continue
        developer, _, name = document["model_info"]["id"].partition("/")
        place = target / "davylamp" / _plain(developer) / _plain(name)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"could not make {place} ({error.strerror or error}); choose another with -o") from error
        file = place / f"{_identity(document)}.json"
        text = json.dumps(document, indent=2, allow_nan=False) + "\n"
        files.append(write_whole(file, text, advice="choose another folder with -o"))
    return Evaluations(files, notes)


def _document(model: str, sets: Sequence[_OnData], creator: str) -> dict[str, Any]:
    """What the schema calls an evaluation log: one model, every result on every data set."""
    metas = [outcome.meta for each in sets for outcome in each.done]
    written = max((str(meta.get("written", "")) for meta in metas), default="")
    results = [result for each in sets for result in _results(each)]
    remote = is_address(model)
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"davylamp/{model}/{written}",
        "evaluation_timestamp": written,
        "retrieved_timestamp": _epoch(written),
        "source_metadata": {
            "source_name": "davylamp",
            "source_type": "evaluation_run",
            "source_organization_name": creator or "not stated",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "davylamp", "version": _versions(metas) or __version__},
        "model_info": {
            "name": model,
            "id": _identifier(model),
            "additional_details": {
                "deployment_type": "externally_managed" if remote else "self_deployed",
                "model_availability": "unknown",
                "davylamp_model_digest": sets[0].subject.model_digest,
            },
        },
        "evaluation_results": results,
    }


def _results(measured: _OnData) -> list[dict[str, Any]]:
    """The clean accuracy on one data set, and both numbers of each attack on it; none that is undefined."""
    subject = measured.subject
    results = [_result("CA", measured.rows[0], "no attack", {}, subject)]
    for row in measured.rows:
        labels = row.labels
        radius = labels["epsilon"]
        free = isinstance(radius, float) and math.isnan(radius)
        title = f"{labels['implementation']}, {labels['norm']}{'' if free else f', radius {radius:.6g}'}"
        title += ", targeted" if labels["targeted"] else ""
        names = ("implementation", "norm", *(() if free else ("epsilon",)), "setting")
        about = {name: str(labels[name]) for name in names if labels[name] != ""}
        results += [_result(symbol, row, title, about, subject) for symbol in ("RA", "MR")]
    return [result for result in results if result]


def _result(symbol: str, row: TableRow, title: str, about: Mapping[str, str], subject: ModelOnData) -> dict[str, Any]:
    """One number; {} where it is undefined."""
    data = subject.data
    estimate, (name, meaning, lower) = row.metrics[symbol], _METRICS[symbol]
    if math.isnan(estimate.value):
        return {}
    uncertainty: dict[str, Any] = {"num_samples": int(estimate.n)}
    if math.isfinite(estimate.low) and math.isfinite(estimate.high):
        interval = {"lower": float(estimate.low), "upper": float(estimate.high), "confidence_level": 0.95}
        uncertainty["confidence_interval"] = {**interval, "method": "Clopper-Pearson, clustered by image"}
    identity = f"{subject.key} {row.labels} {symbol} {title}"
    return {
        "evaluation_result_id": hashlib.sha256(identity.encode()).hexdigest()[:20],
        "evaluation_name": f"{data}: {title}",
        "source_data": {"dataset_name": data, "source_type": "other"},
        "metric_config": {
            "evaluation_description": meaning,
            "metric_id": f"davylamp.{symbol.lower()}",
            "metric_name": name,
            "metric_kind": "accuracy" if symbol != "MR" else "error_rate",
            "metric_unit": "proportion",
            "lower_is_better": lower,
            "score_type": "continuous",
            "min_score": 0,
            "max_score": 1,
            **({"additional_details": dict(about)} if about else {}),
        },
        "score_details": {"score": float(estimate.value), "uncertainty": uncertainty},
    }


def _identifier(model: str) -> str:
    """DEVELOPER/MODEL, as the schema asks; "local" where a model is nobody's known one."""
    hub, _, name = model.partition(":")
    if hub in _HUBS and name and not name.startswith((".", "/", "~")):  # a folder is on no hub
        return name if "/" in name else f"{_HUBS[hub] or 'local/'}{name}"
    return f"local/{_plain(model)}"


def _versions(metas: list[Mapping[str, Any]]) -> str:
    return ", ".join(
        sorted({str(meta["versions"]["davylamp"]) for meta in metas if "davylamp" in meta.get("versions", {})})
    )


def _epoch(written: str) -> str:
    """Seconds since 1970 of a time as it is stored; "0" where none is."""
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        return "0"
    return str(int((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()))


def _identity(document: Mapping[str, Any]) -> str:
    """A version 4 UUID that is the same for the same document."""
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


def _plain(text: str) -> str:
    """A text that is a file's name anywhere."""
    return re.sub(r"[^A-Za-z0-9_.@+-]+", "_", text).strip("._") or "_"
