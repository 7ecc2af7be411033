"""The contract that every implementation must meet, and the checks of that contract."""
