package main

import "stoa/agentsvc/config"

type schemaCmd struct{}

// Run prints the JSON Schema (draft-07) of the configuration, for editors and for tools that write one.
func (cmd *schemaCmd) Run(c *console) error {
	_, err := c.out.Write(append(config.Schema(), '\n'))
	return err
}
