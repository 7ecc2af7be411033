"""Topics of standards, taxonomies and laws for which measurements of robustness are evidence."""

from typing import NamedTuple

STATES = ("measured", "partly measured", "not measured", "outside davylamp")
LIMITS = (
    "This page lists measurements. It is not an assessment of conformity, which depends on the intended use, on the "
    "whole system and on the documents themselves.",
    "Robust accuracy under attacks is an upper bound: a stronger attack can lower it.",
    "The AI Act's duties for high-risk systems apply from December 2027; FDA's guidance is a draft.",
)


class Demand(NamedTuple):
    """A topic of a standard, taxonomy or law.

    Args:
        document: title of the document.
        place: section of the document, or its id for the topic.
        topic: the topic.
        needs: measurements of davylamp that are evidence on the topic (keys of `COMMANDS`). Empty if there are none.
    """

    document: str
    place: str
    topic: str
    needs: tuple[str, ...] = ()


_OVERVIEW, _FORMAL, _NIST, _ATLAS, _AI_ACT, _FDA = TITLES = {
    "ISO 24029-1": "ISO/IEC TR 24029-1:2021, Assessment of the robustness of neural networks: overview",
    "ISO 24029-2": "ISO/IEC 24029-2:2023, Methodology for the use of formal methods",
    "NIST AI 100-2": "NIST AI 100-2e2025, Adversarial machine learning: taxonomy and terminology (evasion)",
    "MITRE ATLAS": "MITRE ATLAS, techniques",
    "AI Act": "AI Act, Regulation (EU) 2024/1689",
    "FDA draft": "FDA draft guidance on AI-enabled device software functions, January 2025",
}
DEMANDS = (
    Demand(_OVERVIEW, "statistical methods", "performance on a test set", ("accuracy", "white-box")),
    Demand(_OVERVIEW, "formal methods", "a property proved for a region of inputs", ("certificate",)),
    Demand(_OVERVIEW, "empirical methods", "performance under realistic changes of the inputs", ("corruptions",)),
    Demand(_FORMAL, "5.3 stability", "one predicted class, proved for a region of inputs", ("certificate",)),
    Demand(_FORMAL, "5.4 sensitivity", "bounded change of the output on a region of inputs"),
    Demand(_FORMAL, "5.5 relevance", "inputs on which the output depends"),
    Demand(_FORMAL, "5.6 reachability", "outputs that can be reached from a region of inputs"),
    Demand(_NIST, "white-box evasion", "attacks with the model's gradients", ("white-box",)),
    Demand(_NIST, "black-box evasion", "attacks with the model's scores or decisions", ("black-box",)),
    Demand(_NIST, "transferability of attacks", "examples made on other models", ("transfer",)),
    Demand(_NIST, "mitigations of evasion", "defences under adaptive attacks", ("adaptive", "indicators")),
    Demand(_NIST, "mitigations of evasion", "certified robustness", ("certificate",)),
    Demand(_NIST, "poisoning, privacy", "attacks on training data and confidentiality"),
    Demand(_ATLAS, "AML.T0043.000", "craft adversarial data: white-box optimization", ("white-box",)),
    Demand(_ATLAS, "AML.T0043.001", "craft adversarial data: black-box optimization", ("black-box",)),
    Demand(_ATLAS, "AML.T0043.002", "craft adversarial data: black-box transfer", ("transfer",)),
    Demand(_ATLAS, "AML.T0043.003", "craft adversarial data: manual modification"),
    Demand(_ATLAS, "AML.T0020", "poison training data"),
    Demand(_AI_ACT, "Article 15(1), (3)", "levels of accuracy and robustness, declared", ("accuracy", "white-box")),
    Demand(_AI_ACT, "Article 15(4)", "resilience to errors, faults and inconsistencies", ("corruptions",)),
    Demand(_AI_ACT, "Article 15(5)", "adversarial examples, model evasion", ("white-box", "black-box", "indicators")),
    Demand(_AI_ACT, "Article 15(5)", "data and model poisoning, attacks on confidentiality"),
    Demand(_FDA, "performance validation", "performance on independent test data", ("accuracy",)),
    Demand(_FDA, "performance validation", "performance in subgroups of patients"),
    Demand(_FDA, "cybersecurity", "model evasion", ("white-box", "black-box")),
    Demand(_FDA, "cybersecurity", "data poisoning, model inversion, data leakage, performance drift"),
)
COMMANDS = {  # how to make each measurement
    "accuracy": "davylamp evaluate",
    "white-box": "davylamp evaluate --preset autoattack",
    "black-box": "davylamp evaluate --attacks square,hopskipjump",
    "transfer": "davylamp evaluate --transfer full, or --surrogate",
    "corruptions": "davylamp corruptions run",
    "indicators": "davylamp check FOLDER --probe",
    "adaptive": "davylamp challenge",
    "certificate": "davylamp certify (prints certificates, which a results folder does not keep)",
}
