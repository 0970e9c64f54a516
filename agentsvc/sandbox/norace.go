//go:build !race

package sandbox

// RaceSettings returns the environment variables that helpers need in a build with the race detector: here none.
func RaceSettings() []string { return nil }
