//go:build race

package sandbox

// RaceSettings returns the environment variables that helpers need in a build with the race detector, which makes a process
// wait a second before it exits: they wait 20 ms.
func RaceSettings() []string { return []string{"GORACE=atexit_sleep_ms=20"} }
