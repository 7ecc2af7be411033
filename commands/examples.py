"""Examples in the help of each command."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "attacks": ("davylamp attacks", "davylamp attacks pgd", "davylamp attacks --library foolbox,art --wide"),
    "metrics": ("davylamp metrics", "davylamp metrics AMD"),
    "defences": ("davylamp defences", "davylamp defences jpeg"),
    "corruptions": ("davylamp corruptions",),
    "corrupt-table": (
        "davylamp corrupt-table demo:efficientnet-lite0 --limit 10",
        "davylamp corrupt-table net.py:make --data imagenet-c:PATH -o corrupted",
    ),
    "robust-accuracy": (
        "davylamp robust-accuracy demo:efficientnet-lite0 --limit 10",
        "davylamp robust-accuracy net.py:make --data npz:d.npz --epsilon 8/255",
    ),
    "compare": (
        "davylamp compare pgd --epsilon 4/255 --limit 5",
        "davylamp compare cw --model torchvision:resnet18 --data imagefolder:PATH",
    ),
    "saturation": ("davylamp saturation pgd --norm linf --limit 5",),
    "evaluate": (
        "davylamp evaluate --attacks pgd,square --epsilon 4/255 --limit 5",
        "davylamp evaluate --models net.py:make --data npz:d.npz --attacks best",
        "davylamp evaluate --preset autoattack --models demo:efficientnet-lite0",
    ),
    "challenge": ("davylamp challenge demo:efficientnet-lite0+jpeg:quality=50 --quick",),
    "certify": ("davylamp certify net.py:make+smoothing:sigma=0.25 --limit 20",),
    "status": ("davylamp status results",),
    "table": (
        "davylamp table results",
        "davylamp table results --by models --metric CA,RA",
        "davylamp table results --latex > table.tex",
    ),
    "curve": ("davylamp curve results -o curves.pdf", "davylamp curve results --against queries"),
    "check": ("davylamp check results", "davylamp check results --run"),
    "gate": (
        "davylamp gate results --require 'RA >= 0.5 @ linf 8/255'",
        "davylamp gate results --require 'RA >= 0.5' --against before --strict",
    ),
    "standing": ("davylamp standing results", "davylamp standing results --test-set cifar10"),
    "contract": ("davylamp contract my_attack.py:MyAttack",),
    "conformance": ("davylamp conformance foolbox:pgd",),
    "rank": ("davylamp rank results", "davylamp rank results --subjects attacks --method borda"),
    "reproduce": ("davylamp reproduce", "davylamp reproduce canary-table9"),
    "harden": ("davylamp harden net.py:make --data npz:images.npz --with trades --epochs 5",),
    "merge": ("davylamp merge results others -o merged",),
    "import": ("davylamp import attackbench runs.json -o results",),
    "export": ("davylamp export attackbench results -o for-attackbench",),
    "detectors": ("davylamp detectors", "davylamp detectors feature-squeezing"),
    "train": (
        "davylamp train feature-squeezing --model net.py:make --data npz:images.npz",
        "davylamp train binary-input --model net.py:make --attack foolbox:pgd",
    ),
    "detect": ("davylamp detect results --detector detector.pt",),
    "report": ("davylamp report results -o report.html", "davylamp report before after -o changes.html"),
    "figure": ("davylamp figure results",),
    "cite": ("davylamp cite results -o refs.bib", "davylamp cite pgd foolbox MR"),
    "serve": ("davylamp serve results",),
    "serve-model": ("davylamp serve-model net.py:make --port 8001",),
    "work": ("davylamp work served --device cuda",),
    "users": ("davylamp users add ada served --admin",),
    "backup": ("davylamp backup served -o served.tar.gz",),
    "restore": ("davylamp restore served.tar.gz served-again",),
    "submit": ("davylamp submit model net.py --form code --entry make", "davylamp submit task run.toml"),
    "tasks": ("davylamp tasks", "davylamp tasks 12"),
    "fetch": ("davylamp fetch 12 -o task12.zip",),
    "verify": ("davylamp verify task12.zip --key 3f0c...",),
    "doctor": ("davylamp doctor",),
    "quickstart": ("davylamp quickstart",),
}


def epilog_of(command: str) -> str | None:
    """Return the examples of a command for its help; None if it has none."""
    lines = EXAMPLES.get(command)
    return None if lines is None else "\n\n".join(("Examples:", *(f"  {line}" for line in lines)))
