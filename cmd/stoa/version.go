package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version and commit are set by the linker (-X); see the Makefile.
var (
	version = "v0.1.0"
	commit  = ""
)

// versionCmd is `stoa version`.
type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Run prints the version, the commit and the Go version of this binary.
func (cmd *versionCmd) Run(c *console) error {
	if cmd.JSON {
		return c.printJSON(struct {
			Version string `json:"version"`
			Commit  string `json:"commit"`
			Go      string `json:"go"`
		}{version, buildCommit(), runtime.Version()})
	}
	fmt.Fprintf(c.out, "stoa %s (commit %s, %s, %s/%s)\n", version, buildCommit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// buildCommit returns the commit this binary was built from: the linker's, else the one that the go command recorded,
// else "unknown".
func buildCommit() string {
	if commit != "" {
		return commit
	}
	// A binary of "go build" in a repository has the commit; one of "go install" has none.
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
