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
	err := cmd.check()
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
		if err := c.json(result); err != nil {
			return err
		}
	}
	switch {
	case invalid != nil && cmd.JSON:
		return &exit{code: exitFailed}
	case invalid != nil:
		return c.refuse(invalid)
	case !cmd.JSON:
		c.say("%s is valid", cmd.File)
	}
	return nil
}

// check reads the file and builds what it describes, which calls nobody and needs no database.
func (cmd *validateCmd) check() error {
	cfg, err := config.Load(cmd.File, environ)
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
	house := app.House{
		Keys: keys, Outside: egress.New(egress.Options{}), Inside: egress.New(egress.Options{PrivateNetwork: true}),
		Sandbox: sandbox.NewHost(helper, sandbox.Options{}), Log: slog.New(slog.DiscardHandler),
	}
	defer house.Outside.Close()
	defer house.Inside.Close()
	return (&own{path: cmd.File}).try(cfg, house)
}

// refuse lists what is wrong with a configuration, one line each that editors can jump to, and counts it.
func (c *console) refuse(invalid *config.Error) error {
	c.say("%s", invalid.Error())
	noun := "errors"
	if len(invalid.Problems) == 1 {
		noun = "error"
	}
	c.say("%d %s in %s", len(invalid.Problems), noun, invalid.File)
	return &exit{code: exitFailed}
}
