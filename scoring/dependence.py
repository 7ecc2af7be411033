"""What a fit takes for granted and results may not have: responses that are missing by chance, and are independent."""

import numpy as np
from scipy.stats import chi2


def missing_by_subject(missing: np.ndarray) -> float:
    """Probability that the subjects' numbers of missing responses differ this much by chance.

    Cochran's Q (1950) with the images as blocks, and with counts instead of 0 and 1 (Friedman 1937): were the names of
    the subjects exchanged on an image, all of its responses would go along, so responses to one image may depend.

    Args:
        missing: number of missing responses of each subject to each image, shape (N, images).

    Returns:
        A p-value; 1 if there is nothing to test.
    """
    spread = missing.var(0, ddof=1).sum() if len(missing) > 1 else 0.0
    if spread <= 0:
        return 1.0
    total = missing.sum(1)
    return float(chi2.sf(((total - total.mean()) ** 2).sum() / spread, len(missing) - 1))
