package main

import "stoa/agentsvc/config"

// schemaCmd is `stoa schema`.
type schemaCmd struct{}

// Run prints the JSON Schema (draft-07) of the configuration, for editors and generators.
func (cmd *schemaCmd) Run(c *console) error {
	// The file that package config embeds, unchanged but for the line feed.
	_, err := c.out.Write(append(config.Schema(), '\n'))
	return err
}
