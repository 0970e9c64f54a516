package corpus

// ExactScans is exported for the test that occupies all of its permits.
var ExactScans = exactScans
