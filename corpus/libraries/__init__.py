"""What torch.compile and bcmend make of the public functions and modules of libraries."""
