"""AISafety, Table III (Liu, Guo et al.): accuracy under query-based attacks, and under PGD made on a surrogate."""

from typing import Any

from ..shared.paper_table import Options
from ..shared.reproduction import SettingRun, build_rows
from .setting import SURROGATE, attack_name, beside_both, compare_parts, missing_rows, setting_of

_QUERIES, _TRANSFERRED = ("NATTACK", "SPSA", "BA"), ("PGD-l1", "PGD-l2", "PGD-linf")
_READINGS = {
    "AAB": "accuracy over all images. PGD's examples are made on an Inception-V3 in the paper, and here on a small "
    "undefended network with a block of parallel convolutions, trained on the same digits. There is no surrogate for "
    "CIFAR-10. BA has no radius"
}


def compare_black_box(table: str, options: Options) -> dict[str, Any]:
    """Measure the accuracy of the models under query-based and transfer attacks, and compare it with Table III.

    Args:
        table: "aisafety_table3".
        options: options of the command.
    """

    def compare(run: SettingRun) -> dict[str, Any]:
        results, notes = build_rows(run.folder, ["AAB"], "pairs")
        lines = []
        for row in results.rows:
            model, title = row.labels["model"], row.labels["implementation"]
            implementation, via, surrogate = title.partition(" via ")
            name = attack_name(implementation, row.labels["norm"])
            line = f"{model}, {name} from {surrogate}" if via else f"{model}, {name}"
            made = beside_both(run, table, "AAB", model, line, row.metrics["AAB"], attack=name)
            why = "other surrogate" if via and not options.surrogate(SURROGATE) else ""
            lines += [each._replace(why=run.why_other(each) or why) for each in made]
        left_out = missing_rows(table, (*_QUERIES, *_TRANSFERRED))
        if not any(choice.surrogate for choice in run.plan.config.attacks):
            left_out |= dict.fromkeys(_TRANSFERRED, f"no surrogate for these data: --as {SURROGATE}=MODEL")
        return run.report(table, lines, readings=_READINGS, left_out=left_out, notes=notes)

    setting = setting_of(_QUERIES, table, images=30, transferred=_TRANSFERRED, measures=("effect",))
    return compare_parts(table, setting, options, compare)
