"""What davylamp needs to know of tiny_attacks: one record. It imports nothing heavy."""

from davylamp.adapters import Attack, Finding, Implementation, Library

LIBRARY = Library(
    "tiny",
    module="tiny_attacks",
    distribution="davylamp-tiny",
    attacks=(
        Implementation(
            "pgd",
            "tiny",
            classes={"linf": "tiny_attacks:pgd"},
            params={"steps": "n_steps", "step_size": "lr"},
            targeted="yes",
            findings=("no-start-in-the-ball",),
        ),
        Implementation(
            "corners",
            "tiny",
            classes={"linf": "tiny_attacks:Corners"},
            params={"steps": "tries"},
            random=("torch",),
        ),
    ),
    driver=".driver:run",
    package=__name__,
    introduces=(
        Attack("corners", "Random corners", "fixed-budget", "score-based", "tests of davylamp", {"steps": 20}),
    ),
    findings={"no-start-in-the-ball": Finding("always starts at the clean image")},
)
