"""Results of `davylamp challenge` on defences that are known to be broken, and on two that are not."""
