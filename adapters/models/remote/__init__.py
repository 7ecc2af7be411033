"""Models behind a server, queried by the Open Inference Protocol or as plain JSON, with an answer cache."""
