r"""Formulas of the metrics in LaTeX. A metric without one has the text that `davylamp metrics` prints.

x and x_a are the clean and the adversarial image, V the valid images (F(x) = y), S the valid images that are fooled, W
all images that are misclassified under attack, B those that both models get right, n the number of images.
"""

import re

_ALL = r"\frac{1}{n} \sum_{x} "
_VALID = r"\frac{1}{|V|} \sum_{x \in V} "
_FOOLED = r"\frac{1}{|S|} \sum_{x \in S} "
_WRONG = r"\frac{1}{|W|} \sum_{x \in W} "
_BOTH = r"\frac{1}{|B|} \sum_{x \in B} "
_SECOND = r"P_{(2)}(x_a)"

FORMULAS = {
    "CA": _ALL + r"[F(x) = y]",
    "CF": r"\frac{1}{K} \sum_{c=1}^{K} \frac{2 \, \mathrm{prec}_c \, \mathrm{rec}_c}{\mathrm{prec}_c + \mathrm{rec}_c},"
    r"\quad \mathrm{prec}_c = \frac{\mathrm{TP}_c}{\mathrm{TP}_c + \mathrm{FP}_c}, "
    r"\quad \mathrm{rec}_c = \frac{\mathrm{TP}_c}{\mathrm{TP}_c + \mathrm{FN}_c}",
    "CC": _ALL + r"P(x)_y",
    "RA": _ALL + r"[F(x) = y \text{ and } F(x_a) = y \text{ for every attack } a]",
    "MR": _VALID + r"[F(x_a) \neq y]",
    "TAS": r"\frac{1}{|\{x \in V : t \neq y\}|} \sum_{x \in V, \, t \neq y} [F(x_a) = t]",
    "AIAC": _VALID + r"\left( P(x_a)_{F(x_a)} - P(x)_{F(x)} \right)",
    "ARTC": _VALID + r"\left( P(x)_y - P(x_a)_y \right)",
    "AAW": _ALL + r"[F(x_a) = y], \quad a \text{ white-box}",
    "AAB": _ALL + r"[F(x_a) = y], \quad a \text{ black-box}",
    "ACAC": _WRONG + r"P(x_a)_{F(x_a)}",
    "ACTC": _WRONG + r"P(x_a)_y",
    "NTE": _WRONG + rf"\left( \max_c P(x_a)_c - {_SECOND} \right)",
    "ACAMC_A": _VALID + r"\cos\left( L(x, F(x)), L(x_a, F(x_a)) \right)",
    "ACAMC_T": _VALID + r"\cos\left( L(x, y), L(x_a, y) \right)",
    "OTR": r"\frac{1}{|S| \, (M - 1)} \sum_{x \in S} \sum_{m \neq \text{source}} [F_m(x_a) \neq y]",
    "QNC_F": _FOOLED + r"\text{forward}(x)",
    "QNC_B": _FOOLED + r"\text{backward}(x)",
    "AMD": _FOOLED + r"\max_j |x_{a,j} - x_j|",
    "AED": _FOOLED + r"\frac{\lVert x_a - x \rVert_2}{\sqrt{N}}",
    "APCR": _FOOLED + r"\frac{1}{N} \sum_j [r(x_{a,j}) \neq r(x_j)]",
    "ALD": _FOOLED + r"\frac{\lVert x_a - x \rVert_p}{\lVert x \rVert_p}",
    "RMSD": _ALL + r"d(x), \quad d(x) = \frac{\lVert r(x_a) - r(x) \rVert_2}{\sqrt{N}}",
    "PSNR": _ALL + r"20 \log_{10} \frac{255}{d(x)}",
    "PSD": _FOOLED + r"\sum_j \frac{|x_{a,j} - x_j|}{\mathrm{sd}(R_j(x))}",
    "FDL": _FOOLED + r"\frac{\lVert \mathrm{low}(x_a - x) \rVert_2}{\sqrt{N}}",
    "FDH": _FOOLED + r"\frac{\lVert \delta - \mathrm{low}(\delta) \rVert_2}{\sqrt{N}}, \quad \delta = x_a - x",
    "ALMS": _FOOLED + r"\sqrt{\sum_j w_j s_j^2}",
    "ADMS": _FOOLED + r"\left( 1 - \sum_{i,j} (\alpha_{ij} l_{ij} + \beta_{ij} s_{ij}) \right)",
    "ASS": _FOOLED + r"\mathrm{SSIM}(x, x_a)",
    "CAV": r"\mathrm{CA}_D - \mathrm{CA}_O = \mathrm{CRR} - \mathrm{CSR}",
    "FV": r"\mathrm{CF}_D - \mathrm{CF}_O",
    "CV": r"\mathrm{CC}_D - \mathrm{CC}_O",
    "CRR": _ALL + r"[F_O(x) \neq y \text{ and } F_D(x) = y]",
    "CSR": _ALL + r"[F_O(x) = y \text{ and } F_D(x) \neq y]",
    "CCV": _BOTH + r"|P_O(x)_y - P_D(x)_y|",
    "COS": _BOTH + r"\frac{\mathrm{KL}(P_O \,\|\, M) + \mathrm{KL}(P_D \,\|\, M)}{2}, \quad M = \frac{P_O + P_D}{2}",
    "MRV": r"\mathrm{MR}_D - \mathrm{MR}_O",
    "ARAC": _ALL + r"\left( P_O(x_{a,O})_{F_O(x_{a,O})} - P_D(x_{a,D})_{F_D(x_{a,D})} \right)",
    "AITC": _ALL + r"\left( P_D(x_{a,D})_y - P_O(x_{a,O})_y \right)",
    "AMDV": r"\mathrm{AMD}_D - \mathrm{AMD}_O",
    "AEDV": r"\mathrm{AED}_D - \mathrm{AED}_O",
    "APCRV": r"\mathrm{APCR}_D - \mathrm{APCR}_O",
    "ADMSV": r"\mathrm{ADMS}_D - \mathrm{ADMS}_O",
    "ALMSV": r"\mathrm{ALMS}_D - \mathrm{ALMS}_O",
    "FR@K": _ALL + r"\left[ 1 + |\{c : P(x_a)_c > P(x_a)_{F(x)}\}| > K \right]",
    "FR_AUC": r"\frac{1}{K_{\max} - K_{\min}} \int_{K_{\min}}^{K_{\max}} \mathrm{FR@}K \, dK",
    "QI_Wup": _ALL + r"[\mathrm{Wup}(F(x), F(x_a)) < 0.7], \quad \mathrm{Wup}(a, b) = "
    r"\frac{2 \, \mathrm{depth}(\mathrm{lca}(a, b))}{\mathrm{depth}(a) + \mathrm{depth}(b)}",
    "QI_Vis": _ALL + r"[\cos(W_{F(x)}, W_{F(x_a)}) < 0.1]",
    "QI_Wup_T": _ALL + r"[\mathrm{Wup}(t, F(x_a)) < 0.7]",
    "QI_Vis_T": _ALL + r"[\cos(W_t, W_{F(x_a)}) < 0.1]",
    "KMNCov": r"\frac{1}{k |U|} \sum_{u \in U} |\{\text{sections of } [l_u, h_u] \text{ that are reached}\}|",
    "NBCov": r"\frac{|\{u : f_u > h_u\}| + |\{u : f_u < l_u\}|}{2 |U|}",
    "SNACov": r"\frac{|\{u : f_u > h_u\}|}{|U|}",
    "TKNCov": r"\frac{|\{u : \text{among the } k \text{ most active of its layer for some image}\}|}{|U|}",
    "EBD2": r"\mathrm{mean}_x \min \{ s \leq 1000 : F(\mathrm{BIM}_s(x)) \neq y \}",
    "ENI": r"\mathrm{mean}_{x, m} \frac{|\ell(x, y) - \ell(m, y)|}{\lVert x - m \rVert_\infty}, "
    r"\quad 0 < \lVert x - m \rVert_\infty \leq \epsilon",
    "NS": r"\mathrm{mean}_{x, u} \frac{\lVert f_u(x) - f_u(x_a) \rVert_1}{\dim f_u}",
    "NU": r"\mathrm{mean}_{x, u} \, \mathrm{var}(f_u(x))",
    "CE": r"\sum_{s} E_{c,s}",
    "mCE": r"\frac{1}{C} \sum_{c} \mathrm{CE}_c",
    "RmCE": r"\frac{1}{C} \sum_{c} \sum_{s} (E_{c,s} - E_{\text{clean}})",
    "FP": r"\frac{|\{\text{adjacent frames with different predictions}\}|}{|\{\text{adjacent frames}\}|}",
    "mFR": r"\frac{1}{C} \sum_{c} \frac{\mathrm{FP}_c}{\mathrm{FP}_c^{\text{reference}}}",
    "D_half": r"\frac{\ln 2}{\lambda}, \quad \eta(d) = \eta(0) \, e^{-\lambda d} \text{ by least squares}",
    "OPT": r"1 - \frac{A - A^*}{\mathrm{CA} \, e - A^*}",
    "R8": _FOOLED + r"[F(r(x_a)) \neq y]",
    "RA_mean": r"\frac{1}{A} \sum_{a} \frac{1}{n} \sum_{x} [F(x) = y \text{ and } F(x_a) = y]",
    "l0": _FOOLED + r"|\{j : x_{a,j} \neq x_j\}|",
    "l1": _FOOLED + r"\sum_j |x_{a,j} - x_j|",
    "l2": _FOOLED + r"\sqrt{\sum_j (x_{a,j} - x_j)^2}",
    "linf": _FOOLED + r"\max_j |x_{a,j} - x_j|",
}

