package migrations

import (
	"embed"
	"io/fs"
)

//go:embed session/*.sql
var sessionFiles embed.FS

// SessionMigrations returns what makes the tables of conversations in a database that is an app's own, a text for each version,
// the first one first. Each is several statements and takes effect as a whole or not at all.
func SessionMigrations() ([]string, error) {
	names, err := fs.Glob(sessionFiles, "session/*.sql")
	if err != nil {
		return nil, err
	}
	steps := make([]string, len(names))
	for i, name := range names {
		text, err := sessionFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		steps[i] = string(text)
	}
	return steps, nil
}
