package config

// Logger says what is logged, and where.
type Logger struct {
	// Level is the least important line that is logged.
	Level string `yaml:"level" jsonschema:"enum=debug,enum=info,enum=warn,enum=error,default=info"`
	// File is the file to log to. stderr is the standard error stream, and ./stderr a file of that name.
	File string `yaml:"file" jsonschema:"default=stderr"`
	// Format is how a line looks: text (simple), text with its source (verbose), or JSON (json).
	Format string `yaml:"format" jsonschema:"enum=simple,enum=verbose,enum=json,default=simple"`
}

// Path returns the file to log to, "" for the standard error stream.
func (l Logger) Path() string {
	if l.File == "stderr" {
		return ""
	}
	return l.File
}
