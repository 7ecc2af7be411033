"""The kit as a whole: programs that lie or misbehave, each with a line that says how."""

import importlib
from pathlib import Path

TOPICS = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("test_"))


def test_the_kit_has_its_programs_and_each_is_tested():
    programs = {}
    for topic in TOPICS:
        kit = importlib.import_module(f"tests.hostile.{topic}")
        programs |= {(topic, name): each for name, each in kit.PROGRAMS.items()}
        assert Path(__file__).with_name(f"test_{topic}.py").is_file()
    assert len(programs) >= 60
    nameless = [name for name, each in programs.items() if callable(each) and not each.__doc__]
    assert nameless == []
