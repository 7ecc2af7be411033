"""Common corruptions of images: generated, read from disk, and as sequences of frames."""
