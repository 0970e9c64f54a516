package main

import (
	"context"
	"fmt"
	"io"

	"stoa/agentsvc/config/document"
	"stoa/cmd/stoa/doctor"
	"stoa/cmd/stoa/server"
)

// doctorCmd is `stoa doctor`. It has the settings of serve, needs no server and changes nothing.
type doctorCmd struct {
	Config string `type:"path" placeholder:"FILE" help:"The configuration of the default app and of the process, as for serve."`
	CA     string `name:"ca" env:"STOA_CA_FILE" placeholder:"FILE" help:"PEM certificates of authorities to trust, besides those of this machine."`
	JSON   bool   `name:"json" help:"Print JSON."`
	server.Flags
}

// Run prints a line for each check and what to do. It returns an [exitError] with the code 2 for invalid settings, as serve
// does, and one with the code 1 if a check failed.
func (cmd *doctorCmd) Run(ctx context.Context, c *console) error {
	o, err := cmd.newOptions()
	if err != nil {
		return err
	}
	report := doctor.Inspect(ctx, o)
	if cmd.JSON {
		err = c.printJSON(report)
	} else {
		_, err = io.WriteString(c.out, stripControls(report.Text()))
	}
	if err == nil && report.Status == doctor.Failure {
		return &exitError{code: exitFailed}
	}
	return err
}

// newOptions reads the operator's file, which may be wrong, and the settings, which may not.
func (cmd *doctorCmd) newOptions() (doctor.Options, error) {
	o := doctor.Options{ConfigFile: cmd.Config}
	mine, err := server.LoadDefaultApp(cmd.Config)
	if err == nil {
		o.Config = mine.Config()
		for name, suggestion := range mine.UnknownVariables() {
			if suggestion != "" {
				name += " (did you mean " + suggestion + "?)"
			}
			o.UnknownVariables = append(o.UnknownVariables, name)
		}
	}
	o.ConfigErr = err
	if err == nil && cmd.Config != "" {
		var warnings []document.Problem
		warnings, o.ConfigErr = (&validateCmd{File: cmd.Config}).checkFile()
		for _, w := range warnings {
			o.ConfigWarnings = append(o.ConfigWarnings, fmt.Sprintf("%s %s", w.Path, w.Message))
		}
	}
	if o.Settings, err = server.ResolveSettings(cmd.Flags, o.Config); err != nil {
		return o, &exitError{code: exitUsage, cause: err}
	}
	if cmd.CA != "" {
		if o.Roots, err = readAuthorities(cmd.CA); err != nil {
			return o, &exitError{code: exitUsage, cause: fmt.Errorf("--ca: %w", err)}
		}
	}
	return o, nil
}
