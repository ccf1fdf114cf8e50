"""The learner's rules: when it may step, what answers a pull, and what an adoption keeps."""
