"""What a server stands: pages under load while tasks run, and kills at random."""
