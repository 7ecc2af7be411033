"""RoBIC: its table and figures."""
