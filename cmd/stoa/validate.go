package main

import (
	"errors"
	"os"

	"stoa/agentsvc/config"
)

type validateCmd struct {
	File string `arg:"" help:"The configuration file."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// Run checks the file as serve would and shows everything that is wrong with it at once.
func (cmd *validateCmd) Run(c *console) error {
	_, err := config.Load(cmd.File, os.LookupEnv)
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
