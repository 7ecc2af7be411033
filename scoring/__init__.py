"""Rankings of models, attacks and defences by item response theory, from a matrix of responses."""

from typing import Any

from ..conventions import KNOWLEDGE
from ..deprecation import current_name
from .baselines import LeaveOneOut, agreement, bootstrap, borda, leave_one_out, mean_response
from .canary import RULES, VIEWS, metrics_of, place_row, rank_metrics, rank_table
from .diagnostics import Diagnostics, diagnose
from .irt import IRTFit, check_responses, choose_model, fit_irt
from .items import (
    FALSE,
    describe_differences,
    describe_items,
    differential_groups,
    differential_items,
    informative_items,
    item_kinds,
    libraries_of,
)
from .placement import Placement, place_new_subject, place_results
from .projections import Projection, Subsample, describe_projections, project_pairs, rank_subsamples
from .ranking import Ranking, rank_matrix, rank_responses, rank_results
from .response_model import ResponseModel
from .responses import Responses, build_responses, check_rankable, choose_results, complete_items, of_subjects
from .significance import design_effect, missing_by_subject

__all__ = [
    "FALSE",
    "KNOWLEDGE",
    "RULES",
    "VIEWS",
    "Diagnostics",
    "IRTFit",
    "LeaveOneOut",
    "Placement",
    "Projection",
    "Ranking",
    "ResponseModel",
    "Responses",
    "Subsample",
    "agreement",
    "bootstrap",
    "borda",
    "build_responses",
    "check_rankable",
    "check_responses",
    "choose_model",
    "choose_results",
    "complete_items",
    "describe_differences",
    "describe_items",
    "describe_projections",
    "design_effect",
    "diagnose",
    "differential_groups",
    "differential_items",
    "fit_irt",
    "informative_items",
    "item_kinds",
    "leave_one_out",
    "libraries_of",
    "mean_response",
    "metrics_of",
    "missing_by_subject",
    "of_subjects",
    "place_new_subject",
    "place_results",
    "place_row",
    "project_pairs",
    "rank_matrix",
    "rank_metrics",
    "rank_responses",
    "rank_results",
    "rank_subsamples",
    "rank_table",
]

_RENAMED = {
    "Dropped": "LeaveOneOut",
    "check_several": "check_rankable",
    "drop_each": "leave_one_out",
    "kinds_of": "item_kinds",
    "place_newcomer": "place_new_subject",
    "plain_mean": "mean_response",
}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module 'davylamp.scoring' has no attribute {name!r}")
    return globals()[current_name("davylamp.scoring", name, _RENAMED)]
