package config

import (
	_ "embed"
	"slices"
)

//go:generate go test -run "^(TestSchema|TestReference|TestPages)$" -update

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft-07) of a document. It describes what can be written; what is not available
// yet is refused by [Parse] only.
func Schema() []byte {
	return slices.Clone(schema)
}
