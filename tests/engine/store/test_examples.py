"""Adversarial images on their way into a folder and back."""

import numpy as np
import torch

from davylamp.engine.store.columns import compact_images, restore_images


def test_images_on_the_8_bit_grid_take_a_byte_a_component_and_come_back_bit_by_bit():
    every = (torch.arange(256).float() / 255).view(1, 1, 16, 16)
    assert compact_images(every).dtype == np.uint8
    assert torch.equal(restore_images(compact_images(every)), every)
    off = every * 0.999
    assert compact_images(off).dtype == np.float32
    assert torch.equal(restore_images(compact_images(off)), off)
