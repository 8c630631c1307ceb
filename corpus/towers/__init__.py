"""Small modules that read numbers out of tensors, as vision, audio and video towers do."""
