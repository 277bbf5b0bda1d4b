"""Replay of recorded steps (METHODS h.2, h.3): ops > lane, meet > graph > play > equal > answer."""
