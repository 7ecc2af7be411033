"""Models on a server, queried by the Open Inference Protocol or with plain JSON, with an answer cache."""
