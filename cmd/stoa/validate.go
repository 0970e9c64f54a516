package main

import (
	"cmp"
	"errors"
	"log/slog"
	"os"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/sandbox"
	"stoa/cmd/stoa/server"
	"stoa/tenancy/grant"
	"stoa/tenancy/keyring"
)

// validateCmd is `stoa validate`.
type validateCmd struct {
	File   string   `arg:"" help:"The configuration file."`
	JSON   bool     `name:"json" help:"Print JSON."`
	Tenant bool     `help:"Check it as the configuration of an app, with the grants and secrets that follow, and not as the operator's own."`
	Grant  []string `placeholder:"GRANT" help:"A grant of the app, as for app create. Repeatable."`
	Secret []string `sep:"none" placeholder:"NAME=VALUE" help:"A secret of the app; NAME alone takes the value from the environment. Repeatable."`
}

// Run checks the file as serve does, or with --tenant as the admin API does, and prints every error and every warning
// in it, with line and column.
func (cmd *validateCmd) Run(c *console) error {
	if !cmd.Tenant && len(cmd.Grant)+len(cmd.Secret) > 0 {
		return &exitError{code: exitUsage, cause: errors.New("--grant and --secret belong to --tenant: the operator's own file needs no grants and reads the environment")}
	}
	warnings, err := cmd.checkFile()
	var invalid *document.Error
	// Only problems of the document are a result; a file that cannot be read is an error of the command.
	if err != nil && !errors.As(err, &invalid) {
		return err
	}
	if cmd.JSON {
		result := struct {
			File     string             `json:"file"`
			Valid    bool               `json:"valid"`
			Errors   []document.Problem `json:"errors"`
			Warnings []document.Problem `json:"warnings"`
		}{File: cmd.File, Valid: invalid == nil, Errors: []document.Problem{}, Warnings: append([]document.Problem{}, warnings...)}
		if invalid != nil {
			result.Errors = invalid.Problems
		}
		if err := c.printJSON(result); err != nil {
			return err
		}
	}
	for _, w := range warnings {
		if !cmd.JSON {
			c.printStatus("%s:%d:%d: warning: %s: %s", cmd.File, w.Line, w.Column, w.Path, w.Message)
		}
	}
	switch {
	// The problems are in the JSON; the exit code alone reports the failure.
	case invalid != nil && cmd.JSON:
		return &exitError{code: exitFailed}
	case invalid != nil:
		return c.printProblems(invalid)
	case !cmd.JSON:
		c.printStatus("%s is valid", cmd.File)
	}
	return nil
}

// checkFile parses the file and builds the app that it describes, with the same function as serve, and returns the
// warnings. With no database and a keyring of zeros it can store nothing.
func (cmd *validateCmd) checkFile() ([]document.Problem, error) {
	helper, err := os.Executable()
	if err != nil {
		return nil, err
	}
	keys, err := keyring.New(make([]byte, 32)) // no secret is encrypted with it
	if err != nil {
		return nil, err
	}
	// No database, queue or billing: runtime.Build creates only what a configuration describes.
	deps := runtime.Dependencies{
		Keys: keys, Log: slog.New(slog.DiscardHandler),
		Host: runtime.Host{PublicEgress: egress.New(egress.Options{}), PrivateEgress: egress.New(egress.Options{PrivateNetwork: true}), Sandbox: sandbox.NewHost(helper, sandbox.Options{})},
	}
	defer deps.PublicEgress.Close()
	defer deps.PrivateEgress.Close()
	if !cmd.Tenant {
		return server.CheckConfigFile(cmd.File, deps)
	}
	secrets, err := parsePairs("--secret", cmd.Secret, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	return server.CheckAppConfigFile(cmd.File, grant.ParseList(withoutEmpty(cmd.Grant)), secrets, deps)
}

// printProblems prints the errors of a configuration, one a line in the format FILE:LINE:COLUMN that editors
// recognise, and their number. It returns the [exitError] that ends the command.
func (c *console) printProblems(invalid *document.Error) error {
	c.printStatus("%s", invalid.Error())
	noun := "errors"
	if len(invalid.Problems) == 1 {
		noun = "error"
	}
	c.printStatus("%d %s in %s", len(invalid.Problems), noun, cmp.Or(invalid.File, "the app's configuration"))
	return &exitError{code: exitFailed}
}

// schemaCmd is `stoa schema`.
type schemaCmd struct{}

// Run prints the JSON Schema (draft-07) of the configuration, for editors and generators.
func (cmd *schemaCmd) Run(c *console) error {
	// The file that package config embeds, unchanged but for the line feed.
	_, err := c.out.Write(append(config.Schema(), '\n'))
	return err
}
