"""Rankings of models, attacks and defences by item response theory; imports nothing else of the project."""

from ..conventions import KNOWLEDGE
from .baselines import Dropped, agreement, bootstrap, borda, drop_each, plain_mean
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
    kinds_of,
    libraries_of,
)
from .placement import Placement, place_newcomer, place_results
from .projections import Projection, Subsample, describe_projections, project_pairs, rank_subsamples
from .ranking import Ranking, rank_matrix, rank_responses, rank_results
from .response_model import ResponseModel
from .responses import Responses, build_responses, check_several, choose_results, complete_items, of_subjects
from .significance import design_effect, missing_by_subject

__all__ = [
    "FALSE",
    "KNOWLEDGE",
    "RULES",
    "VIEWS",
    "Diagnostics",
    "Dropped",
    "IRTFit",
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
    "check_responses",
    "check_several",
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
    "drop_each",
    "fit_irt",
    "informative_items",
    "kinds_of",
    "libraries_of",
    "metrics_of",
    "missing_by_subject",
    "of_subjects",
    "place_newcomer",
    "place_results",
    "place_row",
    "plain_mean",
    "project_pairs",
    "rank_matrix",
    "rank_metrics",
    "rank_responses",
    "rank_results",
    "rank_subsamples",
    "rank_table",
]
