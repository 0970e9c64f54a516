package main

import (
	"errors"
	"log/slog"
	"os"

	"stoa/agentsvc/app"
	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/sandbox"
	"stoa/tenancy"
)

type validateCmd struct {
	File string `arg:"" help:"The configuration file."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// Run checks the file as serve would and shows everything that is wrong with it at once.
func (cmd *validateCmd) Run(c *console) error {
	err := cmd.checkFile()
	var invalid *config.Error
	if err != nil && !errors.As(err, &invalid) {
		return err
	}
	if cmd.JSON {
		result := struct {
			File   string           `json:"file"`
			Valid  bool             `json:"valid"`
			Errors []config.Problem `json:"errors"`
		}{File: cmd.File, Valid: invalid == nil, Errors: []config.Problem{}}
		if invalid != nil {
			result.Errors = invalid.Problems
		}
		if err := c.printJSON(result); err != nil {
			return err
		}
	}
	switch {
	case invalid != nil && cmd.JSON:
		return &exitError{code: exitFailed}
	case invalid != nil:
		return c.printProblems(invalid)
	case !cmd.JSON:
		c.printStatus("%s is valid", cmd.File)
	}
	return nil
}

// checkFile reads the file and builds what it describes, which calls nobody and needs no database.
func (cmd *validateCmd) checkFile() error {
	cfg, err := config.Load(cmd.File, lookupEnv)
	if err != nil {
		return err
	}
	helper, err := os.Executable()
	if err != nil {
		return err
	}
	keys, err := tenancy.NewKeyring(make([]byte, 32)) // nothing is sealed here
	if err != nil {
		return err
	}
	deps := app.Dependencies{
		Keys: keys, PublicEgress: egress.New(egress.Options{}), PrivateEgress: egress.New(egress.Options{PrivateNetwork: true}),
		Sandbox: sandbox.NewHost(helper, sandbox.Options{}), Log: slog.New(slog.DiscardHandler),
	}
	defer deps.PublicEgress.Close()
	defer deps.PrivateEgress.Close()
	return (&defaultApp{path: cmd.File}).checkBuild(cfg, deps)
}

// printProblems lists what is wrong with a configuration, one line each that editors can jump to, and counts it.
func (c *console) printProblems(invalid *config.Error) error {
	c.printStatus("%s", invalid.Error())
	noun := "errors"
	if len(invalid.Problems) == 1 {
		noun = "error"
	}
	c.printStatus("%d %s in %s", len(invalid.Problems), noun, invalid.File)
	return &exitError{code: exitFailed}
}
