"""Random image transformations from several libraries, with new random numbers in every query.

Each image of a batch gets different numbers. torch's transformations use torch's global generator, and ART's use
NumPy's. The caller seeds both (`running.seeding.seeded`).
"""

import numpy as np
import torch
from torch import Tensor, nn

from ..clamp import clamp_with_edge_gradient
from ..classifier import Classifier
from .transforms import ArtTransform, Transform


class TorchvisionResizePad(Transform):
    """Random shrinking with nearest-neighbour sampling.

    The smaller image is put at a random place on a black image of the original size.
    """

    smallest: float

    def _change(self, images: Tensor) -> Tensor:
        return torch.stack([self._place(image) for image in images])

    def _place(self, image: Tensor) -> Tensor:
        from torchvision.transforms.v2.functional import InterpolationMode, pad, resize

        height, width = image.shape[-2:]
        share = self.smallest + (1 - self.smallest) * float(torch.rand((), device="cpu"))
        rows, columns = (max(1, round(share * side)) for side in (height, width))
        smaller = resize(image, [rows, columns], InterpolationMode.NEAREST, antialias=False)
        top, left = (int(torch.randint(room + 1, (), device="cpu")) for room in (height - rows, width - columns))
        return pad(smaller, [left, top, width - columns - left, height - rows - top])


class TorchvisionCropRescale(Transform):
    """Random crop of the image, enlarged to the original size with torchvision's bilinear interpolation."""

    scale: float

    def _change(self, images: Tensor) -> Tensor:
        from torchvision.transforms.v2.functional import resized_crop

        size = list(images.shape[-2:])
        rows, columns = (max(1, round(self.scale * side)) for side in size)
        cut = []
        for image in images:
            top, left = (int(torch.randint(room + 1, (), device="cpu")) for room in (size[0] - rows, size[1] - columns))
            cut.append(resized_crop(image, top, left, rows, columns, size, antialias=True))
        return clamp_with_edge_gradient(torch.stack(cut))


class TorchvisionNoise(Transform):
    """torchvision's Gaussian noise, with the result clipped to [0, 1]."""

    sigma: float

    def _change(self, images: Tensor) -> Tensor:
        from torchvision.transforms.v2.functional import gaussian_noise

        return gaussian_noise(images, sigma=self.sigma)


class ArtNoise(ArtTransform):
    """ART's `GaussianAugmentation` applied in every query: Gaussian noise, with the result clipped to [0, 1]."""

    def __init__(self, sigma: float):
        super().__init__()
        from art.defences.preprocessor import GaussianAugmentation

        self.preprocessor = GaussianAugmentation(
            sigma=sigma, augmentation=False, clip_values=(0.0, 1.0), apply_fit=False, apply_predict=True
        )


class ArtTotalVarMin(ArtTransform):
    """ART's `TotalVarMin`. It keeps random pixels, and fills in all others so that the total variation is minimal."""

    def __init__(self, kept: float, weight: float, steps: int):
        super().__init__()
        from art.defences.preprocessor import TotalVarMin

        self.preprocessor = TotalVarMin(prob=kept, lamb=weight, max_iter=steps, clip_values=(0.0, 1.0))

    def _change(self, images: Tensor) -> Tensor:
        changed = super()._change(images.permute(0, 2, 3, 1))  # it takes channels last
        return changed.permute(0, 3, 1, 2)


class Smoothed(nn.Module):
    """Randomised smoothing as a model: the logarithm of the mean probabilities under Gaussian noise.

    The noise is not clipped, as the certificate requires. Cohen et al. count predictions. This model averages
    probabilities (Salman et al. 2019), because their mean has gradients. If the probabilities are near 0 or 1, and with
    many samples, its prediction agrees with the certificate's.

    Args:
        classifier: the undefended model.
        sigma: standard deviation of the noise, for pixels in [0, 1].
        draws: number of noisy images per query.
    """

    def __init__(self, classifier: Classifier, sigma: float, draws: int):
        super().__init__()
        self.classifier, self.sigma, self.draws = classifier, sigma, draws

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits of shape (N, K) for images (N, C, H, W)."""
        noisy = (inputs + self.sigma * torch.randn_like(inputs) for _ in range(self.draws))
        answers = torch.stack([self.classifier(images).log_softmax(1) for images in noisy])
        return answers.logsumexp(0) - float(np.log(self.draws))
