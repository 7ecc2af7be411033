"""Purification: noise is added to an image and removed in steps by a denoiser of the user or of diffusers."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ....errors import InvalidInput, MissingLibrary, ModelFailed, Unavailable, Unsupported
from ...paths import expand_path, is_file_name, split_file_name
from ..clamp import clamp_with_edge_gradient
from .transforms import Transform


class Purifier(Transform):
    """Add Gaussian noise, and remove it in deterministic steps of decreasing noise level.

    With a denoiser D and noise levels s_1 > ... > s_n > s_(n+1) = 0, step i computes D(x, s_i) plus s_(i+1) / s_i times
    x - D(x, s_i). This is Euler's method for the probability flow of a diffusion model (Karras et al. 2022), and DDIM
    (Song et al. 2021) in scaled coordinates. In the backward pass each step is computed again (checkpointing), which
    needs the memory of one step.

    Args:
        member: "FILE.py:NAME", a module or a function without arguments that returns one. It maps images (N, C, H, W)
            with noise and the standard deviation of the noise, for pixels in [0, 1], to its estimate of the images. Or
            a folder with an unconditional model of diffusers and its scheduler.
        noise: standard deviation of the noise, for pixels in [0, 1]. With a folder, the closest level of the scheduler.
        t: timestep of the scheduler in place of `noise`. 0 for none.
        steps: number of calls of the denoiser. Noise levels are multiples of `noise` / `steps`, or those of equidistant
            timesteps.

    Raises:
        InvalidInput: if `t` is given for a file, there are fewer timesteps than steps, or no module is returned.
        Unavailable, UnknownName, ModelFailed: if the file or the folder cannot be loaded.
        Unsupported: if the diffusers model needs further inputs.
        MissingLibrary: if diffusers is not installed.
    """

    def __init__(self, member: str, noise: float, t: int, steps: int):
        super().__init__()
        self.surroundings: AbstractContextManager[object] = nullcontext()
        if is_file_name(member):
            from ..zoo.python_file import load_module  # which imports this package

            if t:
                raise InvalidInput(f"{member} has no timesteps, so t={t} cannot be used; give noise= instead")
            module, self.surroundings = load_module(*split_file_name(member), "a denoiser")
            self.levels = tuple(noise * (1 - place / steps) for place in range(steps))
        else:
            module = _load_diffusers(expand_path(member))
            self.levels = module.choose_levels(noise, t, steps)
        self.denoiser = module.eval().requires_grad_(False)

    def _change(self, images: Tensor) -> Tensor:
        reference = next(self.denoiser.parameters(), images)
        x = images.to(reference)
        x = x + self.levels[0] * torch.randn_like(x)
        for level, following in zip(self.levels, (*self.levels[1:], 0.0), strict=True):
            x = checkpoint(self._step, x, level, following, use_reentrant=False)
        return clamp_with_edge_gradient(x.to(images))

    def _step(self, x: Tensor, level: float, following: float) -> Tensor:
        with self.surroundings:
            clean = self.denoiser(x, level)
        if not isinstance(clean, Tensor) or clean.shape != x.shape:
            got = tuple(clean.shape) if isinstance(clean, Tensor) else type(clean).__name__
            raise ModelFailed(f"expected images of shape {tuple(x.shape)} from the denoiser, got {got}")
        return clean + following / level * (x - clean)


class DiffusersDenoiser(nn.Module):
    """An unconditional diffusers model as a denoiser of images in [0, 1].

    A diffusion model scales images to [-1, 1] and multiplies them by sqrt(a_t), where a_t is the scheduler's cumulative
    product of 1 - beta. Relative to an image in [0, 1], its noise has a standard deviation of sqrt(1 / a_t - 1) / 2.

    Args:
        unet: UNet2DModel.
        scheduler: scheduler of diffusers with `alphas_cumprod`.
    """

    signals: Tensor

    def __init__(self, unet: nn.Module, scheduler: Any):
        super().__init__()
        self.unet, self.kind = unet, scheduler.config.prediction_type
        self.register_buffer("signals", scheduler.alphas_cumprod.double())

    def choose_levels(self, noise: float, t: int, steps: int) -> tuple[float, ...]:
        """Return the noise levels of equidistant timesteps from `t`, or from that closest to `noise`, downwards.

        Raises:
            InvalidInput: if there are fewer timesteps than steps, or there is no timestep `t`.
        """
        levels = self._levels()
        most = len(levels) - 1
        if t > most:
            raise InvalidInput(f"expected t as a timestep of the scheduler, at most {most}, got {t}")
        first = t or int((levels - noise).abs().argmin())
        if steps > max(first, 1):
            raise InvalidInput(f"expected at most {max(first, 1)} steps from timestep {first}, got {steps}")
        places = [round(first * (1 - place / steps)) for place in range(steps)]
        return tuple(float(levels[place]) for place in places)

    def forward(self, images: Tensor, level: float) -> Tensor:
        """Return the estimate of the images, (N, C, H, W), from images with noise of a standard deviation."""
        place = int((self._levels() - level).abs().argmin())
        signal = float(self.signals[place])
        scaled = (2 * images - 1) * signal**0.5
        output = self.unet(scaled, place, return_dict=False)[0][:, : images.shape[1]]  # a learned variance may follow
        if self.kind == "epsilon":
            clean = (scaled - (1 - signal) ** 0.5 * output) / signal**0.5
        else:
            clean = output if self.kind == "sample" else signal**0.5 * scaled - (1 - signal) ** 0.5 * output
        return (clean + 1) / 2

    def _levels(self) -> Tensor:
        return (1 / self.signals - 1).sqrt() / 2


def _load_diffusers(folder: Path) -> DiffusersDenoiser:
    from ..zoo.weights import loading, quietly  # which imports this package

    if not folder.is_dir():
        raise Unavailable(f"expected FILE.py:FUNCTION or a folder of diffusers as the denoiser, got {folder}")
    try:
        with quietly():
            from diffusers.models.unets.unet_2d import UNet2DModel
            from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
    except ImportError as error:
        raise MissingLibrary(error.name or "diffusers", "hf") from error
    unet, scheduler = (part if (part := folder / each).is_dir() else folder for each in ("unet", "scheduler"))
    with loading(f"purify:{folder}", unet):
        model: Any = UNet2DModel.from_pretrained(unet, local_files_only=True, low_cpu_mem_usage=False)
        noises = DDPMScheduler.from_pretrained(scheduler, local_files_only=True)
    if model.config.class_embed_type is not None or model.config.num_class_embeds is not None:
        raise Unsupported(f"expected an unconditional diffusion model in {folder}, got a class-conditional one")
    return DiffusersDenoiser(model, noises)
