package pattern

// MaxSchemaParts bounds the Parts of one schema. The library that compiles it compares each with all others: 63 KB of {}
// took 16 MiB and seconds of processor time.
const MaxSchemaParts = 6_000

// SchemaCost is what a JSON Schema takes in memory when it is compiled.
type SchemaCost struct {
	// Parts is an upper bound for its subschemas: its objects and booleans. Each takes some 800 bytes.
	Parts int
	// Instructions are those of its expressions. Each takes some 60 bytes.
	Instructions int
}

// MeasureSchema returns the cost of a decoded JSON Schema. It counts every member that a schema could have an expression
// in, also where the member is only a value, as in an enum.
func MeasureSchema(schema any) (c SchemaCost) {
	c.addValue(schema)
	return c
}

// addValue adds the cost of a value and of everything below it.
func (c *SchemaCost) addValue(value any) {
	switch v := value.(type) {
	case bool:
		c.Parts++
	case []any:
		for _, item := range v {
			c.addValue(item)
		}
	case map[string]any:
		c.Parts++
		for key, member := range v {
			if text, ok := member.(string); ok && key == "pattern" {
				c.Instructions += SumInstructions(text)
			}
			if members, ok := member.(map[string]any); ok && key == "patternProperties" {
				for expr := range members {
					c.Instructions += SumInstructions(expr)
				}
			}
			c.addValue(member)
		}
	}
}
