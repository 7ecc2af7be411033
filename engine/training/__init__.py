"""Training that makes a model robust: losses, a loop that resumes, the weights file and its card."""
