"""The GPUs of this machine, as its drivers tell of them."""
