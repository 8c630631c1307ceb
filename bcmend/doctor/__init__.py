"""What `python -m bcmend doctor` says of the running torch."""
