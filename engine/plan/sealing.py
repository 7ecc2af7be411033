"""What measures read from elsewhere, as part of their names: the data of a profile, the file of a hierarchy."""

from ...adapters import Classifier
from ...adapters.data.streaming import describe_files
from ...adapters.paths import expand_path
from ...errors import InvalidInput
from ..hierarchy import check_order, read_hierarchy
from ..measure_groups import digest_of_file, is_group, read_group, sealed_measure, with_setting
from .config import Config


def seal_groups(config: Config, classifier: Classifier | None = None) -> tuple[str, ...]:
    """The measures of a config, with what they read from elsewhere: the data of a profile, the file of a hierarchy.

    Args:
        config: what is to be done.
        classifier: the model that the profile is prepared for; None: nothing is read yet.

    Raises:
        InvalidInput: if coverage is asked for without a profile, or a profile without coverage.
        DavylampError: if there is no such data or file.
    """
    sealed = []
    groups = {measure: read_group(measure) for measure in config.measures if is_group(measure)}
    if config.profile and "coverage" not in {group.name for group in groups.values()}:
        raise InvalidInput("expected --metric coverage with a profile, got the profile alone")
    for measure in config.measures:
        group = groups.get(measure)
        if group is not None and group.name == "coverage":
            sealed.append(_seal_profile(measure, group["profile"], config.profile, classifier))
        elif group is not None and group.name == "confusion" and (group["hierarchy"] or config.hierarchy):
            path = group["hierarchy"] or config.hierarchy
            classes, wanted = len(read_hierarchy(expand_path(path))), classifier and classifier.num_classes
            if wanted and classes != wanted:
                raise InvalidInput(f"expected {wanted} classes in the hierarchy {path}, got {classes}")
            whole = measure if group["hierarchy"] else with_setting(measure, "hierarchy", path)
            sealed.append(sealed_measure(whole, digest_of_file(path)))
        else:
            sealed.append(measure)
    return tuple(sealed)


def note_hierarchies(config: Config, classifier: Classifier) -> list[str]:
    """What to say of the order of the classes in the hierarchies of a config, see `check_order`.

    Raises:
        DavylampError: if it is not the model's.
    """
    groups = [read_group(measure) for measure in config.measures if is_group(measure)]
    paths = [group["hierarchy"] or config.hierarchy for group in groups if group.name == "confusion"]
    return [note for path in paths if path and (note := check_order(path, classifier.class_names))]


def _seal_profile(measure: str, inside: str, beside: str, classifier: Classifier | None) -> str:
    """Coverage with the data of its profile, `inside` its name or `beside` it, and what these are."""
    if not (inside or beside):
        raise InvalidInput("expected data to take the neurons' ranges from: --profile DATA with coverage, got none")
    whole = measure if inside else with_setting(measure, "profile", beside)
    return whole if classifier is None else sealed_measure(whole, describe_files(classifier, inside or beside, None)[0])