LETTERS = {  # what a formula may contain -> what it is
    r"x": "$x$: a clean image",
    r"x_a|x_\{a": "$x_a$: the adversarial image",
    r"y": "$y$: the true class",
    r"t": "$t$: the target class",
    r"P": "$P$: probabilities",
    r"F": "$F$: predicted class",
    r"n": "$n$: number of images",
    r"V": "$V$: valid images, $F(x) = y$",
    r"S": "$S$: valid images that the attack fools",
    r"W(?!_)": "$W$: images with $F(x_a) \\neq y$",
    r"B": "$B$: images that both models get right",
    r"[OD]": "$O$, $D$: the original and the defended model",
    r"N": "$N$: number of colour values",
    r"r(?=\()": "$r$: rounding to 8 bits",
    r"U|f_u": "$U$: neurons, $f_u$: activation, $[l_u, h_u]$: usual range",
    r"E": "$E_{c,s}$: error under corruption $c$ at severity $s$",
}


def letters_of(formula: str) -> list[str]:
    """Return the meanings of the letters in a formula."""
    plain = re.sub(r"\\(text|mathrm)\{[^}]*\}", " ", formula)
    meanings = [
        meaning for letter, meaning in LETTERS.items() if re.search(rf"(?<![A-Za-z\\])(?:{letter})(?![A-Za-z])", plain)
    ]
    return [*meanings, "$[\\ldots]$: 1 if true, else 0"] if re.search(r"\[[F\\1]", formula) else meanings
