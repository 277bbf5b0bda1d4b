"""What would the step take if ... (METHODS h): asked > facts > bound, edit > answer."""
