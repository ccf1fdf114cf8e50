"""The supervisor's rules: who is admitted, who is evicted, and what is started again."""
