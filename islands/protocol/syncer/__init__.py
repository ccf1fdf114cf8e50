"""The syncer's rules: which round opens, who is asked, what is merged, and every token's fate."""
