"""Example command lines, which the help of each command shows."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "attacks": ("davylamp attacks", "davylamp attacks pgd", "davylamp attacks --library foolbox,art --wide"),
    "metrics": ("davylamp metrics", "davylamp metrics AMD"),
    "defences": ("davylamp defences", "davylamp defences jpeg"),
    "corruptions": ("davylamp corruptions",),
    "corruptions run": (
        "davylamp corruptions run demo:efficientnet-lite0 --limit 10",
        "davylamp corruptions run net.py:make --data imagenet-c:PATH -o corrupted",
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
    "curves": ("davylamp curves results -o curves.pdf", "davylamp curves results --x-axis queries"),
    "measure": ("davylamp measure results --metric ALMS", "davylamp measure results --metric all"),
    "check": ("davylamp check results", "davylamp check results --probe"),
    "gate": (
        "davylamp gate results --require 'RA >= 0.5 @ linf 8/255'",
        "davylamp gate results --require 'RA >= 0.5' --against before --strict",
    ),
    "standing": ("davylamp standing results", "davylamp standing results --test-set cifar10"),
    "evidence": ("davylamp evidence results", "davylamp evidence results --model net.py:make -o evidence.html"),
    "test-attack": (
        "davylamp test-attack my_attack.py:MyAttack",
        "davylamp test-attack foolbox:pgd --misbehaving",
    ),
    "rank": ("davylamp rank results", "davylamp rank results --subjects attacks --method borda"),
    "reproduce": ("davylamp reproduce", "davylamp reproduce canary-table9"),
    "harden": ("davylamp harden net.py:make --data npz:images.npz --with trades --epochs 5",),
    "merge": ("davylamp merge results others -o merged",),
    "import": ("davylamp import attackbench runs.json -o results",),
    "export": (
        "davylamp export results results.zip --licence CC-BY-4.0",
        "davylamp export results verdict.zip --verdict --key author.pem",
        "davylamp export attackbench results -o for-attackbench",
    ),
    "verify": ("davylamp verify verdict.zip --model torchvision:resnet18",),
    "detectors": ("davylamp detectors", "davylamp detectors feature-squeezing"),
    "fit": (
        "davylamp fit feature-squeezing --model net.py:make --data npz:images.npz",
        "davylamp fit binary-input --model net.py:make --attack foolbox:pgd",
    ),
    "detect": ("davylamp detect results --detector detector.pt",),
    "report": ("davylamp report results -o report.html", "davylamp report before after -o changes.html"),
    "figure": ("davylamp figure results",),
    "cite": ("davylamp cite results -o refs.bib", "davylamp cite pgd foolbox MR"),
    "serve": ("davylamp serve results",),
    "serve-model": ("davylamp serve-model net.py:make --port 8001",),
    "server worker": ("davylamp server worker served --device cuda",),
    "server users": ("davylamp server users add ada served --admin",),
    "server backup": ("davylamp server backup served -o served.tar.gz",),
    "server restore": ("davylamp server restore served.tar.gz served-again",),
    "server submit": (
        "davylamp server submit model net.py --form code --entry make",
        "davylamp server submit task run.toml",
    ),
    "server tasks": ("davylamp server tasks", "davylamp server tasks 12"),
    "server fetch": ("davylamp server fetch 12 -o task12.zip",),
    "server verify": ("davylamp server verify task12.zip --key 3f0c...",),
    "doctor": ("davylamp doctor",),
    "quickstart": ("davylamp quickstart",),
}


def epilog_of(command: str) -> str | None:
    """Return the text with the examples of a command for its help. None if there are no examples."""
    lines = EXAMPLES.get(command)
    return None if lines is None else "\n\n".join(("Examples:", *(f"  {line}" for line in lines)))
