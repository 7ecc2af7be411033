"""Models behind a server: asked by the Open Inference Protocol or as plain JSON; answers are kept, counted and paid."""
