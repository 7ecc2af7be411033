"""What `davylamp challenge` makes of defences that are known to be broken, and of two that are not."""
