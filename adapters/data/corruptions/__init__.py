"""Common corruptions of images: generated, read from disk, or as sequences of frames."""
