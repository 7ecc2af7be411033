"""Named detectors of adversarial images, from libraries or implemented from a paper."""
