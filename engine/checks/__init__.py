"""What the results of a folder say together: verdicts on pairs, standings, failure indicators, what is missing."""
