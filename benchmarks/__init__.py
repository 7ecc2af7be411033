"""The papers' tables, run again (`davylamp reproduce`), and the side by side with the peers (`make bench`)."""
