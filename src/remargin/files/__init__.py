"""Files that are wholly there or not there, checksums that say what they should hold, and work that can be resumed."""
