"""Image transformations from several libraries, as modules for images (N, C, H, W) in [0, 1]."""

import io
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..clamp import clamp_with_edge_gradient


class Transform(nn.Module):
    """A transformation of images (N, C, H, W) in [0, 1] to images of the same shape and range.

    Args:
        **parameters: parameters of the transformation, which become its attributes.
    """

    def __init__(self, **parameters: Any):
        super().__init__()
        vars(self).update(parameters)

    def forward(self, images: Tensor) -> Tensor:
        """Transform the images."""
        return self._change(images)

    def _change(self, images: Tensor) -> Tensor:
        raise NotImplementedError


class ArtTransform(Transform):
    """A preprocessor of ART. It is called with float32 arrays of shape (N, H, W, C)."""

    preprocessor: Any

    def _change(self, images: Tensor) -> Tensor:
        arrays = images.detach().cpu().numpy().astype(np.float32)
        changed, _ = self.preprocessor(arrays)
        return torch.from_numpy(np.ascontiguousarray(changed, dtype=np.float32)).to(images)


class ArtJpeg(ArtTransform):
    """ART's `JpegCompression`, which compresses each image with Pillow's JPEG."""

    def __init__(self, quality: int):
        super().__init__()
        from art.defences.preprocessor import JpegCompression

        self.preprocessor = JpegCompression((0.0, 1.0), quality=quality, channels_first=True)


class ArtBitDepth(ArtTransform):
    """ART's `FeatureSqueezing`, which reduces the number of bits per channel."""

    def __init__(self, bits: int):
        super().__init__()
        from art.defences.preprocessor import FeatureSqueezing

        self.preprocessor = FeatureSqueezing((0.0, 1.0), bit_depth=bits)


class ArtMedian(ArtTransform):
    """ART's `SpatialSmoothing`, which applies SciPy's median filter."""

    def __init__(self, window: int):
        super().__init__()
        from art.defences.preprocessor import SpatialSmoothing

        self.preprocessor = SpatialSmoothing(window_size=window, channels_first=True, clip_values=(0.0, 1.0))


class KorniaMedian(Transform):
    """Kornia's median filter, which is differentiable."""

    window: int

    def _change(self, images: Tensor) -> Tensor:
        from kornia.filters import median_blur

        edge = self.window // 2  # reflected here: before 0.9 Kornia pads with black
        height, width = images.shape[-2:]
        padded = nn.functional.pad(images, (edge,) * 4, mode="reflect")
        return median_blur(padded, self.window)[..., edge : edge + height, edge : edge + width]


class KorniaJpeg(Transform):
    """Kornia's differentiable JPEG. Its rounding is smoothed, so its pixels differ slightly from Pillow's."""

    def __init__(self, quality: int):
        super().__init__()
        from kornia.enhance import JPEGCodecDifferentiable

        self.quality, self.codec = quality, JPEGCodecDifferentiable()

    def _change(self, images: Tensor) -> Tensor:
        count, channels, height, width = images.shape
        right, below = -width % 16, -height % 16  # it takes whole blocks only
        padded = nn.functional.pad(images, (0, right, 0, below), mode="replicate")
        coloured = padded if channels == 3 else padded.expand(-1, 3, -1, -1)
        quality = images.new_full((count,), float(self.quality))
        changed = clamp_with_edge_gradient(self.codec(coloured, quality)[..., :height, :width])
        return changed if channels == 3 else changed.mean(1, keepdim=True)


class TorchvisionBlur(Transform):
    """torchvision's Gaussian blur, which is differentiable."""

    window: int
    sigma: float

    def _change(self, images: Tensor) -> Tensor:
        from torchvision.transforms.v2.functional import gaussian_blur

        return clamp_with_edge_gradient(gaussian_blur(images, [self.window, self.window], [self.sigma, self.sigma]))


class TorchvisionRescale(Transform):
    """Shrinks images and enlarges them again, with torchvision's antialiased bilinear interpolation."""

    scale: float

    def _change(self, images: Tensor) -> Tensor:
        from torchvision.transforms.v2.functional import resize

        size = list(images.shape[-2:])
        smaller = [max(1, round(self.scale * side)) for side in size]
        return clamp_with_edge_gradient(resize(resize(images, smaller, antialias=True), size, antialias=True))


class _OfPillow(Transform):
    """Lossy compression by Pillow. The images are first rounded to 8 bits."""

    kind: str
    quality: int

    def _change(self, images: Tensor) -> Tensor:
        levels = images.detach().mul(255).round().to(torch.uint8).cpu().permute(0, 2, 3, 1).numpy()
        changed = np.stack([self._compress(image) for image in levels])
        return torch.from_numpy(changed).permute(0, 3, 1, 2).to(images).div(255)

    def _compress(self, image: np.ndarray) -> np.ndarray:
        from PIL import Image

        file, grey = io.BytesIO(), image.shape[2] == 1
        Image.fromarray(image[..., 0] if grey else image).save(file, self.kind, quality=self.quality)
        with Image.open(file) as decoded:
            pixels = np.array(decoded.convert("L" if grey else "RGB"))
        return pixels[..., None] if grey else pixels


class PillowJpeg(_OfPillow):
    """Pillow's JPEG."""

    kind = "JPEG"


class PillowWebp(_OfPillow):
    """Pillow's lossy WebP."""

    kind = "WEBP"
