"""Load tests of a server: pages while tasks run, and kills at random."""
