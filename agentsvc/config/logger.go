package config

// Logger says what is logged, and where.
type Logger struct {
	// Level is the least important line that is logged.
	Level string `yaml:"level" jsonschema:"enum=debug,enum=info,enum=warn,enum=error,default=info"`
	// File is the file to log to. Without it, the standard error stream.
	File string `yaml:"file"`
	// Format is how a line looks: text (simple), text with its source (verbose), or JSON (json).
	Format string `yaml:"format" jsonschema:"enum=simple,enum=verbose,enum=json,default=simple"`
}
