"""The HTML report, written once or served during an evaluation."""
