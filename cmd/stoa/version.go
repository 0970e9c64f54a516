package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version and commit are set by the linker; see the Makefile.
var (
	version = "v0.1.0"
	commit  = ""
)

type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Run prints the version, the commit and the Go version this binary was built from.
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

// buildCommit returns the commit this binary was built from, or "unknown".
func buildCommit() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
