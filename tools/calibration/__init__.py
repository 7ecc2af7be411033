"""Whether what is printed as 95 % is 95 %: simulations with known truth."""
