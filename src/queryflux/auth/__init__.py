"""Who is asking, and which groups they may use."""
