"""The words of the page."""

from ..parts.blocks import Facts, Section

_TERMS = (
    ("adversarial example", "an image changed within the threat model so that the classifier misclassifies it"),
    ("attack", "an algorithm that searches for adversarial examples, whatever the library: PGD, C&W, Square"),
    ("attacked", "an image that the model classifies correctly when clean; MR and distances count only those"),
    ("cell", "one model, one data set, one implementation, one threat model, one seed: what is run and stored"),
    ("confidence interval", "95 %; of a share by Clopper and Pearson, with the effective number of images where the "
     "same images count several times; of another mean by bootstrap over the images, from 5 images on"),
    ("decision-based, score-based, white-box", "what an attack sees: the predicted class, the outputs, or everything"),
    ("epsilon", "the radius of the ball that bounds the change, on pixels in [0, 1]"),
    ("equivalent", "success rates at most 5 points apart (equivalence test: two one-sided tests at 5 %) and, for the "
     "smallest change, a median ratio of distances within 5 % of 1"),
    ("failure indicator", "a sign that an evaluation went wrong, so that robustness is only apparent"),
    ("fooled", "an attacked image that the model misclassifies afterwards (or classifies as the target, if any)"),
    ("implementation", "one library's version of an attack: foolbox:pgd"),
    ("interval of a rank", "the ranks that remain plausible (95 %) given the uncertainty of the scores"),
    ("item response theory", "a model in which each image has a difficulty and each subject an ability, in logits"),
    ("no difference found", "these images show none, which does not prove that there is none: see equivalent"),
    ("passes", "images sent through the model, forward or backward, counted by davylamp and not by the library"),
    ("robust accuracy (RA)", "share of all images correct when clean and not fooled by any attack of the threat model, "
     "image by image (the worst case); of one attack, by that attack; a violation is not robust"),
    ("mean robust accuracy (RA_mean)", "the mean over the attacks of the robust accuracy under each alone"),
    ("smallest change", "an attack without a radius: it searches for the nearest adversarial example"),
    ("threat model", "what the attacker may do: norm, epsilon, targeted or not"),
    ("tie group", "subjects that share a letter do not differ significantly at 95 %, corrected over all pairs"),
    ("undecided", "so few images that no outcome at all could have been significant"),
    ("violation", "a result that breaks a rule: NaN, black, outside [0, 1] or the ball; neither fooled nor robust"),
    ("worst case", "an image counts as robust only if it stays correct under every attack of the threat model"),
)  # fmt: skip


def write_glossary() -> Section:
    """Terms and what they mean here."""
    return Section("glossary", "Glossary", "", (Facts(_TERMS),))
