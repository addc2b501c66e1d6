"""What the attempts of one host share and wait for: the queue, slots, GPUs and ports."""
